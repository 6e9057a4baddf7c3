//! Several locks over processes at once, all or none, on ZooKeeper, etcd, Redis, PostgreSQL, MySQL or MariaDB: the store is that of the session.
//!
//! A [`MultiLock`] acquires its members in an order that cannot deadlock with other sets, and rolls back if it gives
//! up. Its [`MultiGuard`] is valid for as long as every member is held.
//!
//! Services depend on `lock-recipes`, which re-exports this crate and has the stores.

mod lock;
mod member;

pub use lock::{MultiGuard, MultiLock};
pub use member::Member;
