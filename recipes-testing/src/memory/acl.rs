//! Who may use which node: the words of ZooKeeper, without its client.

use std::sync::Arc;

/// What a session may do with a node, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permission(u8);

impl Permission {
    pub(crate) const READ: Self = Self(1);
    pub(crate) const WRITE: Self = Self(2);
    pub(crate) const CREATE: Self = Self(4);
    pub(crate) const DELETE: Self = Self(8);
    pub(crate) const ALL: Self = Self(15);

    pub(crate) fn has(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }
}

/// Who somebody is, in a scheme such as `digest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuthId {
    pub(crate) scheme: String,
    pub(crate) id: String,
}

impl AuthId {
    pub(crate) fn new(scheme: &str, id: &str) -> Self {
        Self {
            scheme: scheme.to_owned(),
            id: id.to_owned(),
        }
    }

    pub(crate) fn anyone() -> Self {
        Self::new("world", "anyone")
    }
}

/// An entry of an access control list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    pub(crate) permission: Permission,
    pub(crate) auth_id: AuthId,
}

impl Acl {
    /// Everyone may do everything.
    pub(crate) fn open() -> Arc<[Self]> {
        Arc::from([Self {
            permission: Permission::ALL,
            auth_id: AuthId::anyone(),
        }])
    }

    /// Scheme and identity.
    pub(crate) fn words(&self) -> (&str, &str) {
        (&self.auth_id.scheme, &self.auth_id.id)
    }
}

#[cfg(feature = "zookeeper")]
impl From<&recipes_zookeeper::Acl> for Acl {
    fn from(entry: &recipes_zookeeper::Acl) -> Self {
        use recipes_zookeeper::Permission as Given;

        let bits = [
            (Given::READ, Permission::READ),
            (Given::WRITE, Permission::WRITE),
            (Given::CREATE, Permission::CREATE),
            (Given::DELETE, Permission::DELETE),
        ];
        let given = bits
            .into_iter()
            .filter(|(it, _)| entry.permission().has(*it));
        Self {
            permission: Permission(given.fold(0, |bits, (_, bit)| bits | bit.0)),
            auth_id: AuthId::new(entry.scheme(), entry.id()),
        }
    }
}
