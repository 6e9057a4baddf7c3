//! What holds on Redis, and what a user may do wrong there.
//!
//! | file | question |
//! |---|---|
//! | `refused` | does each mistake of a user get one clear error? |
//! | `guide_rights` | have the users of the operators' guide the rights that they need, and no more? |
//! | `connection` | what survives a connection that is lost, a server that stands still? |
//! | `forgotten` | is nobody granted what a server has forgotten, and do tokens rise over it? |
//! | `back` | what if nodes and sessions that were gone are there again? |
//! | `clock` | does no session end because a clock was set? |
//! | `costs` | how many scripts does a lock take? |
//! | `evicting` | what if the server is set to evict keys? |
//! | `first` | what does a deletion tell of those ahead? |
//! | `kept` | what does the server keep of what is gone? |
//! | `late`, `watching` | what if something arrives late, what if it crosses something else? |
//! | `quarantine` | is there a way around it? |
//! | `neighbours` | what do other sessions, servers and users make of it? |
//! | `absent`, `wires` | a holder that notices nothing; connections that can be held up |
//! | `sentinel` | is the new primary found? |
//! | `cluster`, `cluster_contended` | is the primary found that has the keys, whatever becomes of them? |
//! | `socket` | a server at a Unix socket |

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stderr,
    reason = "a test that cannot go on has failed"
)]

mod absent;
mod back;
mod clock;
mod cluster;
mod cluster_contended;
mod connection;
mod costs;
mod evicting;
mod first;
mod forgotten;
#[path = "../support/guide.rs"]
mod guide;
mod guide_rights;
mod kept;
mod late;
mod neighbours;
mod quarantine;
#[path = "../support/reads.rs"]
mod reads;
mod refused;
mod sentinel;
mod socket;
mod watching;
#[path = "../support/wires.rs"]
mod wires;

use std::sync::Arc;
use std::time::Duration;

use lock_recipes::{
    Error, InterProcessMutex, LockGuard, Redis, RedisBuilder, Session, VerifyError,
};
use recipes_core::{NewNode, NodeMode, Nodes, NodesError, Store};
use test_rig::RedisServer;

const PATH: &str = "/locks/orders";
/// What must happen at once, happens in this time.
const SOON: Duration = Duration::from_secs(60);
/// What must happen, happens in this time.
const PATIENCE: Duration = Duration::from_secs(120);

/// Options for a server that was started for the test.
fn options(session_timeout: Duration) -> RedisBuilder {
    Redis::builder()
        .session_timeout(session_timeout)
        .new_server()
}

async fn session(server: &RedisServer, session_timeout: Duration) -> Session {
    let opened = options(session_timeout).connect(&server.url()).await;
    opened.unwrap()
}

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

/// So the directory is there, and the session has been used.
async fn take_and_give_back(session: &Session) {
    let guard = mutex(session).acquire().await.unwrap();
    guard.release().await.unwrap();
}

/// Polls until there is an answer.
async fn until<T>(what: &str, mut answer: impl AsyncFnMut() -> Option<T>) -> T {
    let asked = async {
        loop {
            match answer().await {
                Some(answer) => return answer,
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let answered = tokio::time::timeout(PATIENCE, asked).await;
    answered.unwrap_or_else(|_| panic!("{what}: not after {PATIENCE:?}"))
}

/// Waits until a guard is verified: what was on its way when a connection broke has no answer.
async fn verified(guard: &LockGuard) {
    let verified = until("a verified guard", async || match guard.verify().await {
        Err(Error::Verify(VerifyError::Unknown { .. })) => None,
        verified => Some(verified),
    });
    verified.await.unwrap();
}

/// Opens a session of a store. A try ends after a quarter of its timeout, which may be short for a busy machine.
async fn opened(store: &dyn Store) -> Arc<dyn Nodes> {
    let opened = until("a session", async || match store.connect().await {
        Err(NodesError::Unknown(_)) => None,
        opened => Some(opened),
    });
    opened.await.unwrap()
}

/// Cuts all connections but the operator's.
async fn cut(server: &RedisServer) {
    let cut = ["CLIENT", "KILL", "TYPE", "pubsub"];
    server.command::<i64>(&cut).await.unwrap();
}

/// Waits until so many contend.
async fn waiting(server: &RedisServer, count: usize) {
    let queue = format!("{{locks}}:c:{PATH}");
    until("contenders", async || {
        let length: usize = server.command(&["ZCARD", &queue]).await.unwrap();
        (length == count).then_some(())
    })
    .await;
}

fn node(path: &str, mode: NodeMode) -> NewNode {
    NewNode {
        path: path.to_owned(),
        data: (*b"").into(),
        mode,
    }
}

fn name(path: &str) -> &str {
    path.rsplit_once('/').unwrap().1
}
