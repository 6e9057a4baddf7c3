//! Many commands under one lock at a time.

use futures::future::join_all;

use super::family::Family;
use super::process::ended;
use super::{LONG, PATH, server, start};

const COMMANDS: usize = 200;

/// Judged by the file alone: the lines of each command are together, in the order of the tokens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_commands_under_one_lock_never_overlap() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let family = Family::new();
    let script = r#"
        echo "in $LOCKCTL_TOKENS" >> journal; sleep 0.01; echo "out $LOCKCTL_TOKENS" >> journal
    "#;
    // Otherwise the first ones would give up while the machine starts the others.
    let arguments = [LONG, "--connect-timeout=5m", PATH];
    let started = (0..COMMANDS).map(|_| family.run(&connect, &arguments, script).spawn().unwrap());
    let mut started: Vec<_> = started.collect();
    let codes = join_all(started.iter_mut().map(ended)).await;
    assert_eq!(codes, vec![Some(0); COMMANDS]);

    let journal = family.read("journal");
    let lines: Vec<_> = journal.lines().collect();
    assert_eq!(lines.len(), 2 * COMMANDS);
    let mut last = 0;
    for pair in lines.chunks_exact(2) {
        let token: i64 = pair[0].strip_prefix("in ").unwrap().parse().unwrap();
        assert_eq!(pair[1], format!("out {token}"), "{pair:?}");
        assert!(token > last, "{token} after {last}");
        last = token;
    }
    ensemble.await_children(PATH, 0).await;
}
