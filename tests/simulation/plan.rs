//! What one seed decides before anything happens.

use std::time::Duration;

use recipes_testing::{Faults, MemoryEnsemble};

/// Paths of mutexes and of read/write locks. They are few, so that contenders meet. In worlds that
/// [mix recipes](Plan::mixes), every other session has it the other way round.
pub(crate) const MUTEXES: [&str; 2] = ["/locks/m0", "/locks/m1"];
pub(crate) const READ_WRITES: [&str; 2] = ["/locks/r0", "/locks/r1"];

/// Whether some worlds have delayed requests, watches that are set again with delays, and
/// [`RARE_TROUBLES`].
const HAS_RARE_TROUBLES: bool = true;

/// What the worlds of a run have as their store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// An ensemble of ZooKeeper.
    Ensemble,
    /// One as on Redis, which may forget its last writes, and whose clock may be set.
    OnRedis,
}

/// The faults of a world. Each is off in half of the worlds, because a fault that happens all the
/// time hides what another one would reveal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A session is cut off and comes back.
    Disconnect,
    /// A session is cut off until the ensemble expires it, as early as a real ensemble may.
    Starve,
    /// A session is expired without warning.
    Expire,
    /// A client gives up its session before the ensemble does.
    GiveUp,
    /// The whole ensemble stops and starts again.
    Stop,
    /// An operator deletes lock nodes.
    Delete,
    /// An operator writes into lock nodes.
    Write,
    /// The connection breaks under a chosen request.
    LoseReply,
    /// A session is closed while it is used.
    Close,
    /// Empty containers are reaped.
    Reap,
    /// An operator re-creates an empty directory, and its counter returns to where it was.
    Renew,
    /// A session is cut off, and one of its nodes is deleted meanwhile.
    CutAndDelete,
    /// A holder's node is deleted, most often before it is watched.
    DeleteHeld,
    /// A leader is deposed and does not notice.
    Depose,
    /// The machine sleeps.
    Sleep,
    /// The store answers nobody for a while, and connections stay.
    Halt,
    /// From now on, connections get another session timeout, as after an operator has changed the limits
    /// of the servers.
    Limit,
}

const TROUBLES: [Trouble; 11] = [
    Trouble::Disconnect,
    Trouble::Starve,
    Trouble::Expire,
    Trouble::GiveUp,
    Trouble::Stop,
    Trouble::Delete,
    Trouble::Write,
    Trouble::LoseReply,
    Trouble::Close,
    Trouble::Reap,
    Trouble::Renew,
];

/// Further faults, each in a quarter of the worlds, because they hide much of what the others
/// reveal.
const RARE_TROUBLES: [Trouble; 4] = [
    Trouble::CutAndDelete,
    Trouble::DeleteHeld,
    Trouble::Depose,
    Trouble::Sleep,
];

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) session_timeout: Option<Duration>,
    pub(crate) latency: Duration,
    pub(crate) faults: Faults,
    pub(crate) containers: bool,
    pub(crate) stats_in_transactions: bool,
    pub(crate) sessions: usize,
    pub(crate) workers: usize,
    pub(crate) rounds: usize,
    pub(crate) paths: Vec<&'static str>,
    pub(crate) troubles: Vec<Trouble>,
    pub(crate) trouble_every_max: Duration,
    pub(crate) hold_max: Duration,
    /// How many percent of acquires and releases are dropped half-way.
    pub(crate) cut_percent: u8,
    /// Whether guards are checked at every step. A check is what ends a guard whose deadline has
    /// passed, so half of the worlds make none.
    pub(crate) asks_always: bool,
    /// How many times a node may be handed on locally.
    pub(crate) local_handoffs: u32,
    /// For how long after its grant a node takes further readers of its session in.
    pub(crate) shared_reads: Duration,
    /// Whether lock objects are kept, with their knowledge of the directories, and are sometimes
    /// acquired many times in a row.
    pub(crate) has_sprees: bool,
    /// Whether sessions use the same paths as different recipes.
    pub(crate) mixes: bool,
    pub(crate) store: Store,
    /// Whether the store forgets its last writes, and whether its clock is set.
    pub(crate) forgets: bool,
    pub(crate) sets_clock: bool,
}

