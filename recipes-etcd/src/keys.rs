//! Nodes as keys.
//!
//! A contender is a key right below its lock's path, of any program. All stand in the order of their create
//! revisions, so that is the number at the end of a node's name, which the key does not have:
//!
//! | key | lease | node |
//! |---|---|---|
//! | `/orders/_c_UUID-lock-` | yes | `/orders/_c_UUID-lock-0000000000000000057`: ours, at revision 57 |
//! | `/orders/694d8a7f0c11ab03` | yes | `/orders/694d8a7f0c11ab03-lock-0000000000000000057`: of Go, or etcdctl |
//! | `/orders/_c_UUID-__READ__0000000000000000057+` | yes | the same: a reader next to its writer |
//! | `/orders/data` | no | the same: data of a service |
//!
//! Directories are no keys: one is there as long as something is below it.

use recipes_core::internal::{BESIDE, REVISION_DIGITS};

/// The start of names that this library and Curator make.
const OURS: &str = "_c_";

/// What other programs' nodes have between their keys and their numbers: they are taken for those of a mutex.
const MUTEX: &str = "-lock-";

/// Where the keys of nodes and sessions are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    /// What the keys of all nodes begin with. It does not end with a slash.
    prefix: String,
}

/// A node's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeKey {
    pub(crate) key: String,
    /// The revision that made it, if that is in the node's name.
    pub(crate) made_at: Option<i64>,
}

impl NodeKey {
    /// Whether this is the node, by the revision that made the key.
    pub(crate) fn is_made_at(&self, create_revision: i64) -> bool {
        self.made_at.is_none_or(|it| it == create_revision)
    }
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        let prefix = prefix.trim_end_matches('/').to_owned();
        Self { prefix }
    }

    /// The key of a node. The prefix and the path have no slash between them but the path's.
    pub(crate) fn node(&self, path: &str) -> NodeKey {
        let (rest, made_at) = numbered(path).unzip();
        NodeKey {
            key: format!("{}{}", self.prefix, rest.unwrap_or(path)),
            made_at,
        }
    }

    /// The key of a node to create under this path. One with a name of its own that goes with its session is a reader
    /// next to its writer, whose number it has.
    pub(crate) fn created(&self, path: &str, is_beside: bool) -> String {
        match is_beside {
            true => format!("{}{path}{BESIDE}", self.prefix),
            false => format!("{}{path}", self.prefix),
        }
    }

    /// What the keys below a node begin with.
    pub(crate) fn below(&self, path: &str) -> String {
        format!("{}{}/", self.prefix, path.trim_end_matches('/'))
    }

    /// The key of a session. No path has two slashes.
    pub(crate) fn session(&self, lease: i64) -> String {
        format!("{}//sessions/{lease:016x}", self.prefix)
    }

    /// The path of a node with this key, whatever its lease and revision; `None` for a key that is no node's.
    pub(crate) fn path(&self, key: &[u8], lease: i64, create_revision: i64) -> Option<String> {
        let key = std::str::from_utf8(key).ok()?;
        let path = key.strip_prefix(&self.prefix)?;
        let (directory, name) = path.rsplit_once('/')?;
        (!path.contains("//") && !name.is_empty())
            .then(|| format!("{directory}/{}", name_of(name, lease, create_revision)))
    }

    /// The name of what a key says to be in a directory: a node, or a directory on the way to it. `None` for what
    /// is no node's.
    pub(crate) fn name(
        below: &str,
        key: &[u8],
        lease: i64,
        create_revision: i64,
    ) -> Option<String> {
        let rest = key.strip_prefix(below.as_bytes())?;
        let rest = String::from_utf8_lossy(rest);
        let name = match rest.split_once('/') {
            Some((directory, _)) => directory.to_owned(),
            None => name_of(&rest, lease, create_revision),
        };
        (!name.is_empty()).then_some(name)
    }
}

/// The revision that made a mutex's node of this name, if it is one.
pub(crate) fn mutex_made_at(name: &str) -> Option<i64> {
    let (maker, revision) = name.rsplit_once(MUTEX)?;
    (!maker.is_empty() && revision.len() == REVISION_DIGITS).then(|| revision.parse().ok())?
}

