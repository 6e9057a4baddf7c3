//! Releases leases: one alone, or several together.

use std::sync::Arc;

use futures::future::join_all;

use crate::error::{LostError, ReleaseError};
use crate::lock::lease::Lease;
use crate::session::cleanup::{Deleted, Deletion, delete_together};

/// Deletes the nodes. Returns the first error, also if a lock was lost before.
///
/// Several nodes of one epoch are deleted in one transaction, or one by one if that is refused.
pub(crate) async fn release_all(leases: &[&Lease]) -> Result<(), ReleaseError> {
    let mut releases = Vec::with_capacity(leases.len());
    for lease in leases {
        let held = lease.check();
        releases.extend(lease.retire().map(|deletion| (*lease, held, deletion)));
    }
    let is_alone = releases.len() == 1;
    let together = release_together(&mut releases).await;
    let released = releases.into_iter().map(|(lease, held, mut deletion)| {
        let deadline = lease.epoch().deadline();
        match together {
            // Only a held node shares a batch: the store would refuse all of it if a node were
            // gone.
            Together::No if is_alone && held.is_ok() => deletion.share(lease.epoch()),
            Together::No => deletion.send(lease.epoch()),
            Together::Done | Together::Unknown => {}
        }
        async move {
            // The release of a lost lease waits for nothing: its deletion continues by itself.
            held?;
            let deleted = match together {
                Together::Done => Some(Deleted::ByUs),
                Together::No => deletion.finish(deadline).await,
                Together::Unknown => deletion.pursue(deadline).await,
            };
            lease.released(deleted)
        }
    });
    let released: Vec<_> = released.collect();
    join_all(released).await.into_iter().collect()
}

/// The outcome of deleting several nodes in one transaction.
#[derive(Clone, Copy)]
enum Together {
    Done,
    No,
    Unknown,
}

async fn release_together(releases: &mut [(&Lease, Result<(), LostError>, Deletion)]) -> Together {
    let [(first, ..), _, ..] = releases else {
        return Together::No;
    };
    let epoch = Arc::clone(first.epoch());
    let is_one_epoch = releases
        .iter()
        .all(|(it, ..)| Arc::ptr_eq(it.epoch(), &epoch));
    let Some(nodes) = epoch.nodes().ok().filter(|_| is_one_epoch) else {
        return Together::No;
    };
    let paths = releases.iter().map(|(it, ..)| it.node_path().to_owned());
    let deleted = delete_together(&*nodes, paths);
    match tokio::time::timeout_at(epoch.deadline(), deleted).await {
        Ok(Ok(())) => {
            releases
                .iter_mut()
                .for_each(|(.., deletion)| deletion.done());
            Together::Done
        }
        Ok(Err(error)) if error.is_lasting() => Together::No,
        Ok(Err(_)) | Err(_) => Together::Unknown,
    }
}
