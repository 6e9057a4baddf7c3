//! `run` connects and waits for its locks, within the limit of `--timeout`.

use std::pin::pin;
use std::time::Duration;

use futures::future::join;
use recipes_core::{AcquireError, ConnectError, Error, LockGuard, Session, SessionHealth};
use tokio::time::{Instant, sleep, timeout};

use crate::args::StoreArguments;
use crate::exit::{Failure, code, warn};
use crate::session::{self, NodeOptions, Purpose};

use super::{Lock, Wanted, whom};

/// A store that is up answers within this time.
const ANSWER_MAX: Duration = Duration::from_secs(1);
/// After this time, a line says what lockctl waits for: the store, or whoever has the lock.
pub(super) const SILENT_MAX: Duration = Duration::from_secs(3);

/// The time that `--timeout` leaves.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeLimit {
    timeout: Option<Duration>,
    started: Instant,
}

impl TimeLimit {
    pub(crate) fn starting_now(timeout: Option<Duration>) -> Self {
        let started = Instant::now();
        Self { timeout, started }
    }

    /// A timeout of zero requires a free lock, but not a store that answers in no time.
    fn of_connecting(&self, connect_timeout: Duration) -> Duration {
        let timeout = self.timeout.filter(|it| !it.is_zero());
        timeout.map_or(connect_timeout, |it| it.min(connect_timeout))
    }

    fn of_waiting(&self, now: Instant) -> Option<Duration> {
        let passed = now.saturating_duration_since(self.started);
        self.timeout.map(|timeout| match timeout.is_zero() {
            true => timeout,
            // A slow connection must not make it miss a free lock.
            false => timeout.saturating_sub(passed).max(ANSWER_MAX.min(timeout)),
        })
    }
}

/// Opens the session.
pub(super) async fn connect(
    arguments: &StoreArguments,
    nodes: NodeOptions,
    limit: TimeLimit,
) -> Result<Session, Failure> {
    let waited = limit.of_connecting(arguments.connect_timeout);
    let connecting = session::connect(arguments, Purpose::Creates(&nodes));
    let address = arguments.address();
    let silence = async {
        sleep(SILENT_MAX).await;
        warn(&format!("no server of {address:?} has answered yet"));
    };
    if let Ok(connected) = beside(silence, timeout(waited, connecting)).await {
        return connected;
    }
    let error = ConnectError::TimedOut {
        address: address.clone(),
        waited,
        source: session::store(arguments)?.diagnose().await,
    };
    Err(session::hinted(error.into(), arguments))
}

/// Waits for the locks. If the time was too short, the error says whether others held them or the
/// store did not answer.
pub(super) async fn acquire(
    session: &Session,
    lock: &Lock,
    wanted: &Wanted<'_>,
) -> Result<LockGuard, Failure> {
    let limit = wanted.limit;
    let acquire = lock.acquire().owner(wanted.nesting.owner());
    let acquired = match limit.of_waiting(Instant::now()) {
        Some(timeout) => acquire.timeout(timeout),
        None => acquire,
    };
    let news = async {
        join(first_outage(session), whom::report(session, wanted)).await;
    };
    let acquired = beside(news, acquired).await;
    let is_transient = matches!(&acquired, Err(error) if error.is_transient());
    match acquired {
        Ok(guard) => Ok(guard),
        Err(Error::Acquire(AcquireError::TimedOut {
            path,
            waited,
            reason,
            source,
        })) => {
            if is_transient || !is_answered(session, &path).await {
                let message = format!("no answer from the store; lock {path:?} is not acquired");
                return Err(Failure::new(code::NO_CONNECTION, message));
            }
            let waited = limit.timeout.unwrap_or(waited);
            let late = AcquireError::TimedOut {
                path,
                waited,
                reason,
                source,
            };
            Err(Error::from(late).into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Polls `work` until `other` is done.
async fn beside<T>(other: impl Future<Output = ()>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = other => {}
    }
    work.await
}

/// Warns the first time that the connection stays down.
async fn first_outage(session: &Session) {
    let mut watcher = session.watch_health();
    let mut health = session.health();
    loop {
        let is_outage = health != SessionHealth::Connected;
        let patience = if is_outage { SILENT_MAX } else { Duration::MAX };
        match timeout(patience, watcher.changed()).await {
            Ok(changed) => health = changed,
            Err(_) => return warn("no connection to the store; the wait for it goes on"),
        }
    }
}

/// Whether the store answers. The session notices only after a while that a server is frozen, and
/// until then the error names the contender ahead.
async fn is_answered(session: &Session, path: &str) -> bool {
    match timeout(ANSWER_MAX, session.read(path)).await {
        Ok(Ok(_)) => true,
        // A refusal is an answer.
        Ok(Err(error)) => Failure::from(error).code != code::NO_CONNECTION,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::TimeLimit;

    fn limit(timeout_ms: u64) -> TimeLimit {
        TimeLimit::starting_now(Some(Duration::from_millis(timeout_ms)))
    }

    #[test]
    fn one_limit_is_for_connecting_and_for_waiting() {
        let connect_timeout = Duration::from_secs(15);
        let limit = limit(2000);
        assert_eq!(limit.of_connecting(connect_timeout).as_millis(), 2000);
        let left = |passed| {
            let now = limit.started + Duration::from_millis(passed);
            limit.of_waiting(now).unwrap().as_millis()
        };
        assert_eq!(
            [left(0), left(500), left(2000), left(9000)],
            [2000, 1500, 1000, 1000]
        );
        let long = self::limit(60_000);
        assert_eq!(long.of_connecting(connect_timeout), connect_timeout);
    }

    #[test]
    fn free_locks_only_and_any_time_at_all_are_no_limits_for_connecting() {
        let connect_timeout = Duration::from_secs(15);
        let free_only = limit(0);
        assert_eq!(free_only.of_connecting(connect_timeout), connect_timeout);
        let later = free_only.started + connect_timeout;
        assert_eq!(free_only.of_waiting(later), Some(Duration::ZERO));
        let unlimited = TimeLimit::starting_now(None);
        assert_eq!(unlimited.of_connecting(connect_timeout), connect_timeout);
        assert_eq!(unlimited.of_waiting(later), None);
    }
}
