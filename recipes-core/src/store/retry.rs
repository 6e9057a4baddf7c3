//! Retries of requests that have no lasting answer.

use std::time::Duration;

use futures::FutureExt;
use futures::future::poll_fn;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep_until};

use crate::store::nodes::{NodesError, Reply};

/// Pause after the first failure: enough that a flapping connection does not spin.
const PAUSE_MIN: Duration = Duration::from_millis(5);
/// Longest pause: what a waiter may add to the recovery time of the store.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Growing pauses between tries.
#[doc(hidden)]
#[derive(Debug)]
pub struct Backoff {
    pause: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { pause: PAUSE_MIN }
    }
}

impl Backoff {
    /// Pauses for longer each time.
    pub async fn wait(&mut self) {
        let over = Instant::now() + self.pause;
        let mut timer = None;
        poll_fn(|cx| {
            // A shared attempt may go on in another runtime than it began in, and the timers of the
            // first may no longer run.
            let here = Handle::current().id();
            let (_, timer) = match timer.take().filter(|(runtime, _)| *runtime == here) {
                Some(kept) => timer.insert(kept),
                // Boxed, because few of the many requests that could be repeated ever are.
                None => timer.insert((here, Box::pin(sleep_until(over)))),
            };
            timer.poll_unpin(cx)
        })
        .await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

/// Sends a request that is harmless to repeat until it has a lasting answer.
///
/// It ends when the store answers. A caller that also waits for the end of the session drops it
/// then.
pub(crate) async fn persist<'a, T>(
    mut send: impl FnMut() -> Reply<'a, T>,
) -> Result<T, NodesError> {
    let mut backoff = Backoff::default();
    loop {
        match send().await {
            Err(error) if error.is_transient() => backoff.wait().await,
            answer => return answer,
        }
    }
}
