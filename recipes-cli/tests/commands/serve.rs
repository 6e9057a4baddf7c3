//! `serve` on a real server, as a browser sees it.

mod bounds;
mod browser;
mod economy;
mod events;
mod failures;
mod http;
mod lifecycle;
mod mixed;
mod outage;
mod page;
use std::process::Stdio;
use std::time::Duration;

use recipes_core::{LockGuard, Owner, Session};
use recipes_multilock::{Member, MultiLock};
use serde_json::Value;
use test_rig::{Place, TestEnsemble, ZooKeeperServer, shared};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;
use tokio::time::timeout;
use zookeeper_client::Client;

use self::http::Events;
use crate::lockctl::{PATIENCE, lockctl};

/// The pause between two scans.
const EVERY: Duration = Duration::from_millis(50);

/// The server that the other tests use, too.
async fn start() -> TestEnsemble {
    shared::on_a_real_server().await
}

fn server(ensemble: &TestEnsemble) -> &Place<ZooKeeperServer, Client> {
    match ensemble {
        TestEnsemble::Real(server) => server,
        _ => panic!("no ZooKeeper"),
    }
}

fn connect(ensemble: &TestEnsemble) -> String {
    server(ensemble).connect_string()
}

/// `lockctl serve`, killed when it is dropped.
struct Served {
    process: Child,
    address: String,
}

impl Served {
    async fn start(connect: &str, arguments: &[&str]) -> Self {
        let every = format!("{}ms", EVERY.as_millis());
        Self::start_every(&every, connect, arguments).await
    }

    /// With another pause between two scans.
    async fn start_every(every: &str, connect: &str, arguments: &[&str]) -> Self {
        let all = [&["serve", "--every", every], arguments].concat();
        let mut command = lockctl(connect, &all);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let line = timeout(PATIENCE, output.lines().next_line()).await;
        let url = line.expect("no address is printed").unwrap().unwrap();
        let address = url.strip_prefix("http://").unwrap().trim_end_matches('/');
        Self {
            address: address.to_owned(),
            process,
        }
    }
}

impl Served {
    /// A new viewer, and its first event, once the store was seen: until then, a slow machine is told as trouble.
    async fn viewed(&self) -> (Events, Value) {
        loop {
            let mut events = Events::of(&self.address).await;
            let first = events.next().await.unwrap();
            if first["seen_ms"].is_u64() && first["trouble"].is_null() {
                return (events, first);
            }
            events.next().await.unwrap();
        }
    }
}

fn lock(session: &Session, path: &str) -> MultiLock {
    MultiLock::new(session, [Member::mutex(path)]).unwrap()
}

/// Owners in a ring, each of which holds one of the locks and waits for the next.
async fn deadlock<const N: usize>(
    ensemble: &TestEnsemble,
    sessions: [&Session; N],
    paths: [&str; N],
) -> Vec<LockGuard> {
    let mut held = Vec::new();
    let mut wanted = Vec::new();
    for (at, session) in sessions.into_iter().enumerate() {
        let owner = Owner::new();
        let guard = lock(session, paths[at]).acquire().owner(&owner).await;
        held.push(guard.unwrap().into());
        wanted.push((lock(session, paths[(at + 1) % N]), owner));
    }
    for (lock, owner) in wanted {
        tokio::spawn(async move { lock.acquire().owner(&owner).await.map(drop) });
    }
    for path in paths {
        ensemble.await_children(path, 2).await;
    }
    held
}
