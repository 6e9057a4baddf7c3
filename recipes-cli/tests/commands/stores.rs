//! Every command on the URLs of the stores that are no ZooKeeper.

use std::time::Duration;

use recipes_core::{LockGuard, LostReason, Owner, Session};
use recipes_multilock::{Member, MultiLock};
use serde_json::Value;
use test_rig::TestEnsemble;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::lockctl::{PATIENCE, lockctl, output, said};

const PATH: &str = "/locks/nightly";

/// The URL, and a session. It says that nobody held a lock before.
async fn start(ensemble: &TestEnsemble) -> (String, Session) {
    (ensemble.url(), ensemble.session().await)
}

/// As a service, which tries again, would fill its log.
#[tokio::test]
async fn store_that_is_down_is_told_with_address_and_cause_and_not_at_every_try() {
    for url in [
        "etcd://app:secret@127.0.0.1:1",
        "redis://app:secret@127.0.0.1:1",
        "postgres://app:secret@127.0.0.1:1/shop",
        "mysql://app:secret@127.0.0.1:1/shop",
    ] {
        let mut command = lockctl(url, &["--connect-timeout", "3s", "ls"]);
        command.env("LOCKCTL_LOG", "warn");
        let started = tokio::time::Instant::now();
        let output = output(command).await;
        let minutes = started.elapsed().as_secs() / 60;
        assert_eq!(output.status.code(), Some(69), "{output:?}");
        let log = String::from_utf8(output.stderr).unwrap();
        let told: Vec<_> = log
            .lines()
            .filter(|it| it.contains("no store session yet"))
            .collect();
        assert!(
            !told.is_empty() && told.len() as u64 <= 1 + minutes,
            "{log}"
        );
        for line in told {
            assert!(
                line.contains("127.0.0.1:1") && line.contains("refused"),
                "{line}"
            );
        }
        assert!(!log.contains("secret"), "{log}");
    }
}

macro_rules! on_each_store {
    ($($store:ident: $start:ident),+; $behaviours:tt) => {
        $(on_each_store!(@ $store $start $behaviours);)+
    };
    (@ $store:ident $start:ident [$($behaviour:ident),+]) => {
        mod $store {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $behaviour() {
                    super::$behaviour(test_rig::own::$start().await).await;
                }
            )+
        }
    };
}

on_each_store!(etcd: on_etcd, redis: on_redis, postgres: on_postgres, mariadb: on_mariadb; [
    command_runs_only_under_the_lock,
    queue_is_shown_and_its_holder_can_be_asked_or_lose_the_lock,
    deadlock_is_found,
    crashed_holder_is_shown_as_silent,
    page_is_served
]);

fn lock(session: &Session, path: &str) -> MultiLock {
    MultiLock::new(session, [Member::mutex(path)]).unwrap()
}

async fn held(session: &Session, path: &str) -> LockGuard {
    lock(session, path).acquire().await.unwrap().into()
}

async fn printed(url: &str, arguments: &[&str]) -> String {
    let ran = output(lockctl(url, arguments)).await;
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(0), "{arguments:?}: {said}");
    String::from_utf8(ran.stdout).unwrap()
}

async fn json(url: &str, arguments: &[&str]) -> Value {
    let all = [&["--json"], arguments].concat();
    serde_json::from_str(&printed(url, &all).await).unwrap()
}

async fn command_runs_only_under_the_lock(ensemble: TestEnsemble) {
    let (url, session) = start(&ensemble).await;
    let guard = held(&session, PATH).await;
    let token = guard.fencing_token().unwrap().to_string();
    let busy = lockctl(&url, &["run", "--timeout", "0", PATH, "--", "true"]);
    assert_eq!(output(busy).await.status.code(), Some(75));
    guard.release().await.unwrap();
    let told = printed(
        &url,
        &[
            "run",
            PATH,
            "--",
            "sh",
            "-c",
            "echo $LOCKCTL_PATHS $LOCKCTL_TOKENS",
        ],
    );
    let told = told.await;
    let (path, its_token) = told.trim().split_once(' ').unwrap();
    assert_eq!(path, PATH);
    assert!(its_token > token.as_str(), "{told}");
    let ended = lockctl(&url, &["run", PATH, "--", "sh", "-c", "exit 7"]);
    assert_eq!(output(ended).await.status.code(), Some(7));
}

