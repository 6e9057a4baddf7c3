//! The command line on real servers, as a shell, a script and a browser see it.
//!
//! | file | question it answers |
//! |---|---|
//! | `run` | does a command run only under the lock, and does its end, or the lock's, reach the other? |
//! | `show` | are `ls`, `inspect`, `deadlocks`, `revoke` and `break` right, and safe to read? |
//! | `stores` | does every command work on a URL of another store? |
//! | `schema` | does what is printed create what services need? |
//! | `serve` | does the page show what is, and does it cost the servers little? |
//! | `pages` | are manual pages and completions written? |
//! | `tls` | are servers that encrypt reached, and only those that are trusted? |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed"
)]

mod lockctl;
mod pages;
#[cfg(target_os = "linux")]
mod run;
mod schema;
mod serve;
mod show;
mod stores;
#[cfg(feature = "tls")]
mod tls;
