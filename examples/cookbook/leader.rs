//! A worker of which one is at work, and others stand by.
//!
//! It leads for as long as it works. When its process dies, another takes over after the session
//! timeout; when it loses the lock, it stops at its next await, and queues up again.

use tracing::warn;
use zookeeper_recipes::{AcquireError, FencingToken, InterProcessMutex};

/// Works each time that it is the leader, until `work` says that it is done.
///
/// What `work` writes elsewhere it should send with its token, so that the store refuses a leader
/// that was paused and does not know yet that it is none.
pub(crate) async fn lead<F: Future<Output = ()>>(
    leadership: &InterProcessMutex,
    mut work: impl FnMut(FencingToken) -> F,
) -> Result<(), AcquireError> {
    loop {
        let guard = leadership.acquire().await?;
        match guard.run(work(guard.fencing_token())).await {
            Ok(()) => {
                if let Err(error) = guard.release().await {
                    warn!(%error, "done, and the next leader may have to wait");
                }
                return Ok(());
            }
            Err(lost) => warn!(%lost, "not the leader any more"),
        }
    }
}
