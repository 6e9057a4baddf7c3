//! Locks of `lock-recipes` on databases.
//!
//! Users depend on `lock-recipes`, which re-exports what they need from here.
//!
//! | folder | noun |
//! |---|---|
//! | `mysql` | locks on MariaDB |

#[cfg(feature = "mysql")]
mod mysql;
