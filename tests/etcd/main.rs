//! What holds on etcd, and what an operator may do there.
//!
//! | file | question |
//! |---|---|
//! | `rights` | has the user of the guide the rights that it needs? does each user that lacks some get one clear error? |
//! | `room` | what if the database is full, what if it is compacted? |
//! | `members` | what if a member serves no clients? |

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod members;
mod rights;
mod room;

use std::error::Error as StdError;
use std::time::Duration;

use lock_recipes::{ConnectError, Error, Etcd, EtcdBuilder, InterProcessMutex, Session};
use test_rig::EtcdServer;

const PATH: &str = "/orders/4711";
/// What must happen, happens in this time.
const PATIENCE: Duration = Duration::from_secs(300);

fn options() -> EtcdBuilder {
    Etcd::builder().session_timeout(Duration::from_secs(60))
}

async fn session(server: &EtcdServer) -> Session {
    options().connect(&server.url()).await.unwrap()
}

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

/// An error with its causes.
fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// The error of a server that will never do.
async fn refused(url: &str) -> String {
    match options().connect(url).await.unwrap_err() {
        error @ Error::Connect(ConnectError::Refused { .. }) => chain(&error),
        error => panic!("{}", chain(&error)),
    }
}

/// What `etcdctl` says to a line of the shell.
async fn shell(server: &EtcdServer, line: &str) -> String {
    let words: Vec<_> = line.split_whitespace().collect();
    server.command(&words).await.unwrap()
}