impl Plan {
    pub(crate) fn new(seed: u64, store: Store) -> Self {
        let plan = Self::on_an_ensemble(seed);
        match store {
            Store::Ensemble => plan,
            Store::OnRedis => plan.on_redis(),
        }
    }

    /// What differs on Redis. There are no leaders, no lists of replicas that lag, and no client gives
    /// up its session. Calls are undone, as on a database, and answers are cut. The store ends a session
    /// when the time for it has come, not earlier.
    fn on_redis(mut self) -> Self {
        let mut random = fastrand::Rng::with_seed(self.seed ^ 0x7265_6469);
        let timeout = pick(&mut random, &[1200, 3000, 6000]);
        self.session_timeout = Some(Duration::from_millis(timeout));
        self.faults.stale_list_per_mille = 0;
        self.faults.undone_per_mille = pick(&mut random, &[0, 0, 20, 60]);
        self.faults.cut_answer_per_mille = pick(&mut random, &[0, 0, 20]);
        self.faults.mute_per_mille = pick(&mut random, &[0, 500]);
        let never = [
            Trouble::Limit,
            Trouble::Starve,
            Trouble::GiveUp,
            Trouble::Depose,
            Trouble::Sleep,
        ];
        self.troubles.retain(|it| !never.contains(it));
        self.store = Store::OnRedis;
        self.forgets = random.u8(..4) > 0;
        self.sets_clock = random.bool();
        self
    }

    fn on_an_ensemble(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let timeouts_ms = [None, Some(1200), Some(3000), Some(6000)];
        let session_timeout = pick(&mut random, &timeouts_ms).map(Duration::from_millis);
        let latency = Duration::from_millis(pick(&mut random, &[0, 0, 1, 20]));
        let mut rate = |rates: &[u16]| pick(&mut random, rates);
        let mut faults = Faults {
            lost_before_per_mille: rate(&[0, 0, 20, 60]),
            lost_after_per_mille: rate(&[0, 0, 20, 60]),
            expiry_per_mille: rate(&[0, 0, 0, 4]),
            stale_list_per_mille: rate(&[0, 300, 1000]),
            ..Faults::default()
        };
        faults.delay_max = Duration::from_millis(pick(&mut random, &[0, 0, 5, 50, 200]));
        let all = [MUTEXES, READ_WRITES].concat();
        let first = random.usize(..all.len());
        let paths = all.iter().cycle().skip(first).take(random.usize(1..=4));
        let troubles = TROUBLES.into_iter().filter(|_| random.bool());
        let mut troubles: Vec<_> = troubles
            .filter(|it| *it != Trouble::Starve || session_timeout.is_some())
            .collect();
        let mut rare = fastrand::Rng::with_seed(seed ^ 0x7261_7265);
        if HAS_RARE_TROUBLES {
            let rare_troubles = RARE_TROUBLES.into_iter().filter(|_| rare.u8(..4) == 0);
            troubles.extend(rare_troubles);
            let under_way_ms = pick(&mut rare, &[0, 0, 0, 5, 50, 200]);
            faults.request_delay_max = Duration::from_millis(under_way_ms);
            let spread_ms = pick(&mut rare, &[0, 0, 0, 5, 50]);
            faults.watches_again_delay_max = Duration::from_millis(spread_ms);
        }
        let mut plan = Self {
            seed,
            session_timeout,
            latency,
            faults,
            containers: random.bool(),
            stats_in_transactions: random.bool(),
            sessions: random.usize(1..=4),
            workers: random.usize(2..=7),
            rounds: random.usize(2..=6),
            paths: paths.copied().collect(),
            troubles,
            trouble_every_max: Duration::from_millis(pick(&mut random, &[30, 300, 1500])),
            hold_max: Duration::from_millis(pick(&mut random, &[20, 300, 2000])),
            cut_percent: pick(&mut random, &[0, 15, 40]),
            asks_always: random.bool(),
            local_handoffs: pick(&mut random, &[0, 0, 1, 3]),
            shared_reads: pick(
                &mut fastrand::Rng::with_seed(seed ^ 0x7265_6164),
                &[Duration::ZERO, Duration::from_millis(100), Duration::MAX],
            ),
            has_sprees: random.bool(),
            mixes: fastrand::Rng::with_seed(seed ^ 0x6d69_7865).u8(..6) == 0,
            store: Store::Ensemble,
            forgets: false,
            sets_clock: false,
        };
        if HAS_RARE_TROUBLES && plan.local_handoffs > 0 && rare.u8(..3) == 0 {
            plan.delete_what_is_handed_on(&mut rare);
        }
        let mut newer = fastrand::Rng::with_seed(seed ^ 0x6861_6c74);
        if plan.session_timeout.is_some() && newer.u8(..6) == 0 {
            plan.troubles.push(Trouble::Halt);
        } else if plan.session_timeout.is_some() && newer.u8(..10) == 0 {
            plan.change_limits(&mut newer);
        }
        plan
    }

