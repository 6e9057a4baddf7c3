//! Processes that wait for each other: two `lockctl run`, and a JVM with Curator.

use std::time::Duration;

use recipes_leader::{LeaderElection, LeaderLatch};
use recipes_semaphore::InterProcessSemaphore;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use test_rig::{CuratorPeer, PeerError, TestEnsemble};
use tokio::process::Child;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{POSSIBLE_DEADLOCK, ended, json, json_ended, printed, server, start};
use crate::lockctl::{PATIENCE, lockctl};

const SESSION_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug)]
enum Way {
    Break,
    Revoke,
    Kill,
}

/// Each holds the first of its locks and waits for the other: `a b` and `b c` of ours, `c a` of
/// Curator's. Contenders that take locks in one order cannot deadlock.
struct Deadlock {
    first: Child,
    second: Child,
    curator: JoinHandle<Result<bool, PeerError>>,
}

impl Deadlock {
    async fn make(ensemble: &TestEnsemble, curator: &CuratorPeer) -> Self {
        let run = |purpose, locks: [&str; 2]| {
            let options = ["run", "--session-timeout=16s", "--purpose", purpose];
            let all = [&options[..], &locks, &["--", "true"]].concat();
            let mut command = lockctl(&server(ensemble).connect_string(), &all);
            command.spawn().unwrap()
        };
        assert!(curator.acquire("t", "lc", None).await.unwrap());
        let second = run("invoices", ["/dead/b", "/dead/c"]);
        ensemble.await_children("/dead/c", 2).await;
        let first = run("nightly report", ["/dead/a", "/dead/b"]);
        ensemble.await_children("/dead/b", 2).await;
        let told = printed(ensemble, &["deadlocks"]).await;
        assert_eq!(told, "no deadlock; 2 waits seen\n");
        let curator = tokio::spawn(curator.acquire("t", "la", None));
        ensemble.await_children("/dead/a", 2).await;
        Self {
            first,
            second,
            curator,
        }
    }

    /// Takes one lock from its holder, and checks that all others go on.
    async fn end(mut self, ensemble: &TestEnsemble, curator: &CuratorPeer, way: Way) {
        match way {
            Way::Break => drop(printed(ensemble, &["break", "--yes", "/dead/c"]).await),
            Way::Revoke => {
                printed(ensemble, &["revoke", "/dead/c"]).await;
                let asked = curator.revocation_requested("lc", PATIENCE).await;
                assert!(asked.unwrap());
                // The thread that must release is waiting.
                curator.interrupt("t").await.unwrap();
                curator.release("t", "lc").await.unwrap();
            }
            Way::Kill => {
                let pid = i32::try_from(self.second.id().unwrap()).unwrap();
                kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
            }
        }
        let codes = [code(&mut self.first).await, code(&mut self.second).await];
        let acquired = self.curator.await.unwrap();
        match way {
            Way::Break => assert_eq!(codes, [Some(0), Some(0)]),
            Way::Revoke => assert_eq!(codes, [Some(0), Some(0)]),
            Way::Kill => assert_eq!(codes, [Some(0), None]),
        }
        if let Way::Revoke = way {
            acquired.unwrap_err();
        } else {
            assert!(acquired.unwrap());
            for lock in ["la", "lc"] {
                curator.release("t", lock).await.unwrap();
            }
        }
        for lock in ["/dead/a", "/dead/b", "/dead/c"] {
            ensemble.await_children(lock, 0).await;
        }
    }
}

async fn code(run: &mut Child) -> Option<i32> {
    let status = timeout(PATIENCE, run.wait()).await;
    status.expect("lockctl does not end").unwrap().code()
}

