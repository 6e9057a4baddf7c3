//! Nobody reads what `lockctl` and the command print.

use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::Signal;
use test_rig::{Direction, FaultProxy, TestEnsemble};
use tokio::net::unix::pipe::{Receiver, pipe};
use tokio::process::Command;
use tokio::time::{Instant, timeout};

use super::family::{Family, alive, gone};
use super::process::{ended, pid, signal};
use super::refused::{start_refused, termination};
use super::{KEPT, KEPT_FOR, LONG, PATH, SHORT, SOON, mutex, next_in_line, server, start};
use crate::lockctl::{PATIENCE, lockctl, output};

/// A full pipe. It is blocked as long as the other end is there.
async fn full() -> (OwnedFd, Receiver) {
    let (sender, receiver) = pipe().unwrap();
    // Until then, nothing is tried.
    sender.writable().await.unwrap();
    let mut written = 0;
    while let Ok(count) = sender.try_write(&[b'.'; 4096]) {
        written += count;
    }
    assert!(written > 4096, "{written}");
    (sender.into_blocking_fd().unwrap(), receiver)
}

/// Everything is said, and nothing is read.
async fn unread(mut command: Command) -> (Command, Receiver) {
    let (blocked, other_end) = full().await;
    command.env("LOCKCTL_LOG", "trace");
    command.stdout(Stdio::from(blocked.try_clone().unwrap()));
    command.stderr(Stdio::from(blocked));
    (command, other_end)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signal_ends_the_wait_for_the_lock() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    let family = Family::new();
    let (mut run, _other_end) = unread(family.run(&connect, &[LONG, PATH], "echo ran > ran")).await;
    let mut run = run.spawn().unwrap();
    ensemble.await_children(PATH, 2).await;
    let sent = Instant::now();
    signal(pid(&run), Signal::TERM);
    assert_eq!(ended(&mut run).await, Some(128 + 15));
    assert!(sent.elapsed() < SOON);
    assert_eq!(ensemble.children(PATH).await.len(), 1);
    held.release().await.unwrap();
    assert_eq!(family.read("ran"), "");
}

