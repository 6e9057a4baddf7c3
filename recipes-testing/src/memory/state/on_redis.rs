//! What a store on Redis does otherwise than ZooKeeper: its clock, its sessions, its runs.
//!
//! The names are those of `recipes-redis/src/library/store.lua`, whose rules these are. All times
//! are microseconds.

use std::collections::BTreeMap;
use std::time::Duration;

use recipes_core::EndReason;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use super::State;
use crate::memory::tree::Tree;

/// Sessions that one call ends.
const SWEPT_MAX: usize = 4;

/// A session, as the server knows it.
#[derive(Clone, Debug)]
struct Known {
    /// The connection over which it was opened or resumed last.
    connection: u64,
    /// By the store's own clock.
    deadline: i64,
}

/// What a server keeps besides the tree and the last transaction number.
#[derive(Clone, Debug, Default)]
struct Kept {
    /// The server's clock at the last call.
    last: i64,
    /// The store's own clock, with which deadlines are compared.
    own: i64,
    sessions: BTreeMap<i64, Known>,
    /// The run of the server that the last session was opened or resumed on.
    run: Option<u64>,
    /// The end of the quarantine, by the store's own clock.
    over: i64,
    /// When the last session is due that was silent for longer than the store's own clock says, by it.
    doubt: i64,
}

/// A store that behaves as that on Redis does.
#[derive(Debug)]
pub(crate) struct OnRedis {
    timeout: i64,
    kept: Kept,
    /// Whether the present call has come after more time than the store's own clock counts.
    has_gap: bool,
    /// How far the server's clock is ahead of the right time.
    pub(crate) ahead: i64,
    /// Differs after each start and each promotion.
    run: u64,
    started: Instant,
}

/// All that a server knew at some moment.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    tree: Tree,
    number: i64,
    kept: Kept,
}

impl OnRedis {
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            timeout: micros(timeout),
            kept: Kept::default(),
            has_gap: false,
            ahead: 0,
            run: 1,
            started: Instant::now(),
        }
    }

    /// The gap rule: what happened between two calls counts as a quarter of a timeout at most.
    fn advance(&mut self, now: i64) {
        let kept = &mut self.kept;
        self.has_gap = now - kept.last > self.timeout / 4;
        // Without a session there is no timeout.
        if !kept.sessions.is_empty() {
            kept.own += (now - kept.last).clamp(0, self.timeout / 4);
        }
        kept.last = now;
    }

    /// The first few sessions that were silent for their timeout. They are known no more.
    fn sweep(&mut self) -> Vec<i64> {
        let own = self.kept.own;
        let mut due: Vec<_> = self.kept.sessions.iter().collect();
        due.retain(|(_, known)| known.deadline <= own);
        due.sort_by_key(|(_, known)| known.deadline);
        let due: Vec<i64> = due.iter().map(|(id, _)| **id).take(SWEPT_MAX).collect();
        for id in &due {
            self.kept.sessions.remove(id);
        }
        due
    }

    /// How long nobody may be granted a lock.
    fn quarantine(&mut self, is_known: bool) -> Duration {
        let is_new = match self.kept.run {
            Some(run) => run != self.run,
            None => !is_known,
        };
        if is_new {
            self.kept.over = self.kept.own + self.timeout * 3 / 4;
        }
        self.kept.run = Some(self.run);
        let left = u64::try_from(self.kept.over - self.kept.own).unwrap_or(0);
        Duration::from_micros(left)
    }

    /// How long sessions may be kept that are over.
    fn doubt(&mut self) -> Duration {
        let kept = &mut self.kept;
        if self.has_gap {
            let deadlines = kept.sessions.values().map(|known| known.deadline);
            kept.doubt = deadlines.max().unwrap_or(kept.doubt);
        }
        let left = u64::try_from(kept.doubt - kept.own).unwrap_or(0);
        Duration::from_micros(left)
    }

    pub(crate) fn forget_session(&mut self, session: i64) {
        self.kept.sessions.remove(&session);
    }
}

impl State {
    /// The server's clock.
    pub(crate) fn wall_us(&self) -> i64 {
        let elapsed = Instant::now().saturating_duration_since(self.start);
        let ahead = self.on_redis.as_ref().map_or(0, |redis| redis.ahead);
        self.start_ms * 1000 + micros(elapsed) + ahead
    }

    /// The number of the next transaction. On Redis it follows the clock.
    pub(crate) fn next_number(&mut self) -> i64 {
        let clock = match &self.on_redis {
            Some(_) => self.wall_us(),
            None => 0,
        };
        self.zxid = (self.zxid + 1).max(clock);
        self.zxid
    }

    /// What every call begins with. Nothing on ZooKeeper.
    fn begin_call(&mut self) {
        let now = self.wall_us();
        let Some(redis) = &mut self.on_redis else {
            return;
        };
        redis.advance(now);
        for session in redis.sweep() {
            // Its client learns of it when it asks for something.
            self.remove(session);
            self.forget_if_done(session);
        }
    }

