//! Access control: which session may do what.

use std::sync::Arc;

use recipes_core::NodesError;

use crate::memory::acl::{Acl, AuthId, Permission};
use crate::memory::error::MemoryError;

/// On whose behalf a change is made.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// The test itself: everything is allowed.
    Operator,
    /// A session with these identities.
    Session(Arc<[AuthId]>),
}

impl Access {
    pub(crate) fn require(&self, acl: &[Acl], permission: Permission) -> Result<(), NodesError> {
        let Self::Session(identities) = self else {
            return Ok(());
        };
        let anyone = AuthId::anyone();
        let granted = acl.iter().any(|entry| {
            let id = &entry.auth_id;
            entry.permission.has(permission) && (*id == anyone || identities.contains(id))
        });
        if granted {
            Ok(())
        } else {
            Err(NodesError::NoAuth)
        }
    }

    /// Replaces the creator (scheme `auth`) by the identities of the session, as the server does.
    pub(crate) fn resolve(&self, acl: &Arc<[Acl]>) -> Result<Arc<[Acl]>, MemoryError> {
        if acl.is_empty() {
            return Err(MemoryError::InvalidAcl);
        }
        if acl.iter().all(|entry| entry.auth_id.scheme != "auth") {
            return Ok(Arc::clone(acl));
        }
        let Self::Session(identities) = self else {
            return Err(MemoryError::InvalidAcl);
        };
        if identities.is_empty() {
            return Err(MemoryError::InvalidAcl);
        }
        let resolved = acl
            .iter()
            .flat_map(|entry| match entry.auth_id.scheme.as_str() {
                "auth" => identities
                    .iter()
                    .map(|id| Acl {
                        permission: entry.permission,
                        auth_id: id.clone(),
                    })
                    .collect(),
                _ => vec![entry.clone()],
            });
        Ok(resolved.collect())
    }
}
