//! A service that ends without making others wait for its session timeout.

use std::error::Error;

use tokio::signal::unix::{SignalKind, signal};
use zookeeper_recipes::{InterProcessMutex, Session};

/// Ends on SIGTERM, as orchestrators send it, or on Ctrl-C.
pub(crate) async fn asked_to_stop() -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        pressed = tokio::signal::ctrl_c() => pressed,
    }
}

/// Does `job` under the lock again and again; asked to stop it finishes the one that it is at, and
/// closes the session. After an error the caller closes it.
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
