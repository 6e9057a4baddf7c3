//! Many commands under one lock at a time.

use futures::future::join_all;
use test_rig::asked_for;

use super::family::Family;
use super::process::ended;
use super::{LONG, PATH, server, start};

/// Judged by the file alone: the lines of each command are together, in the order of the tokens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_commands_under_one_lock_never_overlap() {
    let commands = asked_for("COMMANDS", 50);
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let family = Family::new();
    let script = r#"
        echo "in $LOCKCTL_TOKENS" >> journal; sleep 0.01; echo "out $LOCKCTL_TOKENS" >> journal
    "#;
    // Otherwise the first ones would give up while the machine starts the others.
    let arguments = [LONG, "--connect-timeout=5m", PATH];
    let started = (0..commands).map(|_| family.run(&connect, &arguments, script).spawn().unwrap());
    let mut started: Vec<_> = started.collect();
    let codes = join_all(started.iter_mut().map(ended)).await;
    assert_eq!(codes, vec![Some(0); commands]);

    let journal = family.read("journal");
    let lines: Vec<_> = journal.lines().collect();
    assert_eq!(lines.len(), 2 * commands);
    let mut last = 0;
    for pair in lines.chunks_exact(2) {
        let token: i64 = pair[0].strip_prefix("in ").unwrap().parse().unwrap();
        assert_eq!(pair[1], format!("out {token}"), "{pair:?}");
        assert!(token > last, "{token} after {last}");
        last = token;
    }
    ensemble.await_children(PATH, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_commands_run_at_a_time_than_there_are_permits() {
    const PERMITS: usize = 2;
    const COMMANDS: usize = 24;
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let family = Family::new();
    // Each notes how many are inside, itself included.
    let script = "touch in.$$; ls in.* | wc -l >> counts; sleep 0.1; rm in.$$";
    let arguments = [LONG, "--connect-timeout=5m", "--mode", "semaphore:2", PATH];
    let started = (0..COMMANDS).map(|_| family.run(&connect, &arguments, script).spawn().unwrap());
    let mut started: Vec<_> = started.collect();
    let codes = join_all(started.iter_mut().map(ended)).await;
    assert_eq!(codes, vec![Some(0); COMMANDS]);

    let counts = family.read("counts");
    let counts: Vec<usize> = counts
        .lines()
        .map(|it| it.trim().parse().unwrap())
        .collect();
    assert_eq!(counts.len(), COMMANDS);
    assert!(counts.iter().all(|it| *it <= PERMITS), "{counts:?}");
    for below in ["locks", "leases"] {
        ensemble.await_children(&format!("{PATH}/{below}"), 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impossible_semaphores_are_refused_before_any_connection() {
    let family = Family::new();
    for (arguments, told) in [
        (
            &["--mode", "semaphore:0", PATH][..],
            "is no number of permits",
        ),
        (
            &["--mode", "semaphore:3", PATH, "/locks/b"],
            "give one path",
        ),
        (
            &["--mode", "semaphore:10001", PATH],
            "1 to 10000 can be set",
        ),
    ] {
        let mut command = family.run("127.0.0.1:1", arguments, "true");
        let output = command.output().await.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{stderr}");
        assert!(stderr.contains(told), "{stderr}");
    }
}
