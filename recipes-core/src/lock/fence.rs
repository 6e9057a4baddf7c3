//! A check of a lock inside a transaction of the service's own database.

use std::fmt;
use std::sync::Arc;

use crate::error::FenceError;
use crate::lock::lease::Lease;

/// A statement that keeps a lock while a transaction of the service runs, from
/// [`LockGuard::fence`](crate::LockGuard::fence).
///
/// It is for stores that are a database, in which the service has its data too. Run it in the
/// transaction that writes the data, before the commit. It fails if the lock is held no more; then
/// roll back. If it succeeds, nobody else is granted the lock before that transaction
/// is over, whatever happens to this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    sql: String,
}

impl Fence {
    pub(crate) fn of<'a>(leases: impl Iterator<Item = &'a Lease>) -> Result<Self, FenceError> {
        let leases: Vec<_> = leases.collect();
        for lease in &leases {
            lease.check()?;
        }
        let unsupported = |lease: &Lease| FenceError::Unsupported {
            path: lease.path().to_owned(),
        };
        let Some((first, others)) = leases.split_first() else {
            return Ok(Self { sql: String::new() });
        };
        // One transaction is on one database.
        let is_elsewhere = |lease: &&&Lease| !Arc::ptr_eq(lease.epoch(), first.epoch());
        if let Some(elsewhere) = others.iter().find(is_elsewhere) {
            return Err(unsupported(elsewhere));
        }
        let held: Vec<_> = leases
            .iter()
            .map(|it| (it.node_path(), it.czxid()))
            .collect();
        let nodes = first.epoch().nodes().map_err(|source| FenceError::Ended {
            path: first.path().to_owned(),
            source,
        })?;
        let sql = nodes.fence(&held).ok_or_else(|| unsupported(first))?;
        for lease in leases {
            // For good. The next contender of this process would have the node that the statement checks.
            lease.unsettled();
        }
        Ok(Self { sql })
    }

    /// Returns the statement, without parameters. It returns a row of no meaning.
    #[must_use]
    pub fn sql(&self) -> &str {
        &self.sql
    }
}

/// The statement.
impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sql)
    }
}
