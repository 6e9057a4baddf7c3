//! Locks of `lock-recipes` on databases.
//!
//! Users depend on `lock-recipes`, which re-exports what they need from here.
//!
//! A session has two connections: one for requests, and one *aside* for beats and news. What the database
//! keeps and does is SQL; `recipes-keeper` keeps the sessions.
//!
//! | file or folder | noun |
//! |---|---|
//! | `postgres` | locks on PostgreSQL |
//! | `mysql` | locks on MariaDB and MySQL |
//! | `aside` | the connection beside that of the requests, and what runs on it |
//! | `beats` | when it keeps the session alive |
//! | `poller` | asks for news, and tells them |
//! | `pace` | how often |
//! | `bell` | what makes it ask at once |
//! | `rings` | what the server's rings tell before it asks |
//! | `path` | a path, in two parts |
//! | `fence` | literals in the statement of `guard.fence()` |
#![cfg(any(feature = "postgres", feature = "mysql"))]

mod aside;
mod beats;
mod bell;
mod fence;
#[cfg(feature = "mysql")]
mod mysql;
mod pace;
mod path;
mod poller;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg_attr(
    not(feature = "postgres"),
    allow(dead_code, reason = "nobody rings there")
)]
mod rings;

#[cfg(feature = "mysql")]
#[doc(hidden)]
pub use mysql::variables_of_mysql;
#[cfg(feature = "mysql")]
pub use mysql::{MySql, MySqlBuilder, MySqlRefusal};
#[cfg(feature = "postgres")]
pub use postgres::{Postgres, PostgresBuilder, PostgresRefusal};

/// Target of log events about a store.
const STORE: &str = recipes_core::internal::log::STORE;
