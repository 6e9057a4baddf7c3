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

#[cfg(test)]
mod tests {
    use std::iter::{empty, once};

    use super::*;
    use crate::error::LostReason;
    use crate::scripted::Stage;

    #[tokio::test(start_paused = true)]
    async fn fence_checks_all_members_and_keeps_their_nodes_in_this_process() {
        let stage = Stage::new().await;
        let (first, second) = (stage.lease(1), stage.lease(2));
        let fence = of(&first, once(&second)).unwrap();
        assert_eq!(fence.sql(), r#"[("/a/n1", 1), ("/a/n2", 2)]"#);
        assert!(first.is_tied() && second.is_tied());
    }

    #[tokio::test(start_paused = true)]
    async fn lock_that_is_lost_or_of_another_session_has_no_fence() {
        let (stage, other) = (Stage::new().await, Stage::new().await);
        let (held, lost) = (stage.lease(1), stage.lease(2));
        let elsewhere = other.lease_of(&other.lock("/b", 0), 3, None);
        let refused = of(&held, once(&elsewhere));
        let is_it = matches!(&refused, Err(FenceError::Unsupported { path }) if path == "/b");
        assert!(is_it, "{refused:?}");
        lost.note_loss(LostReason::NodeRemoved);
        for refused in [of(&lost, empty()), of(&held, once(&lost))] {
            assert!(matches!(refused, Err(FenceError::Lost(_))), "{refused:?}");
        }
        assert!(!held.is_tied());
    }
}