    /// Whether the server lets a request of a session in, which then lives for another timeout.
    /// Always on ZooKeeper.
    pub(crate) fn is_let_in(&mut self, session: i64) -> bool {
        self.begin_call();
        let Some(redis) = &mut self.on_redis else {
            return true;
        };
        let connection = self.sessions.get(&session).map(|record| record.wire);
        let (own, timeout) = (redis.kept.own, redis.timeout);
        let Some(known) = redis.kept.sessions.get_mut(&session) else {
            return false;
        };
        if Some(known.connection) != connection {
            return false;
        }
        if own + timeout / 24 * 23 > known.deadline {
            known.deadline = own + timeout;
        }
        true
    }

    /// A client finds that its session has ended.
    pub(crate) fn find_ended(&mut self, session: i64) {
        self.end_client(session, EndReason::Expired);
        self.forget_if_done(session);
    }

    /// Registers a new session. `is_first`: its client has had none before.
    pub(crate) fn register(&mut self, session: i64, is_first: bool) {
        self.begin_call();
        let Some(redis) = &mut self.on_redis else {
            return;
        };
        let doubt = redis.doubt();
        let deadline = redis.kept.own + redis.timeout;
        let connection = 1;
        let known = Known {
            connection,
            deadline,
        };
        redis.kept.sessions.insert(session, known);
        // As a service whose builder says so until the store is there for the first time.
        let is_new = redis.run == 1;
        let is_old = micros(redis.started.elapsed()) > redis.timeout + 1_000_000;
        let wait = redis.quarantine(is_first && (is_new || is_old));
        let (run, every) = (redis.run, redis.timeout / 6);
        // The next beat ends them.
        let slack = Duration::from_micros(u64::try_from(redis.timeout / 12).unwrap_or(0));
        if let Some(record) = self.sessions.get_mut(&session) {
            record.in_doubt_until = (!doubt.is_zero()).then(|| Instant::now() + doubt + slack);
            record.wire = connection;
            record.owned.run = run;
            record.grants_from = quarantined(wait);
        }
        self.beat_every(session, every);
    }

    /// A client goes on with its session over a new connection. Returns whether that lives.
    pub(crate) fn resume(&mut self, session: i64) -> bool {
        self.begin_call();
        let (Some(redis), Some(record)) = (&mut self.on_redis, self.sessions.get_mut(&session))
        else {
            return true;
        };
        let deadline = redis.kept.own + redis.timeout;
        let sessions = &mut redis.kept.sessions;
        let known = sessions.get_mut(&session);
        // It may know an earlier connection, if it has forgotten the last.
        let Some(known) = known.filter(|known| known.connection <= record.wire) else {
            self.find_ended(session);
            return false;
        };
        record.wire += 1;
        *known = Known {
            connection: record.wire,
            deadline,
        };
        record.grants_from = quarantined(redis.quarantine(true));
        let may_have_ended = micros(record.heard.elapsed()) >= redis.timeout / 2;
        record.heard = Instant::now();
        if record.owned.run != redis.run {
            record.owned.run = redis.run;
            self.delete_what_is_back(session, may_have_ended);
        }
        true
    }

    /// A client without anything to ask sends a beat, as long as its session lives for it.
    fn beat_every(&self, session: i64, every: i64) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let shared = self.shared.clone();
        let every = Duration::from_micros(u64::try_from(every).unwrap_or(0));
        runtime.spawn(async move {
            loop {
                sleep(every).await;
                let Some(shared) = shared.upgrade() else {
                    return;
                };
                if !shared.with(|state| state.beat(session)) {
                    return;
                }
            }
        });
    }

    fn beat(&mut self, session: i64) -> bool {
        if self.is_connected(session) {
            self.send_beat(session);
        }
        let record = self.sessions.get(&session);
        record.is_some_and(|record| record.ended.is_none())
    }

    /// What the server knows now.
    pub(crate) fn past(&self) -> Past {
        let kept = self.on_redis.as_ref().map(|redis| redis.kept.clone());
        Past {
            tree: self.tree.clone(),
            number: self.zxid,
            kept: kept.unwrap_or_default(),
        }
    }

    /// The server is stopped. It, or one that takes its place, has what was known in the past, and
    /// begins another run.
    pub(crate) fn fall_back(&mut self, past: Past) {
        self.stop();
        let Some(redis) = &mut self.on_redis else {
            return;
        };
        self.tree = past.tree;
        self.zxid = past.number;
        redis.kept = past.kept;
        redis.run += 1;
        redis.started = Instant::now();
        for (session, record) in &mut self.sessions {
            record.gone = !redis.kept.sessions.contains_key(session);
        }
        let sessions: Vec<i64> = self.sessions.keys().copied().collect();
        for session in sessions {
            self.forget_if_done(session);
        }
    }
}

fn quarantined(wait: Duration) -> Option<Instant> {
    (!wait.is_zero()).then(|| Instant::now() + wait)
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