/// Heartbeats, and signals, go on after a message that nobody reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_to_give_up_kills_no_healthy_command_and_signals_still_reach_it() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let family = Family::new();
    // A shell says that its `sleep` was terminated, and would wait for a reader.
    let script = "exec 2>/dev/null; trap 'exit 9' TERM; : > ready; while :; do sleep 0.05; done";
    let (mut run, _other_end) = unread(family.run(&connect, &[KEPT, PATH], script)).await;
    let mut run = run.spawn().unwrap();
    let ready = async || family.path("ready").exists().then_some(());
    ensemble.until("the command", ready).await;
    let (_session, next) = next_in_line(&ensemble).await;
    let asked = output(lockctl(&connect, &["revoke", PATH])).await;
    assert_eq!(asked.status.code(), Some(0), "{asked:?}");
    // Longer than the session timeout, after which the lock would be gone.
    let since = Instant::now();
    let still_held = async || {
        assert!(!next.is_finished(), "the lock is not held any more");
        (since.elapsed() > KEPT_FOR).then_some(())
    };
    ensemble.until("some time", still_held).await;
    let sent = Instant::now();
    signal(pid(&run), Signal::TERM);
    assert_eq!(ended(&mut run).await, Some(9));
    assert!(sent.elapsed() < SOON);
    drop(next.await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_is_killed_at_once_when_its_node_is_deleted() {
    let ensemble = start().await;
    let family = Family::new();
    let connect = server(&ensemble).connect_string();
    let (mut run, _other_end) = unread(family.command(&connect, &[LONG, PATH])).await;
    let mut run = run.spawn().unwrap();
    let members = family.members(&ensemble).await;
    let node = ensemble.await_children(PATH, 1).await;
    let ordered = Instant::now();
    ensemble.delete(&format!("{PATH}/{}", node[0])).await;
    gone(&ensemble, &members).await;
    assert!(ordered.elapsed() < SOON);
    assert_eq!(ended(&mut run).await, Some(76));
}

/// How long the processes of a command live after its node was deleted.
async fn life_after_the_loss(ensemble: &TestEnsemble, path: &str, is_unread: bool) -> Duration {
    let family = Family::new();
    let connect = server(ensemble).connect_string();
    let mut run = family.command(&connect, &[LONG, path]);
    let mut other_end = None;
    if is_unread {
        let (command, receiver) = unread(run).await;
        (run, other_end) = (command, Some(receiver));
    }
    let mut run = run.stdin(Stdio::null()).spawn().unwrap();
    let members = family.members(ensemble).await;
    let node = ensemble.await_children(path, 1).await;
    let ordered = Instant::now();
    ensemble.delete(&format!("{path}/{}", node[0])).await;
    // The pauses of `gone` are longer than a kill takes.
    while !alive(&members).is_empty() {
        tokio::task::yield_now().await;
    }
    let lived = ordered.elapsed();
    assert_eq!(ended(&mut run).await, Some(76));
    drop(other_end);
    lived
}

/// In turn, so that both have the same machine. One slow moment does not move the median.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_take_as_long_with_full_pipes_as_without() {
    let ensemble = start().await;
    let mut lives = [Vec::new(), Vec::new()];
    for pair in 0..9 {
        for is_unread in [false, true] {
            let path = format!("/locks/{pair}-{is_unread}");
            let life = life_after_the_loss(&ensemble, &path, is_unread);
            let life = timeout(PATIENCE, life).await.expect("it goes on");
            lives[usize::from(is_unread)].push(life);
        }
    }
    let [read, unread] = lives.map(|mut lives| {
        lives.sort();
        lives[lives.len() / 2]
    });
    println!("median of the kills: {read:?} with readers, {unread:?} without");
    // A blocked message would wait for ever. The rest is for machines that are busy by turns.
    assert!(
        unread < 10 * read + Duration::from_millis(500),
        "{read:?} {unread:?}"
    );
}

/// The request to end is refused by the kernel for each process, as for another user's, and each
/// refusal is said before the kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_runs_any_more_when_the_next_one_gets_the_lock_though_each_refusal_is_said() {
    let ensemble = start().await;
    let direct = server(&ensemble).connect_string();
    let proxy = FaultProxy::start(&direct).await.unwrap();
    let family = Family::new();
    let run = family.command(&proxy.connect_string(), &[SHORT, PATH]);
    let (run, _other_end) = unread(run).await;
    let mut run = start_refused(run, &termination(), Errno::PERM);
    let members = family.members(&ensemble).await;
    let (_session, next) = next_in_line(&ensemble).await;
    proxy.black_hole(Direction::ToServer);
    proxy.black_hole(Direction::FromServer);
    let granted = next.await.unwrap();
    let left = alive(&members);
    assert!(left.is_empty(), "granted while these run: {left:?}");
    assert_eq!(ended(&mut run).await, Some(76));
    drop(granted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn end_of_the_command_ends_lockctl_and_releases_the_lock() {
    let ensemble = start().await;
    let family = Family::new();
    let connect = server(&ensemble).connect_string();
    let script = "sleep 1000 & echo $! > ready; until [ -e go ]; do sleep 0.05; done; exit 5";
    let (mut run, _other_end) = unread(family.run(&connect, &[LONG, PATH], script)).await;
    let mut run = run.spawn().unwrap();
    let ready = async || family.path("ready").exists().then_some(());
    ensemble.until("the command", ready).await;
    let (_session, next) = next_in_line(&ensemble).await;
    let since = Instant::now();
    std::fs::write(family.path("go"), "").unwrap();
    drop(next.await.unwrap());
    assert_eq!(ended(&mut run).await, Some(5));
    assert!(since.elapsed() < SOON);
}
