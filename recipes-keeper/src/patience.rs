//! How long a try to connect may take.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use recipes_core::NodesError;

/// A server that was too busy for one try is no less busy for the next, which costs it the work again. So each that
/// stays without an answer gives the next twice the time, up to four times that of the first.
const DOUBLED_MAX: u32 = 2;

/// How long the next try may take.
#[derive(Debug)]
pub(crate) struct Patience {
    first: Duration,
    /// How often it was doubled.
    doubled: AtomicU32,
}

impl Patience {
    pub(crate) fn new(first: Duration) -> Self {
        Self {
            first,
            doubled: AtomicU32::default(),
        }
    }

    /// Waits for a step of a try.
    pub(crate) async fn within<T>(
        &self,
        step: impl Future<Output = Result<T, NodesError>>,
        unanswered: impl FnOnce(Duration) -> NodesError,
    ) -> Result<T, NodesError> {
        let within = self.now();
        match tokio::time::timeout(within, step).await {
            Ok(answer) => answer,
            Err(_) => {
                self.doubled.fetch_add(1, Ordering::Relaxed);
                Err(unanswered(within))
            }
        }
    }

    /// The server has answered a whole try: the next is a first one.
    pub(crate) fn was_answered(&self) {
        self.doubled.store(0, Ordering::Relaxed);
    }

    pub(crate) fn now(&self) -> Duration {
        let doubled = self.doubled.load(Ordering::Relaxed);
        let doubled = doubled.min(DOUBLED_MAX);
        self.first.saturating_mul(1 << doubled)
    }
}

#[cfg(test)]
mod tests {
    use std::future;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_stays_without_an_answer_gives_the_next_twice_the_time_up_to_four_times_the_first()
    {
        let second = Duration::from_secs(1);
        let patience = Patience::new(second);
        for _ in 0..2 {
            for expected in [1, 2, 4, 4, 4] {
                let began = tokio::time::Instant::now();
                let step = future::pending::<Result<(), _>>();
                let unanswered = patience.within(step, |_| NodesError::Throttled).await;
                assert!(unanswered.is_err());
                assert!(
                    (second * expected..second * expected + second / 10).contains(&began.elapsed())
                );
            }
            // What is answered changes nothing by itself: a try has several steps.
            let answered = future::ready(Ok(7));
            let answer = patience.within(answered, |_| NodesError::Throttled).await;
            assert!(matches!(answer, Ok(7)));
            assert_eq!(patience.now(), second * 4);
            patience.was_answered();
        }
    }
}