async fn queue_is_shown_and_its_holder_can_be_asked_or_lose_the_lock(ensemble: TestEnsemble) {
    let (url, session) = start(&ensemble).await;
    let guard = held(&session, PATH).await;
    let next = lock(&session, PATH);
    let next = tokio::spawn(async move { next.acquire().await.unwrap() });
    ensemble.await_children(PATH, 2).await;
    assert!(printed(&url, &["ls", "/locks"]).await.contains(PATH));
    let shown = json(&url, &["inspect", PATH]).await;
    let standing = |at: usize| shown["contenders"][at]["standing"].as_str();
    assert_eq!((standing(0), standing(1)), (Some("holds"), Some("waits")));
    assert_eq!(
        shown["contenders"][0]["identity"]["pid"],
        std::process::id()
    );
    printed(&url, &["revoke", PATH]).await;
    timeout(PATIENCE, guard.revocation_requested())
        .await
        .unwrap();
    printed(&url, &["break", "--yes", PATH]).await;
    let lost = timeout(PATIENCE, guard.lost()).await.unwrap();
    assert_eq!(lost.reason, LostReason::NodeRemoved);
    assert!(timeout(PATIENCE, next).await.unwrap().unwrap().is_valid());
}

async fn deadlock_is_found(ensemble: TestEnsemble) {
    let (url, session) = start(&ensemble).await;
    let (one, two) = (Owner::new(), Owner::new());
    let take = |path: &str, owner: &Owner| lock(&session, path).acquire().owner(owner);
    let _a = take("/dead/a", &one).await.unwrap();
    let _b = take("/dead/b", &two).await.unwrap();
    let _waits = [
        tokio::spawn(take("/dead/b", &one)),
        tokio::spawn(take("/dead/a", &two)),
    ];
    ensemble.await_children("/dead/a", 2).await;
    ensemble.await_children("/dead/b", 2).await;
    let ran = output(lockctl(&url, &["--json", "deadlocks"])).await;
    assert_eq!(ran.status.code(), Some(80), "{ran:?}");
    let found: Value = serde_json::from_slice(&ran.stdout).unwrap();
    assert_eq!(found["cycles"].as_array().unwrap().len(), 1, "{found}");
}

/// `ls` and `inspect` only read, and nobody else is connected. So Redis and databases keep the holder.
async fn crashed_holder_is_shown_as_silent(ensemble: TestEnsemble) {
    let (url, session) = start(&ensemble).await;
    session.close().await;
    let crash = [
        "--session-timeout",
        "40s",
        "run",
        PATH,
        "--",
        "sh",
        "-c",
        "echo held; exec sleep 600",
    ];
    let mut holder = lockctl(&url, &crash);
    let mut holder = holder.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    let line = timeout(PATIENCE, lines.next_line()).await.unwrap();
    assert_eq!(line.unwrap().as_deref(), Some("held"));
    holder.kill().await.unwrap();
    let silent_ms = ensemble.until("it is silent", async || {
        let shown = json(&url, &["inspect", PATH]).await;
        shown["contenders"][0]["silent_ms"].as_u64()
    });
    assert!(silent_ms.await > 20_000);
    for arguments in [["inspect", PATH], ["ls", "/locks"]] {
        let shown = printed(&url, &arguments).await;
        let (_, after) = shown.split_once("(last heard ").unwrap();
        let (silence, who) = after.split_once(" ago) ").unwrap();
        assert!(silence.ends_with(" s"), "{shown}");
        assert!(who.contains("lockctl(sh)"), "{shown}");
    }
}

async fn page_is_served(ensemble: TestEnsemble) {
    let (url, session) = start(&ensemble).await;
    let _guard = held(&session, PATH).await;
    let mut command = lockctl(&url, &["serve", "--listen", "127.0.0.1:0"]);
    let mut served = command
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(served.stdout.take().unwrap()).lines();
    let line = timeout(PATIENCE, lines.next_line()).await.unwrap();
    let address = line.unwrap().unwrap();
    let address = address.trim_start_matches("http://").trim_end_matches('/');
    let mut connection = TcpStream::connect(address).await.unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    connection.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let read = connection.read_to_string(&mut answer);
    timeout(PATIENCE, read).await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn what_is_wrong_is_said_in_one_line_and_without_the_password() {
    let wrong = [
        (
            &["--auth", "digest:a:b", "ls", "/"][..],
            64,
            "--auth: for ZooKeeper only",
        ),
        (&["ls", "/"][..], 69, "Connection refused"),
    ];
    let schemes = ["etcd", "redis", "postgres", "mysql"];
    let each = schemes
        .iter()
        .flat_map(|scheme| wrong.map(|wrong| (scheme, wrong)));
    for (scheme, (arguments, code, reason)) in each {
        let url = &format!("{scheme}://bob:secret@127.0.0.1:1/1");
        let mut command = lockctl(url, arguments);
        command.env("LOCKCTL_CONNECT_TIMEOUT", "2s");
        let ran = timeout(Duration::from_secs(60), output(command))
            .await
            .unwrap();
        assert_eq!(ran.status.code(), Some(code), "{ran:?}");
        let text = said(&ran);
        assert!(text.contains(reason), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
}
