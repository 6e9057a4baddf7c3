//! A run that waits says for whom.

use std::process::Stdio;

use recipes_multilock::{Member, MultiLock};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;
use tokio::time::timeout;

use super::family::Family;
use super::process::{ended, pid};
use super::{LONG, PATH, server, start};
use crate::lockctl::{PATIENCE, lockctl, output};

/// The first line that a run prints for people.
async fn first_line(run: &mut Child) -> String {
    let mut lines = BufReader::new(run.stderr.take().unwrap()).lines();
    let line = timeout(PATIENCE, lines.next_line()).await;
    line.expect("nothing is said").unwrap().unwrap()
}

fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    name.trim().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_is_named_by_its_command() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let mut holder = lockctl(
        &connect,
        &["run", LONG, "--purpose", "export", PATH, "--", "cat"],
    );
    let mut holder = holder.stdin(Stdio::piped()).spawn().unwrap();
    ensemble.await_children(PATH, 1).await;
    let family = Family::new();
    let mut run = family.run(&connect, &[LONG, PATH], "true");
    let mut run = run.stderr(Stdio::piped()).spawn().unwrap();
    let who = format!("lockctl(cat) {} pid {} \"export\"", host(), pid(&holder));
    let expected = format!("lockctl: waiting for {PATH}, held by {who}");
    assert_eq!(first_line(&mut run).await, expected);
    drop(holder.stdin.take());
    assert_eq!(ended(&mut run).await, Some(0));
    assert_eq!(ended(&mut holder).await, Some(0));
}

/// Of a set, the member that it waits for, and not the one that it holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_are_counted_and_only_busy_locks_named() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let mut readers = Vec::new();
    for _ in 0..3 {
        let session = ensemble.session().await;
        let lock = MultiLock::new(&session, [Member::read("/locks/b")]).unwrap();
        readers.push(lock.acquire().await.unwrap());
    }
    let family = Family::new();
    let arguments = [LONG, "--mode", "write", "/locks/a", "/locks/b"];
    let mut run = family.run(&connect, &arguments, "true");
    let mut run = run.stderr(Stdio::piped()).spawn().unwrap();
    let line = first_line(&mut run).await;
    let begin = "lockctl: waiting for /locks/b, held by ";
    assert!(
        line.starts_with(begin) && line.ends_with(" and 2 more"),
        "{line}"
    );
    drop(readers);
    assert_eq!(ended(&mut run).await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_of_nobody_is_named_with_the_way_out() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let node = format!("{PATH}/-left");
    ensemble.create(&node, b"").await;
    let family = Family::new();
    let mut run = family.run(&connect, &[LONG, PATH], "true");
    let mut run = run.stderr(Stdio::piped()).spawn().unwrap();
    let expected = format!(
        "lockctl: waiting for {PATH}, blocked by {node}, which belongs to no contender: \
         lockctl break deletes it"
    );
    assert_eq!(first_line(&mut run).await, expected);
    let broken = output(lockctl(&connect, &["break", "-y", PATH])).await;
    assert_eq!(broken.status.code(), Some(0), "{broken:?}");
    assert_eq!(ended(&mut run).await, Some(0));
}
