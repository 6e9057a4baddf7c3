//! Errors are reported in one line, with the right exit code.

use recipes_multilock::Member;
use test_rig::{Direction, FaultProxy, Opcode, ZooKeeperServer};
use tokio::process::Command;

use super::{held, server, start};
use crate::lockctl::{lockctl, output, said};

const ALL: [&str; 5] = ["ls", "inspect", "revoke", "break", "deadlocks"];

fn command(connect: &str, task: &str, path: &str) -> Command {
    let mut arguments = vec![task, path];
    if task == "break" {
        arguments.push("--yes");
    }
    lockctl(connect, &arguments)
}

async fn assert_code(command: Command, code: i32, names: &str) {
    let ran = output(command).await;
    assert_eq!(ran.status.code(), Some(code), "{ran:?}");
    assert_eq!(ran.stdout, b"");
    assert!(said(&ran).contains(names), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn path_that_does_not_exist_or_cannot() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    for task in ALL {
        assert_code(
            command(&connect, task, "/nothing/here"),
            66,
            "/nothing/here",
        )
        .await;
        assert_code(command(&connect, task, "no-slash"), 64, "no-slash").await;
        assert_code(command(&connect, task, "/a//b"), 64, "/a//b").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn path_that_is_no_lock() {
    let ensemble = start().await;
    ensemble.create("/config/limits", b"data").await;
    let connect = server(&ensemble).connect_string();
    for task in ["inspect", "revoke", "break"] {
        for path in ["/config", "/config/limits"] {
            assert_code(command(&connect, task, path), 66, path).await;
        }
    }
    assert!(ensemble.read("/config/limits").await.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_ensemble() {
    let server = ZooKeeperServer::start().await.unwrap();
    let connect = server.connect_string();
    server.stop().await.unwrap();
    for task in ALL {
        let mut command = command(&connect, task, "/locks");
        command.env("LOCKCTL_CONNECT_TIMEOUT", "300ms");
        assert_code(command, 69, &connect).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connect_string_that_makes_no_sense() {
    for connect in ["", "host:port", "host:99999"] {
        assert_code(command(connect, "ls", "/"), 64, connect).await;
    }
}

/// Held at the proxy between the list and the read of a listed node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_that_vanishes_while_it_is_read() {
    let ensemble = start().await;
    let session = ensemble.session().await;
    for (task, code) in [
        ("ls", 0),
        ("inspect", 0),
        ("deadlocks", 0),
        ("revoke", 66),
        // There is no node left that its question could name, so no answer is needed.
        ("break", 66),
    ] {
        let guard = held(&session, Member::mutex("/locks/a")).await;
        let proxy = FaultProxy::start(&server(&ensemble).connect_string())
            .await
            .unwrap();
        let reads = proxy.on(Direction::ToServer).opcode(Opcode::GetData);
        let gate = reads.path_contains("lock-").hold();
        let root = if matches!(task, "ls" | "deadlocks") {
            "/locks"
        } else {
            "/locks/a"
        };
        let running = tokio::spawn(output(lockctl(&proxy.connect_string(), &[task, root])));
        gate.reached().await;
        guard.release().await.unwrap();
        gate.release();
        let ran = running.await.unwrap();
        assert_eq!(ran.status.code(), Some(code), "{task}: {ran:?}");
        if code == 66 {
            assert!(said(&ran).contains("nobody holds \"/locks/a\""), "{ran:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_timeout_that_nobody_can_be_asked_for() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    for timeout in ["597h", "1000h", "2147483648ms"] {
        let ran = output(lockctl(&connect, &["--session-timeout", timeout, "ls"])).await;
        assert_eq!(ran.status.code(), Some(64), "{ran:?}");
        let said = String::from_utf8(ran.stderr).unwrap();
        assert!(
            said.contains("--session-timeout") && said.contains("596h"),
            "{said}"
        );
    }
    let ran = output(lockctl(&connect, &["--session-timeout", "596h", "ls"])).await;
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
}

/// Connections are never unencrypted, whichever option is missing.
#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_never_passed_over() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let (ca, files) = (
        ["--tls-ca", "/no/ca.pem"],
        ["--tls-cert", "/no/c.pem", "--tls-key", "/no/k.pem"],
    );
    for options in [&ca[..], &files] {
        for arguments in [[options, &["ls"]].concat(), [&["ls"], options].concat()] {
            for tls in [None, Some("true"), Some("false")] {
                let mut command = lockctl(&connect, &arguments);
                command.envs(tls.map(|it| ("LOCKCTL_TLS", it)));
                assert_code(command, 64, "/no/").await;
            }
        }
    }
}