    /// A node that is not watched yet is deleted, and handed on before its deletion is noticed.
    /// That takes short holds by many contenders of one session, and few other faults.
    fn delete_what_is_handed_on(&mut self, rare: &mut fastrand::Rng) {
        self.troubles = vec![Trouble::DeleteHeld];
        self.troubles
            .extend(rare.bool().then_some(Trouble::Disconnect));
        self.trouble_every_max = Duration::from_millis(pick(rare, &[30, 300]));
        self.hold_max = Duration::from_millis(pick(rare, &[20, 100, 300]));
        self.sessions = rare.usize(1..=2);
        self.workers = rare.usize(4..=7);
        self.paths.truncate(rare.usize(1..=2));
        self.faults.delay_max = Duration::from_millis(pick(rare, &[0, 0, 5]));
        self.faults.request_delay_max = Duration::ZERO;
    }

    /// Sessions reconnect under shorter timeouts, and are cut off again while they hold something.
    fn change_limits(&mut self, newer: &mut fastrand::Rng) {
        self.troubles = vec![Trouble::Limit, Trouble::Disconnect, Trouble::Disconnect];
        self.troubles.extend(newer.bool().then_some(Trouble::Stop));
        self.trouble_every_max = Duration::from_millis(pick(newer, &[300, 1500]));
        self.hold_max = Duration::from_millis(pick(newer, &[2000, 6000]));
        self.faults = Faults::default();
    }

    /// Whether a session uses a path as a read/write lock.
    pub(crate) fn reads_and_writes(&self, path: &str, session: usize) -> bool {
        let is_the_other = self.mixes && session % 2 == 1;
        READ_WRITES.contains(&path) != is_the_other
    }

    /// Whether directories are always reaped before a node is created in them.
    pub(crate) fn reaps_always(&self) -> bool {
        self.troubles.contains(&Trouble::Reap) && self.is_rough()
    }

    /// Whether faults follow each other without a pause.
    pub(crate) fn is_rough(&self) -> bool {
        self.trouble_every_max < Duration::from_millis(100)
    }

    pub(crate) fn ensemble(&self) -> MemoryEnsemble {
        let builder = MemoryEnsemble::builder()
            .seed(self.seed)
            .latency(self.latency)
            .containers(self.containers)
            .stats_in_transactions(self.stats_in_transactions)
            .faults(self.faults.clone());
        match self.session_timeout {
            Some(timeout) if self.store == Store::OnRedis => builder.on_redis(timeout).build(),
            Some(timeout) => builder.session_timeout(timeout).build(),
            None => builder.build(),
        }
    }
}

pub(crate) fn pick<T: Clone>(random: &mut fastrand::Rng, items: &[T]) -> T {
    items[random.usize(..items.len())].clone()
}

pub(crate) fn below(random: &mut fastrand::Rng, max: Duration) -> Duration {
    let max_us = u64::try_from(max.as_micros()).unwrap_or(u64::MAX);
    Duration::from_micros(random.u64(..=max_us))
}
