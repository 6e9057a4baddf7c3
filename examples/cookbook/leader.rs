//! A worker that runs in one process at a time, while others stand by.
//!
//! A leader leads as long as it works. When its process dies, another takes over after the session
//! timeout. When it loses the lock, it stops at its next await and queues up again.

use lock_recipes::{AcquireError, FencingToken, InterProcessMutex};
use tracing::warn;

/// Works each time that it is the leader, until `work` completes.
///
/// `work` should send its token with everything that it writes elsewhere. Then the store refuses a
/// leader that was paused and does not know yet that it has been replaced.
pub(crate) async fn lead<F: Future<Output = ()>>(
    leadership: &InterProcessMutex,
    mut work: impl FnMut(FencingToken) -> F,
) -> Result<(), AcquireError> {
    loop {
        let guard = leadership.acquire().await?;
        match guard.run(work(guard.fencing_token())).await {
            Ok(()) => {
                if let Err(error) = guard.release().await {
                    warn!(%error, "done, but the lock was not released as usual");
                }
                return Ok(());
            }
            Err(lost) => warn!(%lost, "not the leader any more"),
        }
    }
}
