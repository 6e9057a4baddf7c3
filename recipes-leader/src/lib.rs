//! Leader election over processes, on ZooKeeper, etcd, Redis, PostgreSQL, MySQL or MariaDB: the store is that of the session.
//!
//! A [`LeaderElection`] has one leader at a time, in the order in which candidates came, and a [`Leadership`] tells when
//! its term is over. A [`LeaderLatch`] campaigns in the background. On ZooKeeper they share an election with Curator's
//! `LeaderSelector` and `LeaderLatch`.
//!
//! Services depend on `lock-recipes`, which re-exports this crate and has the stores.
//!
//! | file | noun |
//! |---|---|
//! | `election` | the handle: campaigns, who leads, who waits |
//! | `leadership` | the guard of a term |
//! | `candidate` | a contender for the leadership, as others see it |
//! | `observer` | follows who leads |
//! | `latch`, `latch_watcher` | a candidate in the background; whether it leads |

mod candidate;
mod election;
mod latch;
mod latch_watcher;
mod leadership;
mod observer;

pub use candidate::Candidate;
pub use election::{ElectionLayout, LeaderElection};
pub use latch::LeaderLatch;
pub use latch_watcher::LatchWatcher;
pub use leadership::Leadership;
pub use observer::LeaderObserver;
