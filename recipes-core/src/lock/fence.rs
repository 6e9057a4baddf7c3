//! Checks of held locks inside a transaction of the service's own database.

use std::sync::Arc;

use crate::error::FenceError;
use crate::lock::lease::Lease;
use crate::store::fence::Fence;

/// The statement for all members of a guard, of which this is the first.
pub(crate) fn of<'a>(
    first: &'a Lease,
    others: impl Iterator<Item = &'a Lease>,
) -> Result<Fence, FenceError> {
    let leases: Vec<_> = std::iter::once(first).chain(others).collect();
    for lease in &leases {
        lease.check()?;
    }
    let unsupported = |lease: &Lease| FenceError::Unsupported {
        path: lease.path().to_owned(),
    };
    // One transaction is on one database.
    let is_elsewhere = |lease: &&&Lease| !Arc::ptr_eq(lease.epoch(), first.epoch());
    if let Some(elsewhere) = leases.iter().find(is_elsewhere) {
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
    let fence = nodes.fence(&held).ok_or_else(|| unsupported(first))?;
    for lease in leases {
        // For good. The next contender of this process would have the node that the statement checks.
        lease.unsettled();
    }
    Ok(fence)
}
