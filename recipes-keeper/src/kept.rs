//! A session, as its requests and its keeper see it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use recipes_core::{Connection, EndReason, Guarantee, NodesError, SessionOptions, caught};
use thiserror::Error;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::warn;

use crate::STORE;
use crate::asked::Asked;
use crate::guarded::Guarded;
use crate::owned::Owned;
use crate::patience::Patience;
use crate::queue::{Answer, Queue};
use crate::reading::Reading;
use crate::shared::Shared;
use crate::silence::Silence;
use crate::wire::{Caller, Server, Wire};

/// A contender that wants the watches of its listing wants them at once.
const SPARE_MAX: Duration = Duration::from_secs(1);

/// How many names a listing has, before there was one.
pub(crate) const NAMES_FIRST: usize = 1_000;

/// Earlier connections by which a server that has lost its last second may know a session, besides those since
/// its last answer.
const EARLIER_MAX: usize = 8;

/// Containers that have been empty for so long are removed.
pub const CONTAINER_REST: Duration = Duration::from_secs(60);
/// Enough for a handshake over TLS across an ocean.
const CONNECT_TIMEOUT_MIN: Duration = Duration::from_secs(1);

/// How a session is kept.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Where its connections come from.
    pub server: Arc<dyn Server>,
    /// How long the first try to connect may take, and to go on over the new connection. One after another that had
    /// no answer may take longer.
    pub connect_timeout: Duration,
    /// How long the server keeps it without a beat.
    pub session_timeout: Duration,
    /// Nobody held a lock before.
    pub is_new: bool,
    /// How long a container may be empty.
    pub container_rest: Duration,
    /// It only reads, and opens no session on the server.
    pub only_reads: bool,
}

impl Terms {
    /// Those of a service's options, on a server that others have used, too.
    pub fn new(server: Arc<dyn Server>, options: &SessionOptions) -> Self {
        let session_timeout = options.requested_timeout();
        Self {
            server,
            // A try that hangs must leave time for another before the session expires.
            connect_timeout: (session_timeout / 4)
                .max(CONNECT_TIMEOUT_MIN)
                .min(options.patience()),
            session_timeout,
            is_new: false,
            container_rest: CONTAINER_REST,
            only_reads: options.only_reads(),
        }
    }

    /// Connects. A panic of the client is an error, then and later.
    pub(crate) async fn open(
        &self,
        shared: &Arc<Shared>,
        number: u64,
        patience: &Patience,
    ) -> Result<Box<dyn Wire>, NodesError> {
        let opened = caught(async {
            if self.only_reads {
                let reads = self.server.read().await?;
                shared.reads_over(&reads);
                let reading = Reading::open(number, reads).await?;
                return Ok(Box::new(reading) as Box<dyn Wire>);
            }
            self.server.open(shared, number).await
        });
        let opened = async {
            opened
                .await
                .unwrap_or_else(|why| Err(NodesError::Unknown(why)))
        };
        let opened = patience
            .within(opened, |within| self.unanswered(within))
            .await;
        Ok(Box::new(Guarded(opened?)))
    }

    /// Asks which of these sessions have been silent for long. A session that does more than read asks over a
    /// connection that is opened for this.
    pub(crate) async fn silent(
        &self,
        shared: &Shared,
        sessions: &[i64],
    ) -> Result<Vec<Silence>, NodesError> {
        let asked = caught(async {
            let reads = match shared.reads() {
                Some(reads) => reads,
                None => self.server.read().await?,
            };
            Ok(reads.silent(sessions).await?)
        });
        match tokio::time::timeout(self.connect_timeout, asked).await {
            Ok(Ok(told)) => told,
            Ok(Err(panicked)) => Err(NodesError::Unknown(panicked)),
            Err(_) => Err(self.unanswered(self.connect_timeout)),
        }
    }

    /// The server did not answer within this time.
    pub(crate) fn unanswered(&self, within: Duration) -> NodesError {
        NodesError::Unknown(Arc::new(Unanswered {
            within,
            hint: self.server.silence(),
        }))
    }
}

/// Why there is no connection.
#[derive(Debug, Error)]
#[error("the server did not answer within {within:?}{hint}")]
struct Unanswered {
    within: Duration,
    hint: &'static str,
}

/// A session, as its requests and its keeper see it.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) id: i64,
    pub(crate) secret: String,
    /// The numbers of the connections by which the server may know it.
    pub(crate) known_by: Mutex<Vec<u64>>,
    /// The last of these by which it has answered that it knows it.
    pub(crate) answered: AtomicU64,
    /// The most that the store's clock advances between two calls, in microseconds.
    pub(crate) step: AtomicU64,
    /// How many names to expect in a listing: see [`listed`](Self::listed).
    pub(crate) names: AtomicUsize,
    pub(crate) terms: Terms,
    pub(crate) queue: Queue,
    /// Beats that somebody asked for, where they are apart from other requests.
    pub(crate) beats: Queue,
    pub(crate) beats_apart: bool,
    pub(crate) shared: Arc<Shared>,
    pub(crate) link: watch::Sender<Connection>,
    pub(crate) owned: Mutex<Owned>,
    pub(crate) promise: Mutex<Promise>,
    /// Why nothing that was asked has been answered since.
    pub(crate) trouble: Mutex<Option<NodesError>>,
    /// Before this, the store may keep nodes of sessions that were over when this one was opened.
    pub(crate) in_doubt_until: Option<Instant>,
}

/// What the present server promises.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Promise {
    pub(crate) guarantee: Guarantee,
    /// Before this, somebody may hold a lock of which this server does not know.
    pub(crate) grants_from: Option<Instant>,
}

