//! The commands: each opens a session or none, does its work, and prints the result.
//!
//! | file | commands |
//! |---|---|
//! | `show` | `ls`, `inspect`, `deadlocks`: they change nothing |
//! | `revoke` | `revoke`, `break`: they take locks from their holders |
//! | `run` | `run`: a command under locks |
//! | `serve` | `serve`: the live page |
//! | `man` | `man`: the manual pages |
//!
//! `strangers` names nodes that belong to no contender, for `show` and `revoke`.

pub(crate) mod man;
pub(crate) mod revoke;
#[cfg(target_os = "linux")]
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod show;
pub(crate) mod strangers;
