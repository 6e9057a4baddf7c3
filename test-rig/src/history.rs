//! What contenders in any number of processes did and saw, and whether the locks kept their
//! promises.
//!
//! A process writes each event as one line of its [`Journal`]. The lines of all processes together
//! are a [`History`]. [`History::check`] judges it in linear time, after sorting.
//!
//! | rule | what must not happen |
//! |---|---|
//! | [`Rule::Exclusion`] | two conflicting guards, such as those of two leaders, were certainly valid at one time |
//! | [`Rule::Permits`] | more permits of a semaphore were certainly valid at one time than it has |
//! | [`Rule::Told`] | a holder was notified of its loss after another was granted |
//! | [`Rule::Order`] | a grant before that of an older conflicting node |
//! | [`Rule::Token`] | a token that does not rise over conflicting grants, such as the terms of an election |
//! | [`Rule::Orphan`] | a lock node is left at the end |
//! | [`Rule::Wake`] | a live contender waits with no node ahead |
//!
//! An election is a mutex to the rules, of kind `mutex` or `latch` as its nodes are. The holders of
//! a semaphore with several permits, of kind `permit:3` for three, do not exclude each other: their
//! grants and tokens come in any order. Each of the permits that are acquired together is a grant.
//!
//! Nothing is assumed that a pause of the process could make untrue. An event is stamped *before*
//! the guard is asked whether it is valid, and written after the answer was yes. A guard never
//! becomes valid again, so it certainly was valid at that stamp. [`History::confirm`] compares all
//! of it with the server's own log, its [`TransactionLog`](crate::TransactionLog).
//!
//! # Examples
//! ```
//! use std::time::Duration;
//! use test_rig::history::{History, Malformed, Rule};
//!
//! let history = History::parse(
//!     "10 1.0.0 invoked mutex 1 /locks/orders
//!      12 1.0.0 granted 100 /locks/orders/lock-0000000000
//!      15 2.0.0 invoked mutex 2 /locks/orders
//!      17 2.0.0 granted 101 /locks/orders/lock-0000000001
//!      20 1.0.0 valid",
//! )?;
//! let violations = history.check(Duration::from_secs(10));
//! assert_eq!(violations[0].rule, Rule::Exclusion);
//! # Ok::<(), Malformed>(())
//! ```

mod ahead;
mod attempt;
mod check;
mod event;
mod highest;
mod journal;
mod oracle;
#[cfg(test)]
mod oracle_tests;
#[cfg(test)]
mod pair_tests;
mod permits;
#[cfg(test)]
mod permits_tests;
#[cfg(test)]
mod tests;
mod wake;

pub use attempt::{Attempt, Granted, History, Malformed};
pub use check::{Rule, Violation};
pub use event::{AttemptId, Event, EventError, Happening, Step};
pub use journal::{Journal, monotonic_now};
pub use oracle::Confirmed;