impl Kept {
    /// The session as the server knows it over the connection with this number.
    pub(crate) fn caller(&self, connection: u64) -> Arc<Caller> {
        Arc::new(Caller {
            id: self.id,
            secret: self.secret.clone(),
            connection,
            timeout: self.terms.session_timeout,
            container_rest: self.terms.container_rest,
        })
    }

    /// Somebody asks for a beat.
    pub(crate) fn ask_beat(&self) -> Answer {
        match self.beats_apart {
            true => self.beats.ask(Asked::Beat),
            false => self.ask(Asked::Beat),
        }
    }

    pub(crate) fn known_by(&self) -> MutexGuard<'_, Vec<u64>> {
        self.known_by.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server has answered that it knows the session by this number. One that forgets that may know
    /// one of the last before it: that by which it had answered, or any after that.
    pub(crate) fn is_known_by(&self, number: u64) {
        let last = self.answered.swap(number, Ordering::Relaxed);
        let mut known_by = self.known_by();
        let since = known_by.iter().filter(|it| **it >= last).count();
        let old = known_by.len().saturating_sub(since.max(EARLIER_MAX + 1));
        known_by.drain(..old);
    }

    /// A call's longest listing had so many names.
    pub(crate) fn listed(&self, names: usize) {
        // One task does this.
        let expected = self.names.load(Ordering::Relaxed);
        self.names
            .store(names_to_expect(expected, names), Ordering::Relaxed);
    }

    /// How many listings may be on their way.
    pub(crate) fn listings_max(&self, wire: &dyn Wire) -> usize {
        (wire.names_max() / self.names.load(Ordering::Relaxed).max(1)).max(1)
    }

    /// The time between two beats: a sixth of the timeout, or less if the store's clock would stand
    /// still between them, because another session has a shorter one.
    pub(crate) fn beat(&self) -> Duration {
        let step = Duration::from_micros(self.step.load(Ordering::Relaxed));
        let beat = self.terms.session_timeout / 6;
        match step.is_zero() {
            true => beat,
            false => beat.min(step * 2 / 3),
        }
    }

    pub(crate) fn owned(&self) -> MutexGuard<'_, Owned> {
        self.owned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the server may have ended the session since it was last heard. A guard is valid for as
    /// long, for the same reason.
    pub(crate) fn may_have_ended(&self) -> bool {
        self.shared.unheard() >= self.terms.session_timeout / 2
    }

    pub(crate) fn promise(&self) -> Promise {
        *self.promise.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the server of the present connection promises.
    pub(crate) fn promised(&self, promise: Promise) {
        *self.promise.lock().unwrap_or_else(PoisonError::into_inner) = promise;
    }

    pub(crate) fn trouble(&self) -> MutexGuard<'_, Option<NodesError>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes watches that came with a listing, and that no contender wanted.
    pub(crate) fn give_spares_up(&self, now: Instant) {
        let Some(since) = now.checked_sub(SPARE_MAX) else {
            return;
        };
        self.with(|waiting| {
            for path in self.shared.watches.drop_spares(since) {
                drop(waiting.ask(Asked::Unwatch(path)));
            }
        });
    }

    /// Ends it for its requests and watches.
    pub(crate) fn end(&self, reason: EndReason) {
        // In one moment: whoever hears of the end from one of these finds it at the others.
        self.link.send_modify(|link| {
            *link = Connection::Ended(reason);
            self.queue.end();
            self.beats.end();
            self.shared.watches.end();
        });
    }
}

/// A shorter listing is believed by and by: the next may be of a directory with many names again.
fn names_to_expect(expected: usize, names: usize) -> usize {
    names.max(expected / 2)
}

/// The end of a quarantine that lasts for so long.
pub(crate) fn quarantined(wait: Duration) -> Option<Instant> {
    if wait.is_zero() {
        return None;
    }
    warn!(
        target: STORE,
        wait_ms = wait.as_millis(),
        "this run of the server is new, and may have forgotten who holds a lock: none is granted \
         until every holder must have noticed"
    );
    Some(Instant::now() + wait)
}

/// Until when sessions that were there before this one end if they are over. They do so within this time, at
/// the next beat of any session, which is that of this one if there is no other.
pub(crate) fn doubted(wait: Duration, session_timeout: Duration) -> Option<Instant> {
    (!wait.is_zero()).then(|| Instant::now() + wait + session_timeout / 12)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::tests::Readable;

    /// A second try must have time before the session expires.
    #[test]
    fn connection_takes_a_quarter_of_the_timeout_and_no_longer_than_the_service_waits() {
        let second = Duration::from_secs(1);
        let cases = [(12, 15, 3), (12, 2, 2), (2, 15, 1), (60, 15, 15)];
        for (timeout, patience, expected) in cases {
            let options = SessionOptions::new()
                .session_timeout(second * timeout)
                .connect_timeout(second * patience);
            let terms = Terms::new(Arc::new(Readable(true)), &options);
            assert_eq!(terms.connect_timeout, second * expected);
            assert_eq!(terms.session_timeout, second * timeout);
            assert_eq!(terms.container_rest, Duration::from_secs(60));
            assert!(!terms.is_new && !terms.only_reads);
            assert!(Terms::new(Arc::new(Readable(true)), &options.read_only(true)).only_reads);
        }
    }

    #[test]
    fn long_listings_are_expected_for_a_while_after_short_ones() {
        let after = |listings: &[usize]| {
            let listings = listings.iter();
            listings.fold(NAMES_FIRST, |expected, names| {
                names_to_expect(expected, *names)
            })
        };
        assert_eq!(after(&[10_000, 2]), 5_000);
        assert_eq!(after(&[2; 20]), 2);
        assert_eq!(after(&[2, 9_000]), 9_000);
    }
}
