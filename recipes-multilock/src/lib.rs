//! All-or-nothing sets of distributed locks on ZooKeeper.
//!
//! Users depend on `lock-recipes`, which re-exports this crate.

mod lock;
mod member;

pub use lock::{MultiGuard, MultiLock};
pub use member::Member;
