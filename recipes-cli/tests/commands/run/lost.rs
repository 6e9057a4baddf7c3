//! The lock is lost while the command runs.

use std::process::Stdio;
use std::time::Duration;

use recipes_core::Session;
use rustix::process::Signal;
use test_rig::{Direction, FaultProxy, TestEnsemble};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;
use tokio::time::Instant;

use super::family::{Family, Member, alive, gone, named};
use super::process::{ended, pid, signal};
use super::{KEPT, LONG, PATH, SHORT, SOON, next_in_line, server, start, token};

#[derive(Debug)]
enum Supervisor {
    Runs,
    Halted,
}

/// A family that runs under the lock, and a waiter after it.
async fn cut_off(ensemble: &TestEnsemble, on_lost: &str, supervisor: Supervisor) {
    let proxy = FaultProxy::start(&server(ensemble).connect_string())
        .await
        .unwrap();
    let family = Family::new();
    let mut run = family
        .command(&proxy.connect_string(), &[KEPT, "--on-lost", on_lost, PATH])
        .spawn()
        .unwrap();
    let members = family.members(ensemble).await;
    let (_session, next) = next_in_line(ensemble).await;
    if let Supervisor::Halted = supervisor {
        signal(named(&members, "shell").parent(), Signal::STOP);
    }
    proxy.black_hole(Direction::ToServer);
    proxy.black_hole(Direction::FromServer);
    let since = Instant::now();
    // At the same time as the grant: when did the last of them end?
    let gone_at = async {
        gone(ensemble, &members).await;
        since.elapsed()
    };
    let granted = async {
        let granted = next.await.unwrap();
        let left = alive(&members);
        assert!(left.is_empty(), "granted while these run: {left:?}");
        (granted, since.elapsed())
    };
    let (gone_after, (granted, granted_after)) = tokio::join!(gone_at, granted);
    println!(
        "--on-lost {on_lost}, {supervisor:?}: gone after {gone_after:?}, granted after {granted_after:?}"
    );
    assert!(token(&granted) > family.token());
    assert_eq!(ended(&mut run).await, Some(76));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_runs_any_more_when_a_partition_gives_the_lock_to_the_next() {
    cut_off(&start().await, "term", Supervisor::Runs).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_runs_any_more_when_a_partition_gives_it_on_without_asking_first() {
    cut_off(&start().await, "kill", Supervisor::Runs).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_runs_any_more_when_it_is_given_on_while_the_supervisor_is_halted() {
    for on_lost in ["term", "kill"] {
        cut_off(&start().await, on_lost, Supervisor::Halted).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_that_is_asked_in_time_ends_in_good_order_before_the_lock_is_lost() {
    let ensemble = start().await;
    let proxy = FaultProxy::start(&server(&ensemble).connect_string())
        .await
        .unwrap();
    let family = Family::new();
    let script = "trap 'echo tidy > tidied; exit 0' TERM; : > ready; while :; do sleep 0.05; done";
    let mut run = family
        .run(&proxy.connect_string(), &[LONG, PATH], script)
        .spawn()
        .unwrap();
    let ready = async || family.path("ready").exists().then_some(());
    ensemble.until("the command", ready).await;
    let (_session, next) = next_in_line(&ensemble).await;
    proxy.black_hole(Direction::ToServer);
    drop(next.await.unwrap());
    assert_eq!(family.read("tidied"), "tidy\n");
    assert_eq!(ended(&mut run).await, Some(76));
}

/// The server deletes the node and notifies the next contender and us in the same moment. No
/// deadline can foresee that, so lockctl can only be quick. The deadline of this session is far
/// away.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_is_killed_at_once_when_its_session_is_ended_by_order() {
    let ensemble = start().await;
    let family = Family::new();
    let direct = server(&ensemble).connect_string();
    let proxy = FaultProxy::start(&direct).await.unwrap();
    let mut run = family
        .command(&proxy.connect_string(), &[LONG, PATH])
        .spawn()
        .unwrap();
    let members = family.members(&ensemble).await;
    let node = ensemble.await_children(PATH, 1).await;
    let (_, stat) = ensemble.read(&format!("{PATH}/{}", node[0])).await.unwrap();
    let (_session, next) = next_in_line(&ensemble).await;

    let ordered = Instant::now();
    // A client that reconnects between the takeover of its session and the end of it gets no answer
    // on that connection.
    proxy.refuse_connections().await;
    server(&ensemble)
        .expire(stat.ephemeral_owner)
        .await
        .unwrap();
    proxy.accept_connections().await.unwrap();
    let granted = next.await.unwrap();
    let granted_after = ordered.elapsed();
    gone(&ensemble, &members).await;
    let gone_after = ordered.elapsed();
    println!("session ended by order: granted after {granted_after:?}, gone after {gone_after:?}");
    assert!(gone_after < SOON, "not before its deadline: {gone_after:?}");
    assert!(token(&granted) > family.token());
    assert_eq!(ended(&mut run).await, Some(76));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_is_killed_at_once_when_its_node_is_deleted() {
    let ensemble = start().await;
    let family = Family::new();
    let connect = server(&ensemble).connect_string();
    let mut run = family.command(&connect, &[LONG, PATH]).spawn().unwrap();
    let members = family.members(&ensemble).await;
    let node = ensemble.await_children(PATH, 1).await;
    let ordered = Instant::now();
    ensemble.delete(&format!("{PATH}/{}", node[0])).await;
    gone(&ensemble, &members).await;
    assert!(ordered.elapsed() < SOON);
    assert_eq!(ended(&mut run).await, Some(76));
    ensemble.await_children(PATH, 0).await;
}

/// It reads nothing any more, whatever it is sent meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_is_killed_soon_when_its_node_is_deleted_while_the_supervisor_is_halted() {
    let ensemble = start().await;
    let family = Family::new();
    let connect = server(&ensemble).connect_string();
    let mut run = family.command(&connect, &[LONG, PATH]).spawn().unwrap();
    let members = family.members(&ensemble).await;
    let node = ensemble.await_children(PATH, 1).await;
    signal(named(&members, "shell").parent(), Signal::STOP);
    // Some three hundred fill the socket. Signals that come too fast become one.
    for _ in 0..1000 {
        signal(pid(&run), Signal::INT);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let ordered = Instant::now();
    ensemble.delete(&format!("{PATH}/{}", node[0])).await;
    gone(&ensemble, &members).await;
    println!("halted supervisor: gone after {:?}", ordered.elapsed());
    assert!(ordered.elapsed() < SOON);
    assert_eq!(ended(&mut run).await, Some(76));
}

/// A family whose `lockctl` is halted until another contender has the lock.
struct Halted {
    ensemble: TestEnsemble,
    family: Family,
    run: Child,
    members: Vec<Member>,
    supervisor: i32,
    _session: Session,
    next: tokio::task::JoinHandle<recipes_core::LockGuard>,
}

async fn about_to_be_halted() -> Halted {
    let ensemble = start().await;
    let family = Family::new();
    let connect = server(&ensemble).connect_string();
    let run = family.command(&connect, &[SHORT, PATH]).spawn().unwrap();
    let members = family.members(&ensemble).await;
    let supervisor = named(&members, "shell").parent();
    let (session, next) = next_in_line(&ensemble).await;
    Halted {
        ensemble,
        family,
        run,
        members,
        supervisor,
        _session: session,
        next,
    }
}

/// The supervisor has the last deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_runs_any_more_when_lockctl_is_halted_until_the_next_one_has_the_lock() {
    let mut halted = about_to_be_halted().await;
    signal(pid(&halted.run), Signal::STOP);
    let granted = halted.next.await.unwrap();
    let left = alive(&halted.members);
    assert!(left.is_empty(), "granted while these run: {left:?}");
    assert!(token(&granted) > halted.family.token());
    signal(pid(&halted.run), Signal::CONT);
    assert_eq!(ended(&mut halted.run).await, Some(76));
    granted.verify().await.unwrap();
}

/// No process can act in time, so only the token protects.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_is_killed_as_soon_as_lockctl_and_its_supervisor_are_resumed() {
    let mut halted = about_to_be_halted().await;
    signal(pid(&halted.run), Signal::STOP);
    signal(halted.supervisor, Signal::STOP);
    let granted = halted.next.await.unwrap();
    assert_eq!(alive(&halted.members).len(), halted.members.len());
    assert!(token(&granted) > halted.family.token(), "the token tells");

    let resumed = Instant::now();
    signal(halted.supervisor, Signal::CONT);
    signal(pid(&halted.run), Signal::CONT);
    gone(&halted.ensemble, &halted.members).await;
    println!("resumed: gone after {:?}", resumed.elapsed());
    assert!(resumed.elapsed() < SOON);
    assert_eq!(ended(&mut halted.run).await, Some(76));
    granted.verify().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_goes_on_without_the_lock_where_that_was_asked_for_and_the_code_tells() {
    let ensemble = start().await;
    let family = Family::new();
    let connect = server(&ensemble).connect_string();
    let script = ": > ready; until [ -e granted ]; do sleep 0.05; done; echo on > went_on; exit 3";
    let mut run = family
        .run(&connect, &[LONG, "--on-lost", "ignore", PATH], script)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(run.stderr.take().unwrap()).lines();
    let ready = async || family.path("ready").exists().then_some(());
    ensemble.until("the command", ready).await;
    let node = ensemble.await_children(PATH, 1).await;
    let (_session, next) = next_in_line(&ensemble).await;
    ensemble.delete(&format!("{PATH}/{}", node[0])).await;
    drop(next.await.unwrap());
    let told = said.next_line().await.unwrap().unwrap();
    assert!(told.contains("goes on"), "{told}");
    std::fs::write(family.path("granted"), "").unwrap();
    assert_eq!(ended(&mut run).await, Some(76));
    assert_eq!(family.read("went_on"), "on\n");
}