/// Checks every output; `session` is Curator's.
async fn assert_named(ensemble: &TestEnsemble, deadlock: &Deadlock, session: i64) {
    let holder =
        async |lock: &str| json(ensemble, &["inspect", lock]).await["contenders"][0].take();
    let [first, second] = [holder("/dead/a").await, holder("/dead/b").await];
    let pids = [&deadlock.first, &deadlock.second].map(|run| json!(run.id()));
    assert_eq!(
        [&first["identity"]["pid"], &second["identity"]["pid"]],
        [&pids[0], &pids[1]]
    );
    let party = |it: &Value| json!({"owner": it["identity"]["owner"], "session": it["session"]});
    let (first, second) = (party(&first), party(&second));
    let session = format!("{session:#x}");
    let theirs = json!({"owner": null, "session": session});
    assert!(first["owner"].is_string() && first != second, "{first}");

    let found = json_ended(ensemble, &["deadlocks"], POSSIBLE_DEADLOCK).await;
    let [cycle] = &found["cycles"].as_array().unwrap()[..] else {
        panic!("{found}")
    };
    let edges = [
        ("/dead/a", &theirs, &first, "session"),
        ("/dead/b", &first, &second, "owner"),
        ("/dead/c", &second, &theirs, "session"),
    ];
    let told = |it: &Value| json!([it["lock"], it["waiter"], it["holder"], it["basis"]]);
    let told: Vec<_> = cycle.as_array().unwrap().iter().map(told).collect();
    assert_eq!(
        told,
        edges.map(|(lock, waiter, holder, basis)| json!([lock, waiter, holder, basis]))
    );

    let text = ended(ensemble, &["deadlocks", "/dead"], POSSIBLE_DEADLOCK).await;
    assert!(text.starts_with("possible deadlock 1 of 1:\n"), "{text}");
    let owner = |it: &Value| format!("owner {}", it["owner"].as_str().unwrap());
    let names = [format!("session {session}"), owner(&first), owner(&second)];
    for (waiter, (lock, _, _, basis)) in edges.iter().enumerate() {
        let (waiter, holder) = (&names[waiter], &names[(waiter + 1) % 3]);
        let mark = if *basis == "owner" {
            ""
        } else {
            " (as far as sessions tell)"
        };
        let line = format!("  {waiter} waits for {holder} at {lock}{mark}\n");
        assert!(text.contains(&line), "{line}not in\n{text}");
    }
    // Each is named twice: as a waiter, and as a holder.
    for (pid, purpose) in pids.iter().zip(["nightly report", "invoices"]) {
        let who = format!("pid {pid} \"{purpose}\"");
        assert_eq!(text.matches(&who).count(), 2, "{text}");
    }

    let dot = ended(ensemble, &["deadlocks", "--dot"], POSSIBLE_DEADLOCK).await;
    let count = |what: &str| dot.matches(what).count();
    assert_eq!(
        (count(" -> "), count("color=red"), count("style=dashed")),
        (3, 3, 2),
        "{dot}"
    );
    for name in names {
        assert!(dot.contains(&name), "{name} not in {dot}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadlock_of_three_processes_is_named_until_one_of_them_lets_go() {
    let ensemble = start().await;
    let curator = CuratorPeer::start().await.unwrap();
    let session = curator
        .open("c", &server(&ensemble).connect_string(), SESSION_TIMEOUT)
        .await
        .unwrap();
    for (lock, path) in [("la", "/dead/a"), ("lc", "/dead/c")] {
        curator.mutex(lock, "c", path).await.unwrap();
    }
    for way in [Way::Break, Way::Kill, Way::Revoke] {
        if let Way::Revoke = way {
            curator.make_revocable("lc").await.unwrap();
        }
        let deadlock = Deadlock::make(&ensemble, &curator).await;
        assert_named(&ensemble, &deadlock, session).await;
        deadlock.end(&ensemble, &curator, way).await;
        let told = printed(&ensemble, &["deadlocks"]).await;
        assert_eq!(told, "no deadlock; 0 waits seen\n", "{way:?}");
    }
    curator.exit().await.unwrap();
}

/// Each leads one election and is a candidate of the other, and both wait for permits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn candidates_and_who_waits_for_permits_are_no_deadlock() {
    let ensemble = start().await;
    let (one, other) = (ensemble.session().await, ensemble.session().await);
    let latch = LeaderLatch::start(&one, "/healthy/latch", "one").unwrap();
    latch.wait_until_leader().await.unwrap();
    let election = |session, id| LeaderElection::new(session, "/healthy/election", id).unwrap();
    let term = election(&other, "two").campaign().await.unwrap();
    let semaphore = |session| InterProcessSemaphore::new(session, "/healthy/limit", 1).unwrap();
    let held = semaphore(&one).acquire().await.unwrap();
    let candidate = LeaderLatch::start(&other, "/healthy/latch", "two").unwrap();
    ensemble.await_children("/healthy/latch", 2).await;
    let campaign = tokio::spawn(election(&one, "one").campaign());
    ensemble.await_children("/healthy/election", 2).await;
    let mut waiting = Vec::new();
    for (count, session) in [(1, &one), (2, &other), (3, &one), (4, &other)] {
        waiting.push(tokio::spawn(semaphore(session).acquire()));
        ensemble.await_children("/healthy/limit/locks", count).await;
    }
    for _ in 0..5 {
        let told = printed(&ensemble, &["deadlocks", "/healthy"]).await;
        // One in the election, and those behind the first of the semaphore.
        assert_eq!(told, "no deadlock; 4 waits seen\n");
    }
    waiting.iter().for_each(JoinHandle::abort);
    campaign.abort();
    for stopped in [candidate, latch] {
        stopped.stop().await.unwrap();
    }
    term.resign().await.unwrap();
    held.release().await.unwrap();
}
