//! How an ensemble is set up.

use std::time::Duration;

use super::ensemble::MemoryEnsemble;
use super::faults::Faults;

/// 2024-01-01T00:00:00Z: fixed, so that two runs see the same times.
const START_MS: i64 = 1_704_067_200_000;

/// Options of a [`MemoryEnsemble`]; the defaults suit a unit test.
#[derive(Clone, Debug)]
#[must_use = "call `build` to get the ensemble"]
pub struct MemoryBuilder {
    pub(super) seed: u64,
    pub(super) session_timeout: Option<Duration>,
    pub(super) latency: Duration,
    pub(super) containers: bool,
    pub(super) stats_in_transactions: bool,
    pub(super) start_ms: i64,
    pub(super) faults: Faults,
}

impl Default for MemoryBuilder {
    fn default() -> Self {
        Self {
            seed: 0,
            session_timeout: None,
            latency: Duration::ZERO,
            containers: true,
            stats_in_transactions: false,
            start_ms: START_MS,
            faults: Faults::default(),
        }
    }
}

impl MemoryBuilder {
    /// Sets the seed of all randomness: identifiers of lock nodes and [`Faults`]. Default 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Lets a session expire when it has been disconnected for this long.
    ///
    /// By default sessions never expire by time, so that a test which advances a paused clock does
    /// not lose its locks.
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.session_timeout = Some(timeout);
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

    /// Starts the ensemble.
    #[must_use]
    pub fn build(self) -> MemoryEnsemble {
        MemoryEnsemble::start(&self)
    }
}
