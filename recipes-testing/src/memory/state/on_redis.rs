//! The rules of a store on Redis: its clock, its sessions, its runs, who watches what.
//!
//! The names are those of `recipes-redis/src/library`, whose rules these are. All times are
//! microseconds.

use std::collections::BTreeMap;
use std::time::Duration;

use recipes_core::NodeEvent;
use recipes_keeper::{
    Caller, Clocks, Lives, Open, Opened, Resume, Resumed, Rewatch, Silence, micros,
};
use tokio::time::Instant;

use super::State;
use super::links::Links;
use crate::memory::tree::Tree;
use crate::memory::tree::node_path::NodePath;

/// Sessions that one call ends.
const SWEPT_MAX: usize = 4;

/// A session, as the server knows it.
#[derive(Clone, Debug)]
struct Known {
    secret: String,
    /// The connection over which it was opened or resumed last.
    connection: u64,
    timeout: i64,
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
    /// Who watches a node, each with the number of its last watch.
    watchers: BTreeMap<String, BTreeMap<i64, u64>>,
    /// The longest session timeout so far.
    longest: i64,
    /// The run of the server that the last session was opened or resumed on.
    run: Option<String>,
    /// The end of the quarantine, by the store's own clock.
    over: i64,
    /// When the last session is due that was silent for longer than the store's own clock says, by it.
    doubt: i64,
}

/// A store that behaves as that on Redis does.
#[derive(Debug)]
pub(crate) struct OnRedis {
    /// Of its clients' sessions.
    pub(crate) timeout: Duration,
    kept: Kept,
    /// Whether the present call has come after more time than the store's own clock counts.
    has_gap: bool,
    /// How far the server's clock is ahead of the right time.
    pub(crate) ahead: i64,
    /// Differs after each start and each promotion.
    run: u64,
    /// How many calls of a client may be on their way. As on Redis, and with odd seeds as on a database.
    pub(crate) in_flight_max: usize,
    pub(crate) links: Links,
}

/// All that a server knew at some moment.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    tree: Tree,
    number: i64,
    kept: Kept,
}

impl OnRedis {
    pub(crate) fn new(timeout: Duration, seed: u64) -> Self {
        Self {
            timeout,
            kept: Kept::default(),
            has_gap: false,
            ahead: 0,
            run: 1,
            in_flight_max: match seed % 2 {
                0 => 1024,
                _ => 1,
            },
            links: Links::default(),
        }
    }

    /// The most that the store's own clock advances between two calls: a quarter of the shortest
    /// session timeout.
    pub(crate) fn step(&self) -> i64 {
        let timeouts = self.kept.sessions.values().map(|known| known.timeout);
        timeouts.min().unwrap_or(0) / 4
    }

    /// The gap rule: what happened between two calls counts as one step at most.
    fn advance(&mut self, now: i64) {
        let step = self.step();
        let kept = &mut self.kept;
        self.has_gap = now - kept.last > step;
        kept.own += (now - kept.last).clamp(0, step);
        kept.last = now;
    }

    /// The first few sessions that were silent for their timeout. They are known no more.
    fn sweep(&mut self) -> Vec<i64> {
        let own = self.kept.own;
        let mut due: Vec<_> = self.kept.sessions.iter().collect();
        due.retain(|(_, known)| known.deadline <= own);
        due.sort_by_key(|(_, known)| known.deadline);
        due.iter().map(|(id, _)| **id).take(SWEPT_MAX).collect()
    }

    /// How long nobody may be granted a lock.
    fn quarantine(&mut self, run: &str, timeout: i64, is_known: bool) -> Duration {
        let kept = &mut self.kept;
        kept.longest = kept.longest.max(timeout);
        let is_new = match &kept.run {
            Some(last) => last != run,
            None => !is_known,
        };
        if is_new {
            kept.over = kept.own + kept.longest * 3 / 4;
        }
        kept.run = Some(run.to_owned());
        recipes_keeper::duration(kept.over - kept.own)
    }

    /// How long sessions may be kept that are over.
    fn doubt(&mut self) -> Duration {
        let kept = &mut self.kept;
        if self.has_gap {
            let deadlines = kept.sessions.values().map(|known| known.deadline);
            kept.doubt = deadlines.max().unwrap_or(kept.doubt);
        }
        recipes_keeper::duration(kept.doubt - kept.own)
    }

    /// Whether this session lives; if so, it does for another timeout.
    fn heard_from(&mut self, caller: &Caller) -> bool {
        let own = self.kept.own;
        let Some(known) = self.kept.sessions.get_mut(&caller.id) else {
            return false;
        };
        if known.connection != caller.connection || known.secret != caller.secret {
            return false;
        }
        if own + known.timeout / 24 * 23 > known.deadline {
            known.deadline = own + known.timeout;
        }
        true
    }

    /// Moves a session from one of these connections to another.
    fn move_over(&mut self, resume: &Resume) -> bool {
        let (caller, own) = (&resume.caller, self.kept.own);
        let Some(known) = self.kept.sessions.get_mut(&caller.id) else {
            return false;
        };
        let is_it = known.secret == caller.secret && resume.known_by.contains(&known.connection);
        if is_it {
            known.connection = caller.connection;
            known.deadline = own + known.timeout;
        }
        is_it
    }

    /// The run, as a client is told it.
    pub(crate) fn run(&self) -> String {
        self.run.to_string()
    }

    /// Whether nobody was here before this run.
    pub(crate) fn is_new(&self) -> bool {
        self.run == 1
    }

    pub(crate) fn sessions(&self) -> Vec<i64> {
        self.kept.sessions.keys().copied().collect()
    }

