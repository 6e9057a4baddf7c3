//! How an ensemble is set up.

use std::time::Duration;

use super::ensemble::MemoryEnsemble;
use super::faults::Faults;

/// 2024-01-01T00:00:00Z: fixed, so that two runs see the same times.
const START_MS: i64 = 1_704_067_200_000;

/// As a session on a real ensemble requests by default. An outage costs locks as it does there.
const SESSION_TIMEOUT: Duration = Duration::from_secs(12);

/// Options of a [`MemoryEnsemble`]; the defaults suit a unit test.
#[derive(Clone, Debug)]
#[must_use = "call `build` to get the ensemble"]
pub struct MemoryBuilder {
    pub(super) seed: u64,
    pub(super) session_timeout: Option<Duration>,
    pub(super) latency: Duration,
    pub(super) containers: bool,
    pub(super) stats_in_transactions: bool,
    pub(super) tells_first: bool,
    pub(super) stats_need_read: bool,
    pub(super) start_ms: i64,
    pub(super) faults: Faults,
    pub(super) on_redis: Option<Duration>,
}

impl Default for MemoryBuilder {
    fn default() -> Self {
        Self {
            seed: 0,
            session_timeout: Some(SESSION_TIMEOUT),
            latency: Duration::ZERO,
            containers: true,
            stats_in_transactions: false,
            tells_first: false,
            stats_need_read: false,
            start_ms: START_MS,
            faults: Faults::default(),
            on_redis: None,
        }
    }
}

impl MemoryBuilder {
    /// Sets the seed of all randomness: identifiers of lock nodes and [`Faults`]. Default 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets how long a session may be disconnected before it expires. Default 12 s, the default of
    /// sessions on a real ensemble.
    ///
    /// A holder loses its locks after half of it without an answer, for example because the
    /// ensemble [was stopped](MemoryEnsemble::stop). A test that moves a paused clock further than
    /// that in one step, with `tokio::time::advance`, loses them like a process that stood still.
    /// With `tokio::time::sleep` it does not, nor
    /// [without a timeout](Self::without_session_timeout).
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = Some(timeout);
        self
    }

    /// Lets no session expire by time, and so no lock: outages last as long as the test likes.
    pub fn without_session_timeout(mut self) -> Self {
        self.session_timeout = None;
        self
    }

    /// Sets how long a reply or a watch event takes after its cause. Default zero.
    pub fn latency(mut self, latency: Duration) -> Self {
        self.latency = latency;
        self
    }

    /// Sets whether the server supports container nodes, as it does since 3.5.3. Default true.
    pub fn containers(mut self, known: bool) -> Self {
        self.containers = known;
        self
    }

    /// Sets whether the reply to a transaction contains the stats of created nodes, as on servers
    /// since 3.7.2 and 3.8.2. Default false.
    pub fn stats_in_transactions(mut self, told: bool) -> Self {
        self.stats_in_transactions = told;
        self
    }

    /// Sets whether the stat of a node is refused to a session that may not read it, as on servers
    /// since 3.8.4 and 3.9.2. Default false.
    pub fn stats_need_read(mut self, needed: bool) -> Self {
        self.stats_need_read = needed;
        self
    }

    /// Sets the wall clock of the ensemble at its start, in milliseconds since the Unix epoch.
    ///
    /// Default 2024-01-01T00:00:00Z; from there it follows tokio's clock.
    pub fn start_ms(mut self, start_ms: i64) -> Self {
        self.start_ms = start_ms;
        self
    }

    /// Sets the faults that are drawn from the seed. Default none.
    pub fn faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Makes it a store as that on Redis, with this session timeout.
    ///
    /// Sessions expire by the clock of the store, which advances by at most a quarter of the timeout
    /// between two requests of any session. Their clients learn of it when they ask for something.
    /// Transaction numbers follow the server's clock, which a test may
    /// [set](MemoryEnsemble::set_clock_forward). The server may [forget](MemoryEnsemble::forget) its
    /// last writes; after that no lock is granted before every holder must have noticed.
    pub fn on_redis(mut self, session_timeout: Duration) -> Self {
        self.session_timeout = Some(session_timeout);
        self.on_redis = Some(session_timeout);
        self.containers = true;
        self.stats_in_transactions = true;
        self.tells_first = true;
        self
    }

    /// Sets whether watches report that a deleted node was the first of its siblings by the number that
    /// the ensemble had given it. Default false, as with ZooKeeper.
    #[doc(hidden)]
    pub fn tells_who_was_first(mut self, told: bool) -> Self {
        self.tells_first = told;
        self
    }

    /// Starts the ensemble.
    #[must_use]
    pub fn build(self) -> MemoryEnsemble {
        MemoryEnsemble::start(&self)
    }
}
