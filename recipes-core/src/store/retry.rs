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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_to_half_a_second() {
        let mut backoff = Backoff::default();
        let mut pauses = Vec::new();
        for _ in 0..10 {
            let began = Instant::now();
            backoff.wait().await;
            pauses.push(began.elapsed().as_millis());
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320, 500, 500, 500]);
    }

    #[tokio::test(start_paused = true)]
    async fn request_is_sent_again_with_pauses_until_its_answer_lasts() {
        let answers = [Err(NodesError::Throttled), Err(unknown()), Ok(7)];
        let mut answers = answers.into_iter();
        let began = Instant::now();
        let mut send = || std::future::ready(answers.next().expect("it lasts")).boxed();
        let answer = persist(&mut send).await;
        assert!(matches!(answer, Ok(7)), "{answer:?}");
        assert_eq!(began.elapsed().as_millis(), 15);
        let mut refused = || std::future::ready(Err::<(), _>(NodesError::NoAuth)).boxed();
        let answer = persist(&mut refused).await;
        assert!(matches!(answer, Err(NodesError::NoAuth)), "{answer:?}");
    }

    fn unknown() -> NodesError {
        NodesError::Unknown(std::sync::Arc::new(std::io::Error::other("lost")))
    }
}
