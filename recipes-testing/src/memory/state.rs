//! Everything that an ensemble knows, behind one mutex, and how it changes.
//!
//! | file | noun |
//! |---|---|
//! | `shared` | the mutex, and what all handles share |
//! | `request` | requests and their answers, as values |
//! | `arrivals`, `apply`, `flights` | a request on its way to the server, what it does, its reply |
//! | `session`, `sessions` | one session; how sessions begin, break and end |
//! | `watches` | watches, set and fired |
//! | `deposed` | a leader that was deposed and has not noticed |
//! | `on_redis`, `calls` | a store on Redis: its rules, and what calls do |
//! | `link`, `links` | the connections of one of its clients, and of all |

mod apply;
mod arrivals;
pub(super) mod calls;
mod deposed;
mod flights;
pub(super) mod link;
pub(super) mod links;
pub(super) mod on_redis;
pub(super) mod request;
mod session;
mod sessions;
pub(super) mod shared;
pub(super) mod watches;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use recipes_core::{NodeEvent, NodesError, Reliant};
use tokio::time::Instant;

use super::builder::MemoryBuilder;
use super::faults::{Ambush, Faults};
use super::random::Random;
use super::tree::Tree;
use super::tree::node_path::is_within;
use super::tree::transaction::Transaction;
use arrivals::Arrivals;
use deposed::Deposed;
use on_redis::OnRedis;
use request::{Operation, Request};
use session::{Delivery, SessionRecord};
use shared::Shared;
use watches::{Fired, Watches};

/// A leader writes its term into the upper half of a transaction id.
pub(crate) const TERM: i64 = 1 << 32;

/// Everything that an ensemble knows.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) shared: Weak<Shared>,
    pub(crate) tree: Tree,
    pub(crate) watches: Watches,
    pub(crate) sessions: BTreeMap<i64, SessionRecord>,
    pub(crate) arrivals: Arrivals,
    /// The previous leader, until it notices that it was deposed.
    pub(crate) deposed: Option<Deposed>,
    /// If the store behaves as that on Redis.
    pub(crate) on_redis: Option<OnRedis>,
    pub(crate) last_session: i64,
    pub(crate) zxid: i64,
    pub(crate) stopped: bool,
    /// The servers stand still.
    pub(crate) paused: bool,
    pub(crate) session_timeout: Option<Duration>,
    pub(crate) containers: bool,
    pub(crate) stats_in_transactions: bool,
    pub(crate) stats_need_read: bool,
    pub(crate) random: Random,
    pub(crate) faults: Faults,
    pub(crate) ambushes: Vec<Ambush>,
    pub(crate) denied: Vec<(String, Operation)>,
    pub(crate) requests: Vec<Request>,
    /// Wakers to wake after the mutex is released.
    pub(crate) wakers: Vec<Waker>,
    /// Who is to know that its session has less time.
    pub(crate) shortened: Vec<(Arc<dyn Reliant>, Duration)>,
    /// Wakers to drop after the mutex is released: the last waker of a task may drop its futures.
    pub(crate) retired: Vec<Waker>,
    /// How long the machine of the clients has slept.
    pub(crate) suspended: Duration,
    latency: Duration,
    start: Instant,
    start_ms: i64,
}

impl State {
    pub(crate) fn new(options: &MemoryBuilder, shared: Weak<Shared>) -> Self {
        Self {
            shared,
            tree: Tree::new(options.start_ms, options.tells_first),
            watches: Watches::default(),
            sessions: BTreeMap::new(),
            arrivals: Arrivals::default(),
            deposed: None,
            on_redis: options
                .on_redis
                .map(|timeout| OnRedis::new(timeout, options.seed)),
            last_session: first_session(options.start_ms),
            zxid: TERM,
            stopped: false,
            paused: false,
            session_timeout: options.session_timeout,
            containers: options.containers,
            stats_in_transactions: options.stats_in_transactions,
            stats_need_read: options.stats_need_read,
            random: Random::new(options.seed),
            faults: options.faults.clone(),
            ambushes: Vec::new(),
            denied: Vec::new(),
            requests: Vec::new(),
            wakers: Vec::new(),
            shortened: Vec::new(),
            retired: Vec::new(),
            suspended: Duration::ZERO,
            latency: options.latency,
            start: Instant::now(),
            start_ms: options.start_ms,
        }
    }

