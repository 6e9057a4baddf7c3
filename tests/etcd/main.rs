//! What holds on etcd, and what an operator may do there.
//!
//! | file | question |
//! |---|---|
//! | `rights` | has the user of the guide the rights that it needs? does each user that lacks some get one clear error? |
//! | `room` | what if the database is full, what if it is compacted, and does the server have the numbers that say so? |
//! | `members` | what if a member serves no clients? |

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

#[path = "../support/guide.rs"]
mod guide;
mod members;
mod rights;
mod room;

use std::time::Duration;

use lock_recipes::{
    ConnectError, Error, Etcd, EtcdBuilder, InterProcessMutex, MutexGuard, Session,
};
use recipes_core::internal::log::Causes;
use test_rig::EtcdServer;
use tokio::task::JoinHandle;

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

/// One that waits for the lock, behind its holder.
async fn waiter(session: &Session) -> JoinHandle<Result<MutexGuard, Error>> {
    let waiter = tokio::spawn(mutex(session).acquire());
    while mutex(session).participants().await.unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    waiter
}

/// The error of a server that will never do.
async fn refused(url: &str) -> String {
    match options().connect(url).await.unwrap_err() {
        error @ Error::Connect(ConnectError::Refused { .. }) => Causes(&error).to_string(),
        error => panic!("{}", Causes(&error)),
    }
}

/// What `etcdctl` says to a line of the shell.
async fn shell(server: &EtcdServer, line: &str) -> String {
    let words: Vec<_> = line.split_whitespace().collect();
    server.command(&words).await.unwrap()
}
