//! Requests to give the lock up.

use std::fs;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::family::Family;
use super::process::ended;
use super::{LONG, PATH, mutex, server, start};
use crate::lockctl::{lockctl, output, said};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_is_told_to_end_for_who_asks_where_that_is_wanted() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    for (on_revoke, code) in [("term", 9), ("tell", 0)] {
        let family = Family::new();
        // Shells report children that a signal ended.
        let script = "exec 2>/dev/null; trap 'exit 9' TERM; : > ready; until [ -e done ]; do sleep 0.05; done";
        let arguments = [LONG, "--on-revoke", on_revoke, PATH];
        let mut run = family.run(&connect, &arguments, script);
        let mut run = run.stderr(Stdio::piped()).spawn().unwrap();
        let ready = async || family.path("ready").exists().then_some(());
        ensemble.until("the command", ready).await;
        let asked = output(lockctl(&connect, &["revoke", PATH])).await;
        assert_eq!(asked.status.code(), Some(0), "{asked:?}");
        let mut said = BufReader::new(run.stderr.take().unwrap()).lines();
        let line = said.next_line().await.unwrap();
        assert_eq!(
            line.as_deref(),
            Some("lockctl: somebody asks for the lock /locks/nightly")
        );
        if on_revoke == "tell" {
            fs::write(family.path("done"), "").unwrap();
        }
        assert_eq!(ended(&mut run).await, Some(code), "{on_revoke}");
        let session = ensemble.session().await;
        let next = mutex(&session).try_acquire().await.unwrap();
        next.unwrap().release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_of_a_set_that_is_asked_for_is_named() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let family = Family::new();
    // Shells report children that a signal ended.
    let script = "exec 2>/dev/null; trap 'exit 9' TERM; : > ready; while :; do sleep 0.05; done";
    let arguments = [LONG, "--on-revoke", "term", "/locks/a", "/locks/b"];
    let mut run = family.run(&connect, &arguments, script);
    let run = run.stderr(Stdio::piped()).spawn().unwrap();
    let ready = async || family.path("ready").exists().then_some(());
    ensemble.until("the command", ready).await;
    let asked = output(lockctl(&connect, &["revoke", "/locks/b"])).await;
    assert_eq!(asked.status.code(), Some(0), "{asked:?}");
    let ran = run.wait_with_output().await.unwrap();
    assert_eq!(ran.status.code(), Some(9));
    let expected = "lockctl: somebody asks for the lock /locks/b\n";
    assert_eq!(said(&ran), expected);
}
