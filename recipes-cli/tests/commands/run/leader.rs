//! Commands that run as the leader of an election.

use std::process::Stdio;
use std::time::Duration;

use futures::future::join_all;
use recipes_leader::{ElectionLayout, LeaderElection};
use rustix::process::Signal;
use test_rig::TestEnsemble;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::time::timeout;

use super::family::{Family, alive, gone};
use super::process::{ended, pid, signal};
use super::{LONG, PATH, SHORT, mutex, server, start};
use crate::lockctl::{PATIENCE, output, said};

const MODES: [(&str, ElectionLayout); 2] = [
    ("leader", ElectionLayout::LeaderSelector),
    ("leader-latch", ElectionLayout::LeaderLatch),
];

/// An election that this process only looks at, or leads.
async fn election(ensemble: &TestEnsemble, layout: ElectionLayout) -> LeaderElection {
    let session = ensemble.session().await;
    LeaderElection::with_layout(&session, PATH, "rust", layout).unwrap()
}

async fn ids(election: &LeaderElection) -> Vec<String> {
    let candidates = election.candidates().await.unwrap();
    candidates.into_iter().map(|it| it.id).collect()
}

/// Judged by the file alone: the lines of each command are together, in the order of the terms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_lead_one_at_a_time_in_the_order_of_their_terms() {
    const COMMANDS: usize = 12;
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    for (mode, _) in MODES {
        let family = Family::new();
        let script = r#"
            echo "in $LOCKCTL_TOKENS" >> journal; sleep 0.05; echo "out $LOCKCTL_TOKENS" >> journal
        "#;
        let arguments = [LONG, "--connect-timeout=5m", "--mode", mode, PATH];
        let run = |_| family.run(&connect, &arguments, script).spawn().unwrap();
        let mut started: Vec<_> = (0..COMMANDS).map(run).collect();
        let codes = join_all(started.iter_mut().map(ended)).await;
        assert_eq!(codes, vec![Some(0); COMMANDS]);
        let journal = family.read("journal");
        let lines: Vec<_> = journal.lines().collect();
        assert_eq!(lines.len(), 2 * COMMANDS);
        let mut last = 0;
        for pair in lines.chunks_exact(2) {
            let term: i64 = pair[0].strip_prefix("in ").unwrap().parse().unwrap();
            assert_eq!(pair[1], format!("out {term}"), "{pair:?}");
            assert!(term > last, "{term} after {last}");
            last = term;
        }
        ensemble.await_children(PATH, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_of_a_killed_leader_is_gone_before_the_next_one_leads() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    for (mode, layout) in MODES {
        let (first, second) = (Family::new(), Family::new());
        let arguments = [SHORT, "--mode", mode, PATH];
        let mut killed = first.command(&connect, &arguments).spawn().unwrap();
        let members = first.members(&ensemble).await;
        let arguments = [LONG, "--connect-timeout=5m", "--mode", mode, PATH];
        let script = "echo \"$LOCKCTL_TOKENS\" > token; until [ -e go ]; do sleep 0.05; done";
        let mut next = second.run(&connect, &arguments, script).spawn().unwrap();
        ensemble.await_children(PATH, 2).await;
        assert_eq!(second.read("token"), "");
        signal(pid(&killed), Signal::KILL);
        assert_eq!(ended(&mut killed).await, None);
        let leads = async || (!second.read("token").is_empty()).then_some(());
        ensemble.until("the next leader", leads).await;
        let left = alive(&members);
        assert!(left.is_empty(), "another leads while these run: {left:?}");
        assert!(second.token() > first.token());
        assert_eq!(ids(&election(&ensemble, layout).await).await.len(), 1);
        std::fs::write(second.path("go"), "").unwrap();
        assert_eq!(ended(&mut next).await, Some(0));
        ensemble.await_children(PATH, 0).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_is_killed_at_once_when_its_candidate_is_deleted() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    for (mode, layout) in MODES {
        let family = Family::new();
        let arguments = [LONG, "--mode", mode, PATH];
        let mut run = family.command(&connect, &arguments).spawn().unwrap();
        let members = family.members(&ensemble).await;
        let leader = election(&ensemble, layout).await.leader().await.unwrap();
        ensemble.delete(&leader.unwrap().node_path).await;
        gone(&ensemble, &members).await;
        assert_eq!(ended(&mut run).await, Some(76));
        ensemble.await_children(PATH, 0).await;
    }
}

/// To whoever asks who leads, and to runs that wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn candidate_is_called_by_its_process_or_as_it_is_told() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    for (mode, layout) in MODES {
        let looks = election(&ensemble, layout).await;
        let mut named = vec![];
        let mut runs = vec![];
        let options: [&[&str]; 3] = [&[], &["--purpose", "nightly"], &["--id", "größer, 7"]];
        let family = Family::new();
        let script = "until [ -e go ]; do sleep 0.05; done";
        for (number, option) in options.into_iter().enumerate() {
            let arguments = [&[LONG, "--mode", mode], option, &[PATH]].concat();
            let mut run = family.run(&connect, &arguments, script);
            let run = run.stderr(Stdio::piped()).spawn().unwrap();
            ensemble.await_children(PATH, number + 1).await;
            let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
            let process = format!("lockctl(sh) {} pid {}", host.trim(), pid(&run));
            named.push(match number {
                0 => process,
                1 => format!("{process} \"nightly\""),
                _ => "größer, 7".to_owned(),
            });
            runs.push(run);
        }
        assert_eq!(ids(&looks).await, named);
        let mut lines = BufReader::new(runs[1].stderr.take().unwrap()).lines();
        let line = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap();
        let expected = format!("lockctl: waiting for {PATH}, held by {}", named[0]);
        assert_eq!(line.as_deref(), Some(expected.as_str()));
        std::fs::write(family.path("go"), "").unwrap();
        for mut run in runs {
            assert_eq!(ended(&mut run).await, Some(0));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_and_mutex_exclude_each_other_and_a_latch_is_refused_next_to_them() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let session = ensemble.session().await;
    let ran = async |mode| {
        let family = Family::new();
        let arguments = [LONG, "--timeout", "0s", "--mode", mode, PATH];
        let ran = output(family.run(&connect, &arguments, "echo ran > ran")).await;
        assert_eq!(family.read("ran"), "", "{mode}");
        (ran.status.code(), said(&ran))
    };
    let held = mutex(&session).acquire().await.unwrap();
    assert_eq!(ran("leader").await.0, Some(75));
    let (code, line) = ran("leader-latch").await;
    assert!(code == Some(64) && line.contains("is of a mutex"), "{line}");
    held.release().await.unwrap();

    let latch = election(&ensemble, ElectionLayout::LeaderLatch).await;
    let term = latch.campaign().await.unwrap();
    assert_eq!(ran("leader-latch").await.0, Some(75));
    for mode in ["leader", "mutex", "read", "write"] {
        let (code, line) = ran(mode).await;
        assert_eq!(code, Some(64), "{line}");
        for part in ["is of a leader latch", "or use --mode leader-latch\n"] {
            assert!(line.contains(part), "{line}");
        }
    }
    term.resign().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn impossible_candidates_are_refused_before_any_connection() {
    let family = Family::new();
    for (arguments, told) in [
        (&["--mode", "leader", PATH, "/locks/b"][..], "give one path"),
        (&["--mode", "leader-latch", PATH, "/b"], "give one path"),
        (&["--mode", "leader", "locks"], "path"),
        (&["--mode", "leader", "--id", "", PATH], "id"),
        (&["--mode", "leader", "--id", "__REVOKE__", PATH], "revo"),
        (&["--id", "a", PATH], "--id is of a candidate"),
        (
            &["--mode", "leader", "--id", "a", "--purpose", "b", PATH],
            "cannot be used with",
        ),
        (&["--mode", "leaders", PATH], "is no mode"),
    ] {
        let mut command = family.run("127.0.0.1:1", arguments, "true");
        let output = timeout(Duration::from_secs(60), command.output()).await;
        let output = output.unwrap().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}: {stderr}");
        assert!(stderr.contains(told), "{arguments:?}: {stderr}");
    }
}
