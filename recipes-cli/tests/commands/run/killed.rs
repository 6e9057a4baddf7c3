//! Kills of `lockctl`'s own processes.

use rustix::process::Signal;
use tokio::time::Instant;

use super::family::{Family, alive, gone, named};
use super::process::{ended, pid, signal};
use super::{LONG, PATH, SOON, next_in_line, server, start};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_goes_on_when_lockctl_is_killed() {
    let ensemble = start().await;
    let family = Family::new();
    let connect = server(&ensemble).connect_string();
    let mut run = family.command(&connect, &[LONG, PATH]).spawn().unwrap();
    let members = family.members(&ensemble).await;
    let killed = Instant::now();
    signal(pid(&run), Signal::KILL);
    gone(&ensemble, &members).await;
    assert!(killed.elapsed() < SOON, "not before the deadline");
    assert_eq!(ended(&mut run).await, None);
    // The lock is still held: the session is far from its timeout.
    assert_eq!(ensemble.children(PATH).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_goes_on_when_the_supervisor_is_killed_and_then_the_lock_is_released() {
    let ensemble = start().await;
    let family = Family::new();
    let connect = server(&ensemble).connect_string();
    let mut run = family.command(&connect, &[LONG, PATH]).spawn().unwrap();
    let members = family.members(&ensemble).await;
    let (_session, next) = next_in_line(&ensemble).await;
    signal(named(&members, "shell").parent(), Signal::KILL);
    let granted = next.await.unwrap();
    let left = alive(&members);
    assert!(left.is_empty(), "granted while these run: {left:?}");
    assert_eq!(ended(&mut run).await, Some(70));
    drop(granted);
}

/// As `killall -9` does. The processes that the command has started go on then, as the manual
/// states.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_itself_does_not_go_on_when_lockctl_and_its_supervisor_are_killed_together() {
    let ensemble = start().await;
    let family = Family::new();
    let connect = server(&ensemble).connect_string();
    let mut run = family.command(&connect, &[LONG, PATH]).spawn().unwrap();
    let members = family.members(&ensemble).await;
    let shell = named(&members, "shell").clone();
    let supervisor = shell.parent();
    // Halted first, so that neither can react to the other's end.
    for process in [pid(&run), supervisor] {
        signal(process, Signal::STOP);
    }
    for process in [pid(&run), supervisor] {
        signal(process, Signal::KILL);
    }
    gone(&ensemble, &[shell]).await;
    assert_eq!(ended(&mut run).await, None);
    for member in alive(&members) {
        signal(member.pid, Signal::KILL);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_command_leaves_behind_is_gone_before_the_lock_is_released() {
    let ensemble = start().await;
    let family = Family::new();
    let connect = server(&ensemble).connect_string();
    let script = r#"
        (setsid sh -c 'trap "" TERM; echo "daemon $$" >> family; sleep 1000' &)
        sleep 1000 & echo "child $!" >> family
        echo "shell $$" >> family; echo "again $$" >> family
        until [ -e go ]; do sleep 0.05; done; exit 5
    "#;
    let mut run = family.run(&connect, &[LONG, PATH], script).spawn().unwrap();
    let members = family.members(&ensemble).await;
    let (_session, next) = next_in_line(&ensemble).await;
    std::fs::write(family.path("go"), "").unwrap();
    let granted = next.await.unwrap();
    let left = alive(&members);
    assert!(left.is_empty(), "granted while these run: {left:?}");
    assert_eq!(ended(&mut run).await, Some(5));
    drop(granted);
}
