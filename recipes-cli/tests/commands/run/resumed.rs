//! A supervisor that was halted for some time while nothing was lost.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep, timeout};

use super::family::{Family, is_halted};
use super::process::{pid, signal};
use super::{KEPT, KEPT_FOR, PATH, next_in_line, server, start};
use crate::lockctl::PATIENCE;

/// The deadlines that it had when it was halted have passed, and `lockctl` has moved them.
async fn goes_on(signals_meanwhile: usize) {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let family = Family::new();
    let script = r#"
        trap 'exit 9' TERM; trap '' INT
        : > ready; while :; do sleep 0.05; done
    "#;
    let mut run = family.run(&connect, &[KEPT, PATH], script);
    let run = run.stderr(Stdio::piped()).spawn().unwrap();
    let ready = async || family.path("ready").exists().then_some(());
    ensemble.until("the command", ready).await;
    let children = format!("/proc/{0}/task/{0}/children", pid(&run));
    let supervisor = std::fs::read_to_string(children).unwrap();
    let supervisor = supervisor.trim().parse().unwrap();
    let (_session, next) = next_in_line(&ensemble).await;
    signal(supervisor, Signal::STOP);
    for _ in 0..signals_meanwhile {
        signal(pid(&run), Signal::INT);
        sleep(Duration::from_millis(1)).await;
    }
    let since = Instant::now();
    let deadlines_pass = async || {
        assert!(!next.is_finished(), "the lock is not held any more");
        (since.elapsed() > KEPT_FOR).then_some(())
    };
    ensemble.until("some time", deadlines_pass).await;
    assert!(is_halted(supervisor));
    signal(supervisor, Signal::CONT);
    let lockctl = Pid::from_raw(pid(&run)).unwrap();
    let asked = async {
        // Orders that come before the socket has space are lost.
        while kill_process(lockctl, Signal::TERM).is_ok() {
            sleep(Duration::from_millis(100)).await;
        }
        std::future::pending().await
    };
    let ended = tokio::select! {
        biased;
        ended = timeout(PATIENCE, run.wait_with_output()) => ended,
        () = asked => unreachable!("it is pending"),
    };
    let ended = ended.expect("lockctl does not end").unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(9), "{said}");
    // The shell says that its `sleep` was terminated, and a busy server may be late with the close.
    let mut news = said.lines().filter(|it| it.starts_with("lockctl:"));
    assert!(
        news.all(|it| it.contains("the session is not closed")),
        "{said}"
    );
    drop(next.await.unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn supervisor_that_is_resumed_does_not_kill_a_healthy_command() {
    goes_on(0).await;
}

/// Some three hundred orders fill the socket. No later deadline finds its way through it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn supervisor_whose_orders_did_not_fit_does_not_kill_a_healthy_command() {
    goes_on(1000).await;
}
