//! Releases leases: one alone, or several together.

use futures::future::join_all;

use crate::error::ReleaseError;
use crate::lock::lease::Lease;
use crate::session::cleanup::Deletion;

/// Deletes the nodes. Returns the first error, also if a lock was lost before.
///
/// Several nodes of one epoch share a transaction, or are deleted one by one if that is refused.
pub(crate) async fn release_all(leases: &[&Lease]) -> Result<(), ReleaseError> {
    let mut releases = Vec::with_capacity(leases.len());
    for lease in leases {
        let held = lease.check();
        releases.extend(lease.retire().map(|deletion| (*lease, held, deletion)));
    }
    let mut shared = Vec::with_capacity(releases.len());
    for (lease, held, deletion) in &mut releases {
        // Only held nodes share a transaction: the store would refuse all of it if a node were
        // gone.
        match held {
            Ok(()) => shared.push((deletion, &**lease.epoch())),
            Err(_) => deletion.send(lease.epoch()),
        }
    }
    Deletion::share(shared);
    let released = releases.into_iter().map(async |(lease, held, deletion)| {
        // The release of a lost lease waits for nothing: its deletion continues by itself.
        held?;
        let deleted = deletion.finish(lease.epoch().deadline()).await;
        lease.released(deleted)
    });
    join_all(released).await.into_iter().collect()
}
