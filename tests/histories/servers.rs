//! The servers of a store, as the run sees them.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use fastrand::Rng;
use test_rig::TransactionLog;

use crate::trouble::Trouble;

/// How long after the end the nodes of dead processes may stay: until their sessions have expired.
pub(crate) const LEFT_MAX: Duration = Duration::from_secs(60);

/// How a fault went.
pub(crate) type Done<T = ()> = Result<T, Box<dyn Error>>;

pub(crate) trait Servers {
    /// Where a process of contenders connects.
    fn address(&self, worker: u32) -> String;

    /// Creates these nodes, to which contenders write.
    async fn create(&self, paths: &[String]);

    /// Comes before each fault, and before a process is halted for it.
    async fn prepare(&self, _trouble: Trouble) -> Done {
        Ok(())
    }

    /// Brings a fault that hits servers or connections. All servers serve again when this returns.
    async fn bring(&self, trouble: Trouble, random: &mut Rng) -> Done;

    /// The session of a random node of these locks.
    async fn somebody(&self, locks: &[String], random: &mut Rng) -> Option<i64>;

    /// Ends a session from outside.
    async fn expire(&self, session: i64) -> Done;

    /// The nodes of these locks that are left when sessions of dead processes have expired.
    async fn left(&self, locks: &[String]) -> Vec<String>;

    /// What the servers did, if they write it down in order.
    fn log(&self) -> Option<TransactionLog>;

    /// The sessions of all nodes that there ever were, if there is no log and sessions are ended from outside.
    async fn sessions(&self) -> BTreeMap<String, i64> {
        BTreeMap::new()
    }
}