    /// Carries out a transaction entirely or not at all. A refused one uses up its number, because
    /// the leader assigns the number before it checks the request.
    pub(crate) fn transact<T, E>(
        &mut self,
        change: impl FnOnce(&mut Tree, &mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut transaction = Transaction::new(self.next_number(), self.now_ms());
        match change(&mut self.tree, &mut transaction) {
            Ok(result) => {
                self.tree.commit(transaction.changes);
                for (path, event) in transaction.events {
                    self.tell_watches(&path, event);
                }
                Ok(result)
            }
            Err(error) => {
                self.tree.roll_back(transaction);
                Err(error)
            }
        }
    }

    /// A new leader starts a new term.
    pub(crate) fn start_term(&mut self) {
        self.zxid = (self.zxid / TERM + 1) * TERM;
    }

    /// Sends an event to a watch, after the replies that its session was sent before.
    pub(crate) fn fire(&mut self, number: u64, session: i64, event: NodeEvent) {
        self.note_applied(session, self.zxid_of(session));
        let delivery = self.next_delivery(session);
        self.wakers
            .extend(self.watches.fire(number, Fired { event, delivery }));
    }

    /// Sends an event to a watch that was set again, some time after the previous one.
    pub(crate) fn fire_again(&mut self, number: u64, session: i64, event: NodeEvent) {
        self.note_applied(session, self.zxid_of(session));
        let pause = self.faults.watches_again_delay(&mut self.random);
        let delivery = self.next_delivery_after(session, pause);
        self.wakers
            .extend(self.watches.fire(number, Fired { event, delivery }));
    }

    /// Schedules a reply or event for a session. It never arrives before the one sent last.
    pub(crate) fn next_delivery(&mut self, session: i64) -> Delivery {
        self.next_delivery_after(session, Duration::ZERO)
    }

    /// Schedules a reply or event a pause after the one sent last.
    fn next_delivery_after(&mut self, session: i64, pause: Duration) -> Delivery {
        let delay = self
            .latency
            .saturating_add(self.faults.delay(&mut self.random));
        let Some(record) = self.sessions.get_mut(&session) else {
            return Delivery::default();
        };
        if !delay.is_zero() || record.last_due.is_some() {
            record.last_due = record.last_due.max(Instant::now().checked_add(delay));
        }
        if !pause.is_zero() {
            let last = record.last_due.unwrap_or_else(Instant::now);
            record.last_due = last.max(Instant::now()).checked_add(pause);
        }
        Delivery {
            due: record.last_due,
            zxid: record.applied,
        }
    }

    /// Notes that the replica of a session has applied a transaction.
    pub(crate) fn note_applied(&mut self, session: i64, zxid: i64) {
        if let Some(record) = self.sessions.get_mut(&session) {
            record.applied = record.applied.max(zxid);
        }
    }

    /// Notes that the client of a session has been notified of a transaction.
    pub(crate) fn note_known(&mut self, session: i64, zxid: i64) {
        if let Some(record) = self.sessions.get_mut(&session) {
            record.known = record.known.max(zxid);
        }
    }

    /// Hands out the news that are due.
    pub(crate) fn deliver(&mut self) {
        if let Some(redis) = &mut self.on_redis {
            redis.links.deliver(Instant::now());
        }
    }

    /// Watches of all sessions that are set and have not fired.
    pub(crate) fn watch_count(&self) -> usize {
        match &self.on_redis {
            Some(redis) => redis.watch_count(),
            None => self.watches.armed_count(),
        }
    }

    pub(crate) fn is_connected(&self, session: i64) -> bool {
        let live = |record: &SessionRecord| record.ended.is_none() && !record.cut;
        !self.stopped && self.sessions.get(&session).is_some_and(live)
    }

    pub(crate) fn refuse_denied(&self, path: &str, kind: Operation) -> Result<(), NodesError> {
        let denies =
            |(prefix, denied): &(String, Operation)| *denied == kind && is_within(path, prefix);
        if self.denied.iter().any(denies) {
            Err(NodesError::NoAuth)
        } else {
            Ok(())
        }
    }

    // A session that is disconnected, or connected to the deposed leader, learns of the change when
    // it sets its watches again.
    fn tell_watches(&mut self, path: &str, event: NodeEvent) {
        self.publish(path, event);
        for (number, session) in self.watches.armed_on(path) {
            if self.is_connected(session) && !self.is_behind(session) {
                self.fire(number, session, event);
            }
        }
    }

    pub(crate) fn now_ms(&self) -> i64 {
        let elapsed = Instant::now().saturating_duration_since(self.start);
        self.start_ms
            .saturating_add(i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX))
    }
}

/// Ids start like those of a real server: its number in the upper byte, then the time.
fn first_session(start_ms: i64) -> i64 {
    const SERVER: u64 = 1;
    let time = (u64::try_from(start_ms).unwrap_or(0) << 24) >> 8;
    i64::try_from(SERVER << 56 | time).unwrap_or(i64::MAX / 2)
}
