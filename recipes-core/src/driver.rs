//! What recipes call: from an owner's acquire to its guard.
//!
//! | file | noun |
//! |---|---|
//! | `internals` | one lock of one kind, the core of every recipe |
//! | `acquire_all` | acquires a set of locks for an owner |
//! | `deadline` | how long that may take |
//! | `guard` | guards, and what all locks have in common |
//! | `guard_macro` | the methods that all guards have |

pub(crate) mod acquire_all;
pub(crate) mod deadline;
pub(crate) mod guard;
mod guard_macro;
pub(crate) mod internals;