    pub(crate) fn is_known(&self, session: i64) -> bool {
        self.kept.sessions.contains_key(&session)
    }

    pub(crate) fn watch(&mut self, path: &str, session: i64, number: u64) {
        let watchers = self.kept.watchers.entry(path.to_owned()).or_default();
        watchers.insert(session, number);
    }

    pub(crate) fn is_watched_by(&self, path: &str, session: i64) -> bool {
        let watchers = self.kept.watchers.get(path);
        watchers.is_some_and(|watchers| watchers.contains_key(&session))
    }

    pub(crate) fn unwatch(&mut self, path: &str, session: i64) {
        if let Some(watchers) = self.kept.watchers.get_mut(path) {
            watchers.remove(&session);
        }
    }

    /// Watches of sessions that live.
    pub(crate) fn watch_count(&self) -> usize {
        let watchers = self.kept.watchers.values().flat_map(BTreeMap::keys);
        watchers.filter(|session| self.is_known(**session)).count()
    }

    fn forget_session(&mut self, session: i64) {
        self.kept.sessions.remove(&session);
        for watchers in self.kept.watchers.values_mut() {
            watchers.remove(&session);
        }
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

    /// What every call begins with.
    fn begin_call(&mut self) {
        let now = self.wall_us();
        let Some(redis) = &mut self.on_redis else {
            return;
        };
        redis.advance(now);
        for session in redis.sweep() {
            // Its client learns of it when it asks for something.
            self.end_session(session);
        }
    }

    /// The server ends a session: its nodes go.
    pub(crate) fn end_session(&mut self, session: i64) {
        if let Some(redis) = &mut self.on_redis {
            redis.forget_session(session);
        }
        self.delete_nodes_of(session);
    }

    /// Whether the server lets a call of a session in, which then lives for another timeout.
    pub(crate) fn is_let_in(&mut self, caller: &Caller) -> bool {
        self.begin_call();
        let redis = self.on_redis.as_mut();
        redis.is_some_and(|redis| redis.heard_from(caller))
    }

    /// Opens a session with this id.
    pub(crate) fn open_session(&mut self, id: i64, open: &Open) -> Opened {
        self.begin_call();
        self.next_number();
        let (mut quarantine, mut doubt) = (Duration::ZERO, Duration::ZERO);
        if let Some(redis) = &mut self.on_redis {
            doubt = redis.doubt();
            let timeout = micros(open.timeout);
            let known = Known {
                secret: open.secret.clone(),
                connection: 1,
                timeout,
                deadline: redis.kept.own + timeout,
            };
            redis.kept.sessions.insert(id, known);
            quarantine = redis.quarantine(&open.run, timeout, open.is_known);
        }
        Opened {
            id,
            quarantine,
            doubt,
        }
    }

    /// A client goes on with its session over another connection. `None` if it is over.
    pub(crate) fn resume_session(&mut self, resume: &Resume) -> Option<Resumed> {
        self.begin_call();
        let (caller, redis) = (&resume.caller, self.on_redis.as_mut()?);
        if !redis.move_over(resume) {
            return None;
        }
        let quarantine = redis.quarantine(&resume.run, micros(caller.timeout), false);
        let watches = resume.watches.iter();
        let news = watches.map(|watch| self.watch_again(caller.id, watch));
        let news = news.collect();
        let nodes = match resume.wants_nodes {
            true => self.tree.owned_by(caller.id),
            false => Vec::new(),
        };
        Some(Resumed {
            quarantine,
            news,
            nodes: nodes.iter().map(NodePath::to_string).collect(),
        })
    }

    /// Those of these sessions that are silent. Nobody is heard who asks that.
    pub(crate) fn silent(&self, sessions: &[i64]) -> Vec<Silence> {
        let Some(OnRedis { kept, .. }) = &self.on_redis else {
            return Vec::new();
        };
        let clocks = Clocks {
            last: kept.last,
            own: kept.own,
            now: self.wall_us(),
        };
        let silence = |id: &i64| {
            let known = kept.sessions.get(id)?;
            clocks.silence(Lives {
                id: *id,
                timeout: known.timeout,
                deadline: known.deadline,
            })
        };
        sessions.iter().filter_map(silence).collect()
    }

    fn watch_again(&mut self, session: i64, watch: &Rewatch) -> Option<NodeEvent> {
        let path = NodePath::parse(&watch.path).ok();
        let stat = path.and_then(|path| Some(self.tree.get(&path)?.stat()));
        match stat {
            Some(stat) if stat.czxid != watch.seen.czxid => Some(NodeEvent::Deleted),
            Some(stat) if stat.mzxid != watch.seen.mzxid => Some(NodeEvent::Changed),
            Some(_) => {
                if let Some(redis) = &mut self.on_redis {
                    redis.watch(&watch.path, session, watch.number);
                }
                None
            }
            None => Some(NodeEvent::Deleted),
        }
    }

    pub(crate) fn close_session(&mut self, caller: &Caller) {
        self.begin_call();
        let redis = self.on_redis.as_mut();
        if redis.is_some_and(|redis| redis.heard_from(caller)) {
            self.end_session(caller.id);
        }
    }

    /// Sends the news of a node to who watches it, once. With the node itself, its watches go.
    pub(crate) fn publish(&mut self, path: &str, event: NodeEvent) {
        let Some(redis) = &mut self.on_redis else {
            return;
        };
        for (session, number) in redis.kept.watchers.remove(path).unwrap_or_default() {
            self.send_news(session, path, number, event);
        }
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
    }
}
