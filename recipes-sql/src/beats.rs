//! When a session is kept alive.

use std::time::Duration;

use recipes_core::internal::log::SessionId;
use recipes_keeper::{CallError, Loss, Moment, Shared};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::debug;

use crate::STORE;
use crate::aside::{Aside, Beat};

/// Keeps a session alive. Completes when it has ended, or cannot be kept over this connection.
pub(crate) async fn keep(
    aside: &dyn Aside,
    shared: &Shared,
    id: i64,
    session_timeout: Duration,
) -> Loss {
    let mut rhythm = Rhythm::new(session_timeout, id);
    // Soon: only the answer tells how often others have to be heard.
    let mut next = Instant::now() + session_timeout / 24;
    loop {
        sleep_until(next).await;
        let (sent, sent_at) = (Moment::now(), Instant::now());
        match timeout(session_timeout / 4, aside.beat()).await {
            Ok(Ok(Some(beat))) => {
                shared.was_heard(sent);
                next = sent_at + rhythm.answered(beat);
            }
            Ok(Ok(None)) => return Loss::Session,
            Ok(Err(CallError::NotNow(error))) => {
                debug!(target: STORE, session = %SessionId(id), %error, "the server is busy");
                next = Instant::now() + session_timeout / 24;
            }
            Ok(Err(error)) => {
                debug!(target: STORE, session = %SessionId(id), ?error, "no beat");
                return Loss::Connection;
            }
            Err(_) => {
                debug!(target: STORE, session = %SessionId(id), "no answer to a beat");
                return Loss::Connection;
            }
        }
    }
}

/// The time between two beats: a sixth of the timeout; or less, if the store's clock would stand still
/// between them because another session has a shorter one, or if a session is due before that.
#[derive(Debug)]
struct Rhythm {
    regular: Duration,
    /// All sessions hear when one is due. This one comes so much later, and finds it done already.
    rank: Duration,
    soonest: Duration,
    /// How many beats came early, one after the other. What is due may not be done soon: a transaction of
    /// a user may keep a node.
    early: u32,
}

impl Rhythm {
    fn new(timeout: Duration, id: i64) -> Self {
        let rank = u32::try_from(id.rem_euclid(64)).unwrap_or_default();
        Self {
            regular: timeout / 6,
            rank: timeout / 48 * rank / 64,
            soonest: timeout / 96,
            early: 0,
        }
    }

    /// How long after an answered beat the next one is sent.
    fn answered(&mut self, Beat { step, due }: Beat) -> Duration {
        let regular = match step.is_zero() {
            true => self.regular,
            false => self.regular.min(step * 2 / 3),
        };
        let soonest = self.soonest * 2_u32.saturating_pow(self.early.min(8));
        let early = due.saturating_add(self.rank).max(soonest);
        if early < regular {
            self.early += 1;
            early
        } else {
            self.early = 0;
            regular
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_millis(9_600);

    fn beat(step: u64, due: u64) -> Beat {
        let [step, due] = [step, due].map(Duration::from_millis);
        Beat { step, due }
    }

    fn next(beats: &[Beat]) -> u128 {
        let mut rhythm = Rhythm::new(TIMEOUT, 0);
        let next: Vec<_> = beats.iter().map(|it| rhythm.answered(*it)).collect();
        next.last().unwrap().as_millis()
    }

    #[test]
    fn beat_comes_every_sixth_of_the_timeout_unless_another_session_has_a_shorter_one() {
        assert_eq!(next(&[beat(2_400, 9_000)]), 1_600);
        assert_eq!(next(&[beat(300, 9_000)]), 200);
        assert_eq!(next(&[beat(0, 9_000)]), 1_600);
    }

    #[test]
    fn beat_comes_early_if_a_session_is_due() {
        assert_eq!(next(&[beat(2_400, 700)]), 700);
        let ranks: Vec<_> = (0..64).map(|id| Rhythm::new(TIMEOUT, id)).collect();
        let mut at: Vec<_> = ranks
            .into_iter()
            .map(|mut it| it.answered(beat(2_400, 700)))
            .collect();
        at.dedup();
        assert_eq!(at.len(), 64, "all at once");
        assert!(at.iter().all(|it| it.as_millis() < 900));
    }

    #[test]
    fn what_stays_due_is_looked_at_less_and_less_often() {
        let due = [beat(2_400, 0); 5];
        assert_eq!(next(&due[..1]), 100);
        assert_eq!(next(&due[..2]), 200);
        assert_eq!(next(&due[..4]), 800);
        assert_eq!(next(&due), 1_600);
        assert_eq!(next(&[due[0], due[0], beat(2_400, 9_000), due[0]]), 100);
    }
}
