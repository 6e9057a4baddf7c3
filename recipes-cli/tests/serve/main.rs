//! `serve` on a real server, as a browser sees it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on has failed"
)]

mod browser;
mod events;
mod failures;
mod http;
mod lifecycle;
mod mixed;
mod page;
#[path = "../common/zklock.rs"]
mod zklock;

use std::process::Stdio;
use std::time::Duration;

use recipes_core::{LockGuard, Owner, Session};
use recipes_multilock::{Member, MultiLock};
use recipes_testing::{TestEnsemble, ZooKeeperServer};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;
use tokio::time::timeout;

use zklock::{PATIENCE, zklock};

/// Between two scans.
const EVERY: Duration = Duration::from_millis(50);

async fn start() -> TestEnsemble {
    TestEnsemble::Real(ZooKeeperServer::start().await.unwrap())
}

fn server(ensemble: &TestEnsemble) -> &ZooKeeperServer {
    match ensemble {
        TestEnsemble::Real(server) => server,
        TestEnsemble::Memory(_) => panic!("a double has no connect string"),
    }
}

fn connect(ensemble: &TestEnsemble) -> String {
    server(ensemble).connect_string()
}

/// `zklock serve`, killed when it is dropped.
struct Served {
    process: Child,
    /// What it listens on.
    address: String,
}

impl Served {
    async fn start(connect: &str, arguments: &[&str]) -> Self {
        let every = format!("{}ms", EVERY.as_millis());
        let all = [&["serve", "--every", &every], arguments].concat();
        let mut command = zklock(connect, &all);
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

fn lock(session: &Session, path: &str) -> MultiLock {
    MultiLock::new(session, [Member::mutex(path)]).unwrap()
}

/// Two owners, each of whom holds one of the locks and waits for the other.
async fn deadlock(
    ensemble: &TestEnsemble,
    sessions: [&Session; 2],
    paths: [&str; 2],
) -> [LockGuard; 2] {
    let owners = [Owner::new(), Owner::new()];
    let locks = |at: usize| paths.map(|path| lock(sessions[at], path));
    let ([one_has, one_wants], [other_wants, other_has]) = (locks(0), locks(1));
    let held = [
        one_has.acquire_as(&owners[0]).await.unwrap().into(),
        other_has.acquire_as(&owners[1]).await.unwrap().into(),
    ];
    let [one, other] = owners;
    tokio::spawn(async move { one_wants.acquire_as(&one).await.map(drop) });
    tokio::spawn(async move { other_wants.acquire_as(&other).await.map(drop) });
    for path in paths {
        ensemble.await_children(path, 2).await;
    }
    held
}
