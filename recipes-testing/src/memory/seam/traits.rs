//! What differs between the stores that the double stands for.

use std::time::Duration;

use recipes_core::Traits;

/// 24 days: the most milliseconds that ZooKeeper's protocol can say.
const SESSION_TIMEOUT_MAX: Duration = Duration::from_millis(0x7fff_ffff);

/// As the store on ZooKeeper has it.
pub const ZOOKEEPER: Traits = Traits {
    session_timeout_min: Duration::from_millis(100),
    session_timeout_max: SESSION_TIMEOUT_MAX,
    reopens: true,
    closes: true,
    pings_rarely: false,
    watches_directories: true,
    keeps_directories: true,
    remembers_names: false,
};
