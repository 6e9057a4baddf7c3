//! Runs inside runs: the inner one re-enters nothing, and deadlocks over both are found.

use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;
use test_rig::TestEnsemble;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;
use tokio::time::timeout;

use super::family::Family;
use super::process::{ended, pid, signal};
use super::{LONG, PATH, server, start};
use crate::lockctl::{PATIENCE, lockctl, output, said};

const LOCKCTL: &str = env!("CARGO_BIN_EXE_lockctl");

async fn deadlocks(ensemble: &TestEnsemble) -> Value {
    let connect = server(ensemble).connect_string();
    let ran = output(lockctl(&connect, &["--json", "deadlocks"])).await;
    serde_json::from_slice(&ran.stdout).unwrap()
}

/// Takes one lock, waits until the other is taken too, and runs a run that wants that one.
fn pair(ensemble: &TestEnsemble, family: &Family, [first, second]: [&str; 2]) -> Child {
    let script = format!(
        ": > {first}; until [ -e {second} ]; do sleep 0.05; done; \
         {LOCKCTL} run /locks/{second} -- true"
    );
    let connect = server(ensemble).connect_string();
    let path = format!("/locks/{first}");
    let mut run = family.run(&connect, &[LONG, &path], &script);
    run.spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nested_runs_in_opposite_orders_are_found_to_be_a_deadlock() {
    let ensemble = start().await;
    let family = Family::new();
    let mut one = pair(&ensemble, &family, ["a", "b"]);
    let mut other = pair(&ensemble, &family, ["b", "a"]);
    for path in ["/locks/a", "/locks/b"] {
        ensemble.await_children(path, 2).await;
    }
    let found = deadlocks(&ensemble).await;
    let cycles = found["cycles"].as_array().unwrap();
    assert_eq!(cycles.len(), 1, "{found}");
    let cycle = cycles[0].as_array().unwrap();
    assert_eq!(cycle.len(), 2, "{found}");
    for (edge, next) in [(&cycle[0], &cycle[1]), (&cycle[1], &cycle[0])] {
        assert_eq!(edge["basis"], "owner");
        let holder = edge["holder"]["owner"].as_str().unwrap();
        let nested = next["waiter"]["owner"].as_str().unwrap();
        assert!(nested.starts_with(&format!("{holder}/")), "{found}");
        assert_eq!(nested.matches('/').count(), 1, "{found}");
    }
    signal(pid(&one), Signal::TERM);
    assert_eq!(ended(&mut one).await, Some(128 + 15));
    assert_eq!(ended(&mut other).await, Some(0));
    assert_eq!(deadlocks(&ensemble).await["cycles"], Value::Array(vec![]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_inside_a_run_does_not_enter_what_that_one_holds_and_says_so() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let inner = [LOCKCTL, "run", "--timeout", "0s", PATH, "--", "true"];
    let outer = [&["run", LONG, PATH, "--"][..], &inner].concat();
    let ran = output(lockctl(&connect, &outer)).await;
    assert_eq!(ran.status.code(), Some(75), "{ran:?}");
    assert!(said(&ran).contains(PATH), "{ran:?}");

    let inner = [LOCKCTL, "run", PATH, "--", "true"];
    let outer = [&["run", LONG, PATH, "--"][..], &inner].concat();
    let mut outer = lockctl(&connect, &outer);
    let mut run = outer.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(run.stderr.take().unwrap()).lines();
    let line = timeout(PATIENCE, lines.next_line()).await;
    let line = line.expect("nothing is said").unwrap().unwrap();
    let expected = ", the run that this one is part of: neither will ever go on";
    assert!(line.ends_with(expected), "{line}");
    let found = deadlocks(&ensemble).await;
    assert_eq!(found["cycles"][0].as_array().unwrap().len(), 1, "{found}");
    signal(pid(&run), Signal::TERM);
    assert_eq!(ended(&mut run).await, Some(128 + 15));
    ensemble.await_children(PATH, 0).await;
}

/// The outer run would reach the inner command too, to which the inner run passes the signal on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signal_reaches_the_command_of_a_run_inside_a_run_once() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let family = Family::new();
    let script = "
        trap 'echo term >> got' TERM; trap 'echo hup >> got' HUP; trap 'echo quit >> got; exit 9' QUIT
        : > ready; while :; do sleep 0.05; done
    ";
    let inner = format!("exec {LOCKCTL} run {LONG} /locks/inner -- sh -c \"$0\"");
    let mut outer = family.run(&connect, &[LONG, PATH], &inner);
    let mut run = outer.arg(script).spawn().unwrap();
    let ready = async || family.path("ready").exists().then_some(());
    ensemble.until("the command", ready).await;
    for (sent, name) in [
        (Signal::TERM, "term"),
        (Signal::HUP, "hup"),
        (Signal::QUIT, "quit"),
    ] {
        signal(pid(&run), sent);
        let written = async || family.read("got").contains(name).then_some(());
        ensemble.until(name, written).await;
    }
    assert_eq!(ended(&mut run).await, Some(9));
    assert_eq!(family.read("got"), "term\nhup\nquit\n");
}

/// They wait for a third party that waits for one of them, which ends by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_side_by_side_in_a_run_are_no_deadlock() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let family = Family::new();
    let third = "
        : > third; until [ -e first ]; do sleep 0.05; done
        LOCKCTL run /locks/a -- true
    ";
    let both = "
        LOCKCTL run /locks/a -- sh -c ': > first; until [ -e end ]; do sleep 0.05; done' &
        until [ -e third ] && [ -e first ]; do sleep 0.05; done
        LOCKCTL run /locks/b -- true
        wait
    ";
    let [third, both] = [third, both].map(|it| it.replace("LOCKCTL", LOCKCTL));
    let mut third = family.run(&connect, &[LONG, "/locks/b"], &third);
    let mut third = third.spawn().unwrap();
    let mut both = family.run(&connect, &[LONG, PATH], &both).spawn().unwrap();
    for path in ["/locks/a", "/locks/b"] {
        ensemble.await_children(path, 2).await;
    }
    let found = deadlocks(&ensemble).await;
    assert_eq!(found["cycles"], Value::Array(vec![]), "{found}");
    assert_eq!(found["waits"].as_array().unwrap().len(), 2, "{found}");
    std::fs::write(family.path("end"), "").unwrap();
    assert_eq!(ended(&mut both).await, Some(0));
    assert_eq!(ended(&mut third).await, Some(0));
}
