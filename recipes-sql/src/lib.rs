//! Locks of `lock-recipes` on databases.
//!
//! Users depend on `lock-recipes`, which re-exports what they need from here.
//!
//! | folder | noun |
//! |---|---|
//! | `mysql` | locks on MariaDB |

#[cfg(feature = "mysql")]
mod mysql;

#[cfg(feature = "mysql")]
pub use mysql::{MySql, MySqlBuilder, MySqlRefusal};

/// Target of log events about a store.
const STORE: &str = recipes_core::internal::log::STORE;
