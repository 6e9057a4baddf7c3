//! A worker that runs in one process at a time, while others stand by.
//!
//! A leader leads as long as it works. When its process dies, another takes over after the session
//! timeout. When it loses its term, it stops at its next await and campaigns again.

use lock_recipes::{Error, FencingToken, LeaderElection};
use tracing::warn;

/// Works each time that it is the leader, until `work` completes.
///
/// `work` should send the number of its term with everything that it writes elsewhere. Then the
/// store refuses a leader that was paused and does not know yet that it has been replaced.
pub(crate) async fn lead<F: Future<Output = ()>>(
    election: &LeaderElection,
    mut work: impl FnMut(FencingToken) -> F,
) -> Result<(), Error> {
    loop {
        let term = election.campaign().await?;
        match term.run(work(term.fencing_token())).await {
            Ok(()) => {
                if let Err(error) = term.resign().await {
                    warn!(%error, "done, but did not resign as usual");
                }
                return Ok(());
            }
            Err(lost) => warn!(%lost, "not the leader any more"),
        }
    }
}
