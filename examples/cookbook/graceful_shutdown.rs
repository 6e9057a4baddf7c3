//! A service that stops without making other processes wait for its session timeout.

use std::error::Error;

use lock_recipes::{InterProcessMutex, Session};
use tokio::signal::unix::{SignalKind, signal};

/// Completes on SIGTERM, which orchestrators send, or on Ctrl-C.
pub(crate) async fn asked_to_stop() -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        pressed = tokio::signal::ctrl_c() => pressed,
    }
}

/// Does `job` under the lock again and again. When `stop` completes, it finishes the present job
/// and closes the session. After an error the caller closes the session.
pub(crate) async fn serve<F: Future<Output = ()>>(
    session: &Session,
    lock: &InterProcessMutex,
    stop: impl Future,
    mut job: impl FnMut() -> F,
) -> Result<(), Box<dyn Error>> {
    let mut stop = std::pin::pin!(stop);
    loop {
        let guard = tokio::select! {
            biased;
            // Dropping the acquire gives up the place in the queue.
            _ = &mut stop => break,
            guard = lock.acquire() => guard?,
        };
        guard.run(job()).await?;
        guard.release().await?;
    }
    session.close().await;
    Ok(())
}
