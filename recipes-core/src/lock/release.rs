//! Releases leases: one alone, or several together.

use futures::future::join_all;
use tracing::{debug, info};

use crate::error::{LostReason, ReleaseError};
use crate::lock::lease::Lease;
use crate::log::{CLEANUP, LOCK};
use crate::names::node_name;
use crate::rules::vacancy::Sole;
use crate::session::cleanup::{Deleted, Deletion};
use crate::session::epoch::Link;
use crate::sync::lock;

/// How a release ended that was called in time: the lock was held until then, as far as this
/// process can know. So what was done under it stands, and the caller need not act on this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// The lock is free: its node is gone, or was handed on within the session
    /// ([`local_handoffs`](crate::LockOptions::local_handoffs)). Or other guards of the owner keep
    /// it, or the session keeps it for its readers ([`shared_reads`](crate::LockOptions::shared_reads)).
    Released,
    /// There was no answer before the lease's deadline, as while the store or the connection is
    /// down; or a transaction that is open [keeps](crate::LockGuard::fence) the lock. The node is deleted in the background, as soon as there is a connection, or goes with
    /// the store session. Other contenders wait until then.
    Pending,
}

/// How the release of one lock or of several ended.
pub(crate) type Released = Result<ReleaseOutcome, ReleaseError>;

/// The worst of several, and the first of those: what the caller must act on goes first.
pub(crate) fn worst(releases: Vec<Released>) -> Released {
    let severity = |released: &Released| match released {
        Ok(ReleaseOutcome::Released) => 0,
        Ok(ReleaseOutcome::Pending) => 1,
        Err(ReleaseError::Refused { .. }) => 2,
        Err(ReleaseError::Lost(_)) => 3,
    };
    // Of equals, `max_by_key` takes the last.
    let worst = releases.into_iter().rev().max_by_key(severity);
    worst.unwrap_or(Ok(ReleaseOutcome::Released))
}

/// Deletes the nodes. Returns how each release ended: with an error also if the lock was lost before. What the next
/// contender of this process has is not among them.
///
/// Several nodes of one epoch share a transaction, or are deleted one by one if that is refused.
pub(crate) async fn release_all(leases: &[&Lease]) -> Vec<Released> {
    let mut releases = Vec::with_capacity(leases.len());
    for lease in leases {
        let held = lease.check();
        match lease.retire() {
            Some(deletion) => releases.push((*lease, held, deletion)),
            // The next contender of this process has the node.
            None => lease.note_release(&Ok(ReleaseOutcome::Released)),
        }
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
        let released = match held {
            Ok(()) => lease.released(deletion.finish(lease.epoch().deadline()).await),
            // Waits for nothing: the deletion continues by itself.
            Err(lost) => Err(lost.into()),
        };
        lease.note_release(&released);
        released
    });
    join_all(released).await
}

impl Lease {
    /// How the release of a lock ended that was held until then. `None` if no answer has arrived.
    fn released(&self, deleted: Option<Deleted>) -> Released {
        debug!(
            target: LOCK,
            lock = self.path(),
            node = self.node_path(),
            ?deleted,
            "released"
        );
        let lost = |reason| {
            self.state.grant.found_lost(reason);
            Err(ReleaseError::Lost(self.state.node.lost_error(reason)))
        };
        match deleted {
            Some(Deleted::ByUs) => {
                self.leave_directory();
                Ok(ReleaseOutcome::Released)
            }
            Some(Deleted::BySomebody) => lost(LostReason::NodeRemoved),
            Some(Deleted::WithSession) => match self.epoch().link() {
                Link::Ended(reason) => lost(reason),
                Link::Connected(_) | Link::Disconnected => lost(LostReason::SessionClosed),
            },
            Some(Deleted::Refused(source)) => {
                let path = self.path().to_owned();
                Err(ReleaseError::Refused { path, source })
            }
            None => {
                info!(
                    target: CLEANUP,
                    lock = self.path(),
                    node = self.node_path(),
                    "release not confirmed yet, its deletion goes on"
                );
                Ok(ReleaseOutcome::Pending)
            }
        }
    }

    /// Counts a release that was awaited.
    fn note_release(&self, released: &Released) {
        self.state.grant.release_ended(match released {
            Ok(ReleaseOutcome::Released) => "released",
            Ok(ReleaseOutcome::Pending) => "pending",
            Err(ReleaseError::Refused { .. }) => "refused",
            Err(ReleaseError::Lost(_)) => "lost",
        });
    }

    /// Records that the directory's only node is gone.
    fn leave_directory(&self) {
        let node = &self.state.node;
        let sequence = node_name::count(node_name::last_part(&node.path));
        if let Some(sequence) = sequence.filter(|_| node.was_alone) {
            let czxid = node.czxid;
            lock(&self.lock.vacancy).left(Sole { czxid, sequence });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::LostError;
    use crate::store::nodes::NodesError;

    fn lost(path: &str) -> Released {
        Err(ReleaseError::Lost(LostError {
            path: path.to_owned(),
            reason: LostReason::NodeRemoved,
        }))
    }

    fn refused(path: &str) -> Released {
        Err(ReleaseError::Refused {
            path: path.to_owned(),
            source: NodesError::NoAuth,
        })
    }

    #[test]
    fn what_the_caller_must_act_on_is_worse_than_what_goes_on_by_itself() {
        let (released, pending) = (ReleaseOutcome::Released, ReleaseOutcome::Pending);
        let from_good_to_bad = [Ok(released), Ok(pending), refused("/a"), lost("/a")];
        for (index, better) in from_good_to_bad.iter().enumerate() {
            for worse in from_good_to_bad.iter().skip(index) {
                for both in [[better, worse], [worse, better]] {
                    let told = worst(both.map(Clone::clone).to_vec());
                    assert_eq!(format!("{told:?}"), format!("{worse:?}"));
                }
            }
        }
        // A guard that leaves a hold to others deletes nothing.
        assert!(matches!(worst(Vec::new()), Ok(ReleaseOutcome::Released)));
    }

    #[test]
    fn first_of_equals_is_named() {
        let told = worst(vec![
            Ok(ReleaseOutcome::Pending),
            lost("/a"),
            refused("/b"),
            lost("/c"),
        ]);
        assert!(
            matches!(&told, Err(ReleaseError::Lost(lost)) if lost.path == "/a"),
            "{told:?}"
        );
    }
}
