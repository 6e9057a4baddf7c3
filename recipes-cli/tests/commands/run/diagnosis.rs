//! Messages while nothing seems to happen.

use std::process::Stdio;

use rustix::process::Signal;
use test_rig::{Cut, FaultProxy, ZooKeeperServer};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};
use tokio::time::timeout;

use super::family::Family;
use super::process::{ended, pid, signal};
use super::{LONG, PATH, mutex, server, start};
use crate::lockctl::{PATIENCE, lines, lockctl, output};

/// Starts it, and returns its messages.
fn spawned(mut command: Command) -> (Child, Lines<BufReader<ChildStderr>>) {
    let mut run = command.stderr(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(run.stderr.take().unwrap()).lines();
    (run, said)
}

/// The next line that is not about whom it waits for, which depends on the time.
async fn next(said: &mut Lines<BufReader<ChildStderr>>) -> Option<String> {
    loop {
        let line = timeout(PATIENCE, said.next_line()).await;
        let line = line.expect("nothing is said").unwrap();
        if !matches!(&line, Some(it) if it.starts_with("lockctl: waiting for ")) {
            return line;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_an_ensemble_is_told_so_once() {
    let server = ZooKeeperServer::start().await.unwrap();
    let connect = server.connect_string();
    server.stop().await.unwrap();
    let family = Family::new();
    let command = family.run(&connect, &["--connect-timeout=5m", PATH], "echo ran > ran");
    let (mut run, mut said) = spawned(command);
    let told = next(&mut said).await.unwrap();
    assert!(
        told.contains("answered yet") && told.contains(&connect),
        "{told}"
    );
    signal(pid(&run), Signal::TERM);
    assert_eq!(ended(&mut run).await, Some(128 + 15));
    let told = next(&mut said).await.unwrap();
    assert!(told.contains("ended by signal 15"), "{told}");
    assert_eq!(next(&mut said).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_lock_is_told_of_an_ensemble_that_went_away() {
    let ensemble = start().await;
    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    let direct = server(&ensemble).connect_string();
    let proxy = FaultProxy::start(&direct).await.unwrap();
    let family = Family::new();
    let command = family.run(&proxy.connect_string(), &[LONG, PATH], "echo ran > ran");
    let (mut run, mut said) = spawned(command);
    ensemble.await_children(PATH, 2).await;
    proxy.refuse_connections().await;
    proxy.cut_all(Cut::Reset);
    let told = next(&mut said).await.unwrap();
    assert!(told.contains("no connection to the store"), "{told}");
    proxy.accept_connections().await.unwrap();
    held.release().await.unwrap();
    assert_eq!(ended(&mut run).await, Some(0));
    assert_eq!(family.read("ran"), "ran\n");
    assert_eq!(next(&mut said).await, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happens_is_logged_where_that_is_asked_for() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let run = |log: Option<&str>| {
        let mut command = lockctl(&connect, &["run", PATH, "--", "true"]);
        command.envs(log.map(|it| ("LOCKCTL_LOG", it)));
        output(command)
    };
    assert_eq!(lines(&run(None).await), "");
    let debug = String::from_utf8(run(Some("debug")).await.stderr).unwrap();
    assert!(debug.contains("DEBUG") && debug.contains(PATH), "{debug}");
    let of_one = String::from_utf8(run(Some("lock_recipes=info")).await.stderr).unwrap();
    assert!(of_one.contains("INFO"), "{of_one}");
    for not_asked_for in ["DEBUG", "zookeeper_client"] {
        assert!(!of_one.contains(not_asked_for), "{of_one}");
    }
    let wrong = run(Some("lock_recipes=loud")).await;
    assert_eq!(wrong.status.code(), Some(64), "{wrong:?}");
}
