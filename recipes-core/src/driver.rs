//! What recipes call: from an owner's acquire to its guard.
//!
//! | file | noun |
//! |---|---|
//! | `request` | an acquire as a future, with its owner and its timeout |
//! | `locks` | the locks that it acquires, and what all locks have in common |
//! | `in_turn` | acquires the locks of several sessions |
//! | `internals` | one lock of one kind, the core of every recipe |
//! | `permits` | the locks of a semaphore |
//! | `acquire_all` | acquires a set of locks of one session for an owner |
//! | `with_others` | makes its attempt, with the contenders of this process that share its node |
//! | `deadline` | how long that may take |
//! | `late` | the error of an acquire that ran out of time |
//! | `one_or_more` | a list that is not empty |
//! | `work` | work under a lock, in one call |
//! | `guard` | guards |
//! | `guard_member` | one of the locks that a guard holds |
//! | `guard_macro` | the methods that all guards have |

pub(crate) mod acquire_all;
pub(crate) mod deadline;
pub(crate) mod guard;
mod guard_macro;
pub(crate) mod guard_member;
pub(crate) mod in_turn;
pub(crate) mod internals;
pub(crate) mod late;
pub(crate) mod locks;
pub(crate) mod one_or_more;
pub(crate) mod permits;
pub(crate) mod request;
pub(crate) mod with_others;
pub(crate) mod work;