/// With the number at the end.
fn numbered_name(name: &str, revision: i64) -> String {
    format!("{name}{revision:0width$}", width = REVISION_DIGITS)
}

/// The name of a node with this key.
fn name_of(key: &str, lease: i64, create_revision: i64) -> String {
    if lease == 0 || key.ends_with(BESIDE) {
        return key.to_owned();
    }
    match key.starts_with(OURS) {
        true => numbered_name(key, create_revision),
        // Go's mutex, etcdctl's lock, and whatever else holds a key there: they exclude each other.
        false => numbered_name(&format!("{key}{MUTEX}"), create_revision),
    }
}

/// A path without the number that its key does not have.
fn numbered(path: &str) -> Option<(&str, i64)> {
    let (rest, digits) = path.split_at_checked(path.len().checked_sub(REVISION_DIGITS)?)?;
    if !digits.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    // 0 is the revision of what is not there.
    let revision = digits.parse().ok().filter(|it| *it > 0)?;
    let (_, name) = rest.rsplit_once('/')?;
    let key = match name.starts_with(OURS) {
        true => rest,
        false => rest.strip_suffix(MUTEX)?,
    };
    Some((key, revision))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";

    #[test]
    fn each_key_is_a_node_and_the_node_is_that_key() {
        let keys = Keys::new("/app/");
        let ours = format!("_c_{UUID}-lock-");
        let beside = format!("_c_{UUID}-__READ__0000000000000000057+");
        for (name, lease, node, made_at) in [
            (&*ours, 5, format!("{ours}0000000000000000057"), Some(57)),
            (
                "694d8a7f0c11ab03",
                5,
                "694d8a7f0c11ab03-lock-0000000000000000057".to_owned(),
                Some(57),
            ),
            (
                "1234567890123456",
                5,
                "1234567890123456-lock-0000000000000000057".to_owned(),
                Some(57),
            ),
            (
                "x-lock-",
                5,
                "x-lock--lock-0000000000000000057".to_owned(),
                Some(57),
            ),
            (&*beside, 5, beside.clone(), None),
            ("data", 0, "data".to_owned(), None),
        ] {
            let (key, path) = (format!("/app/orders/{name}"), format!("/orders/{node}"));
            assert_eq!(
                keys.path(key.as_bytes(), lease, 57).as_deref(),
                Some(&*path)
            );
            let listed = Keys::name("/app/orders/", key.as_bytes(), lease, 57);
            assert_eq!(listed.as_deref(), Some(&*node));
            assert_eq!(keys.node(&path), NodeKey { key, made_at });
        }
    }

    #[test]
    fn mutex_tells_when_its_node_was_made() {
        let name = format!("_c_{UUID}-lock-0000000000000000057");
        assert_eq!(mutex_made_at(&name), Some(57));
        for other in [
            "lock-0000000000000000057",
            "_c_x-__WRIT__0000000000000000057",
        ] {
            assert_eq!(mutex_made_at(other), None, "{other}");
        }
    }

    #[test]
    fn what_is_deeper_is_a_directory_and_sessions_are_none() {
        let keys = Keys::new("");
        let name = |below: &str, key: &str| Keys::name(below, key.as_bytes(), 7, 1);
        assert_eq!(name("/", "/orders/4711/x").as_deref(), Some("orders"));
        assert_eq!(name("/", &keys.session(7)), None);
        assert_eq!(name("/orders/", "/other/x"), None);
        assert_eq!(keys.path(keys.session(7).as_bytes(), 7, 1), None);
        assert_eq!(
            (keys.below("/"), keys.below("/a")),
            ("/".to_owned(), "/a/".to_owned())
        );
    }

    #[test]
    fn what_ends_in_digits_that_are_no_revision_is_not_numbered() {
        let keys = Keys::new("");
        for path in [
            "/orders/0000000000000000057",
            "/orders/x0000000000000000057",
            "/4711",
            "/orders/_c_1-lock-0000000000000000000",
            "/orders/_c_1-lock-9999999999999999999",
        ] {
            assert_eq!(keys.node(path).key, path);
        }
    }
}
