//! Credentials, as the ensemble sees them.

use recipes_multilock::Member;
use recipes_zookeeper::{Acls, ZooKeeper};

use super::{held, node_of, server, start};
use crate::lockctl::{lockctl, output, said};

const PATH: &str = "/locks/nightly";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_gets_at_what_is_closed_without_the_password() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let options = ZooKeeper::builder()
        .auth("digest", b"orders:secret")
        .acl(Acls::creator_all());
    let session = ensemble.session_with(options).await;
    let guard = held(&session, Member::mutex(PATH)).await;
    for task in [
        &["ls", PATH][..],
        &["inspect", PATH],
        &["revoke", PATH],
        &["break", "--yes", PATH],
        &["deadlocks", PATH],
        &["run", PATH, "--", "true"],
    ] {
        for auth in [None, Some("digest:orders:guess")] {
            let mut command = lockctl(&connect, task);
            command.envs(auth.map(|it| ("LOCKCTL_AUTH", it)));
            let ran = output(command).await;
            assert_eq!(ran.status.code(), Some(77), "{task:?}: {ran:?}");
            assert!(said(&ran).contains(PATH), "{task:?}: {ran:?}");
        }
    }
    assert!(guard.is_valid());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_come_from_a_flag_or_the_environment() {
    let ensemble = start().await;
    let options = ZooKeeper::builder()
        .auth("digest", b"orders:secret")
        .acl(Acls::creator_all());
    let session = ensemble.session_with(options).await;
    let guard = held(&session, Member::mutex(PATH)).await;
    let connect = server(&ensemble).connect_string();
    const RIGHT: &str = "digest:orders:secret";
    const WRONG: &str = "digest:orders:guess";
    for (flag, variable, code) in [
        (Some(RIGHT), None, 0),
        (None, Some(RIGHT), 0),
        // As with all options, the command line takes precedence.
        (Some(RIGHT), Some(WRONG), 0),
        (Some(WRONG), Some(RIGHT), 77),
    ] {
        let flag = flag.map(|it| ["--auth", it]);
        for task in [&["ls", PATH][..], &["inspect", PATH], &["deadlocks", PATH]] {
            let flag = flag.iter().flatten().copied();
            let arguments: Vec<_> = flag.chain(task.iter().copied()).collect();
            let mut command = lockctl(&connect, &arguments);
            command.envs(variable.map(|it| ("LOCKCTL_AUTH", it)));
            let ran = output(command).await;
            assert_eq!(ran.status.code(), Some(code), "{arguments:?}: {ran:?}");
        }
    }
    for task in [&["revoke", PATH][..], &["break", "--yes", PATH]] {
        let ran = output(lockctl(&connect, &[task, &["--auth", RIGHT]].concat())).await;
        assert_eq!(ran.status.code(), Some(0), "{ran:?}");
        assert!(
            ran.stdout
                .ends_with(format!("{}\n", node_of(&guard)).as_bytes())
        );
    }
    guard.lost().await;
    let ran = output(lockctl(
        &connect,
        &["--auth", RIGHT, "run", PATH, "--", "true"],
    ))
    .await;
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_that_make_no_sense_are_refused_and_not_repeated() {
    for secret in ["hunter2", ":hunter2", ""] {
        // No server listens there, and no request is sent.
        let by_flag = lockctl("127.0.0.1:1", &["--auth", secret, "ls"]);
        let mut by_environment = lockctl("127.0.0.1:1", &["ls"]);
        by_environment.env("LOCKCTL_AUTH", secret);
        for command in [by_flag, by_environment] {
            let ran = output(command).await;
            assert_eq!(ran.status.code(), Some(64), "{ran:?}");
            let said = said(&ran);
            assert!(said.contains("LOCKCTL_AUTH"), "{said}");
            assert!(!said.contains("hunter2"), "{said}");
        }
    }
}
