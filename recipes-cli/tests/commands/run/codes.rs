//! The results: exit codes, output, and one line about an error.

use std::process::{Output, Stdio};

use test_rig::{Cut, Direction, FaultProxy, RedisServer, ZooKeeperServer, own};
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use super::family::Family;
use super::{LONG, PATH, mutex, server, start};
use crate::lockctl::{PATIENCE, lines, lockctl, output, said};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn code_of_the_command_is_passed_through() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let family = Family::new();
    for (script, code) in [
        ("exit 0", 0),
        ("exit 3", 3),
        ("exit 255", 255),
        ("kill -9 $$", 137),
    ] {
        let ran = output(family.run(&connect, &[PATH], script)).await;
        assert_eq!(ran.status.code(), Some(code), "{script}");
        assert_eq!(lines(&ran), "", "{script}");
    }
    for (command, code) in [("/no/such/command", 127), ("/etc/passwd", 126)] {
        let ran = output(lockctl(&connect, &["run", PATH, "--", command])).await;
        assert_eq!(ran.status.code(), Some(code));
        assert!(said(&ran).contains(command));
    }
    ensemble.await_children(PATH, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn input_output_and_environment_are_the_commands() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let family = Family::new();
    let script = r#"cat; echo "$1"; echo "$LOCKCTL_PATHS"; echo "$LOCKCTL_TOKENS" >&2"#;
    // Two locks, not in the order of their paths.
    let mut command = family.run(&connect, &["/locks/b", "/locks/a"], script);
    command.args(["name", "a word"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut run = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut input = run.stdin.take().unwrap();
    input.write_all(b"from outside\n").await.unwrap();
    drop(input);
    let ran = run.wait_with_output().await.unwrap();
    let text = String::from_utf8(ran.stdout).unwrap();
    assert_eq!(text, "from outside\na word\n/locks/b\n/locks/a\n");
    let tokens = String::from_utf8(ran.stderr).unwrap();
    let tokens: Vec<i64> = tokens.lines().map(|it| it.parse().unwrap()).collect();
    assert_eq!(tokens.len(), 2);
    assert_eq!(ran.status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credentials_are_not_the_commands() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let mut command = lockctl(&connect, &["run", PATH, "--", "env"]);
    command.env("LOCKCTL_AUTH", "digest:nightly:secret");
    let ran = output(command).await;
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    let environment = String::from_utf8(ran.stdout).unwrap();
    let has = |what: &str| environment.lines().any(|it| it.contains(what));
    assert!(has("LOCKCTL_CONNECT=") && !has("LOCKCTL_AUTH") && !has("digest:nightly"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn address_with_a_password_is_not_the_commands() {
    let server = RedisServer::builder().setting("requirepass", "secret");
    let server = server.start().await.unwrap();
    let connect = format!("redis://:secret@127.0.0.1:{}", server.port());
    let arguments = ["run", "--session-timeout", "2s", PATH, "--", "env"];
    let ran = output(lockctl(&connect, &arguments)).await;
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    let environment = String::from_utf8(ran.stdout).unwrap();
    assert!(environment.contains("PATH=") && !environment.contains("secret"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn modes_are_those_of_the_recipes() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    for (mode, marker) in [
        ("mutex", "-lock-"),
        ("read", "-__READ__"),
        ("write", "-__WRIT__"),
    ] {
        let family = Family::new();
        let path = format!("/locks/{mode}");
        let script = ": > ready; until [ -e go ]; do sleep 0.05; done";
        let mut run = family
            .run(&connect, &["--mode", mode, &path], script)
            .spawn()
            .unwrap();
        let ready = async || family.path("ready").exists().then_some(());
        ensemble.until("the command", ready).await;
        let nodes = ensemble.await_children(&path, 1).await;
        assert!(nodes[0].contains(marker), "{nodes:?}");
        std::fs::write(family.path("go"), "").unwrap();
        assert_eq!(super::process::ended(&mut run).await, Some(0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_that_is_not_free_in_time_is_told_and_nothing_runs() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string();
    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    let family = Family::new();
    for (timeout, waited) in [("0s", "at once"), ("3s", "within 3 s")] {
        let arguments = [LONG, "--timeout", timeout, PATH];
        let ran = output(family.run(&connect, &arguments, "echo ran > ran")).await;
        assert_eq!(ran.status.code(), Some(75));
        let said = said(&ran);
        assert!(said.contains(PATH) && said.contains(waited), "{said}");
    }
    assert_eq!(family.read("ran"), "");
    assert_eq!(ensemble.children(PATH).await.len(), 1);
    held.release().await.unwrap();
}

/// What it said last, after it has told for whom it waits.
fn last(ran: &Output) -> String {
    let told = lines(ran);
    told.lines().last().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_ensemble_nothing_runs() {
    let server = ZooKeeperServer::start().await.unwrap();
    let connect = server.connect_string();
    server.stop().await.unwrap();
    let family = Family::new();
    let arguments = ["--connect-timeout=500ms", PATH];
    let ran = output(family.run(&connect, &arguments, "echo ran > ran")).await;
    assert_eq!(ran.status.code(), Some(69));
    assert!(said(&ran).contains(&connect));
    assert_eq!(family.read("ran"), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_limit_is_for_connecting_too() {
    let server = ZooKeeperServer::start().await.unwrap();
    let connect = server.connect_string();
    server.stop().await.unwrap();
    let arguments = ["--connect-timeout=5m", "--timeout=700ms", PATH];
    let family = Family::new();
    let ran = output(family.run(&connect, &arguments, "echo ran > ran")).await;
    assert_eq!(ran.status.code(), Some(69));
    assert!(said(&ran).contains("within 700 ms"), "{ran:?}");
}

/// A script that takes 75 for "another process does the work" would do nothing, and no other would.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ensemble_that_went_away_meanwhile_is_not_taken_for_another_holder() {
    let ensemble = start().await;
    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    for is_silent in [false, true] {
        let direct = server(&ensemble).connect_string();
        let proxy = FaultProxy::start(&direct).await.unwrap();
        let family = Family::new();
        let arguments = [LONG, "--connect-timeout=5m", "--timeout=20s", PATH];
        let mut command = family.run(&proxy.connect_string(), &arguments, "echo ran > ran");
        command.stderr(Stdio::piped());
        let run = command.spawn().unwrap();
        ensemble.await_children(PATH, 2).await;
        if is_silent {
            proxy.black_hole(Direction::ToServer);
            proxy.black_hole(Direction::FromServer);
        } else {
            proxy.refuse_connections().await;
            proxy.cut_all(Cut::Reset);
        }
        let ended = timeout(PATIENCE, run.wait_with_output()).await;
        let ran = ended.expect("lockctl does not end").unwrap();
        assert_eq!(ran.status.code(), Some(69), "{is_silent}: {ran:?}");
        assert!(last(&ran).contains("no answer from the store"), "{ran:?}");
        assert_eq!(family.read("ran"), "");
        // The nodes that it has left behind.
        for node in ensemble.children(PATH).await {
            let (_, stat) = ensemble.read(&format!("{PATH}/{node}")).await.unwrap();
            if Some(stat.ephemeral_owner) != session.session_id() {
                let server = server(&ensemble);
                server.expire(stat.ephemeral_owner).await.unwrap();
            }
        }
        ensemble.await_children(PATH, 1).await;
    }
    held.release().await.unwrap();
}

/// Until it misses a heartbeat, the session takes a frozen server for one that has nothing to report.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frozen_server_is_told_from_a_busy_lock() {
    let ensemble = own::on_a_real_server().await;
    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    let connect = server(&ensemble).connect_string();
    for (is_frozen, code) in [(false, 75), (true, 69)] {
        let arguments = ["run", LONG, "--timeout=20s", PATH, "--", "true"];
        let mut run = lockctl(&connect, &arguments);
        let run = run.stderr(Stdio::piped()).spawn().unwrap();
        ensemble.await_children(PATH, 2).await;
        if is_frozen {
            server(&ensemble).own_server().pause().unwrap();
        }
        let ended = timeout(PATIENCE, run.wait_with_output()).await;
        let ran = ended.expect("lockctl does not end").unwrap();
        assert_eq!(ran.status.code(), Some(code), "{ran:?}");
        let is_silence = last(&ran).contains("no answer from the store");
        assert_eq!(is_silence, is_frozen, "{ran:?}");
        server(&ensemble).own_server().resume().unwrap();
    }
    drop(held);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_chroot_has_a_code_and_the_help_names_all() {
    let ensemble = start().await;
    let connect = server(&ensemble).connect_string() + "/no/such/chroot";
    let ran = output(lockctl(&connect, &["run", PATH, "--", "true"])).await;
    assert_eq!(ran.status.code(), Some(66), "{ran:?}");
    said(&ran);
    let help = output(lockctl(&connect, &["run", "--help"])).await.stdout;
    let help = String::from_utf8(help).unwrap();
    let (_, codes) = help.split_once("Exit codes:").unwrap();
    for code in [64, 66, 69, 70, 75, 76, 77, 126, 127, 128] {
        assert!(codes.contains(&code.to_string()), "{code} not in {codes}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_makes_no_sense_is_refused_before_anything_is_sent() {
    // No server listens there, and no request is sent.
    let connect = "127.0.0.1:1";
    let refused: [&[&str]; 14] = [
        &["run", "no-slash", "--", "true"],
        &["run", "/a//b", "--", "true"],
        &["run", "/a", "/a", "--", "true"],
        &["run", "/a"],
        &["run", "--", "true"],
        &["run", "--timeout", "soon", "/a", "--", "true"],
        &["run", "--mode", "both", "/a", "--", "true"],
        &["dance"],
        &["run", "--log", "debgu", "/a", "--", "true"],
        &["run", "--log", "lock_recipe=debug", "/a", "--", "true"],
        &["run", "--acl", "everyone", "/a", "--", "true"],
        &["run", "--acl", "world:anyone:cdrwx", "/a", "--", "true"],
        &["run", "--acl", "creator", "/a", "--", "true"],
        &["run", "--acl", "world:anyone:r", "/a", "--", "true"],
    ];
    for arguments in refused {
        let ran = output(lockctl(connect, arguments)).await;
        assert_eq!(ran.status.code(), Some(64), "{arguments:?}: {ran:?}");
        assert!(!ran.stderr.is_empty());
    }
    let mut without = lockctl(connect, &["run", "/a", "--", "true"]);
    without.env_remove("LOCKCTL_CONNECT");
    let ran = output(without).await;
    assert_eq!(ran.status.code(), Some(64));
    assert!(said(&ran).contains("LOCKCTL_CONNECT"));
    for (variable, value, expected) in [
        (
            "LOCKCTL_LOG",
            "debgu",
            "\"debgu\" is neither a level nor a target",
        ),
        ("LOCKCTL_OWNER", "not a run", "unset it"),
        ("LOCKCTL_ACL", "digest:ops:secret:r", "not a password"),
        ("LOCKCTL_ACL", "creator", "without credentials"),
        (
            "LOCKCTL_ACL",
            "ip:secret:cdwa",
            "locks everybody out, because no entry has r (READ), without which",
        ),
    ] {
        let mut command = lockctl(connect, &["run", "/a", "--", "true"]);
        command.env(variable, value);
        let ran = output(command).await;
        assert_eq!(ran.status.code(), Some(64), "{variable}: {ran:?}");
        let said = String::from_utf8(ran.stderr).unwrap();
        assert!(said.contains(expected), "{variable}: {said}");
        assert!(!said.contains("secret"), "{said}");
    }
}

/// As a terminal of any width would have it: no line ends before the next word would not fit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn help_is_wrapped_once() {
    for task in ["run", "deadlocks"] {
        for width in [60, 80, 100] {
            let mut command = lockctl("", &[task, "--help"]);
            command.env("COLUMNS", width.to_string());
            let help = String::from_utf8(output(command).await.stdout).unwrap();
            let (_, rest) = match task {
                "run" => help.split_once("Ctrl-C reaches"),
                _ => help.split_once("Exit codes:"),
            }
            .unwrap();
            let lines: Vec<_> = rest.lines().skip(1).collect();
            assert!(lines.iter().any(|it| !it.is_empty()), "{help}");
            for pair in lines.windows(2) {
                let word = pair[1].split(' ').next().unwrap();
                let is_needed = pair[0].len() + 1 + word.len() > width;
                let ends_paragraph = pair[0].is_empty() || word.is_empty();
                assert!(is_needed || ends_paragraph, "{width}: {pair:?}");
                assert!(pair[0].len() <= width, "{width}: {pair:?}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_may_not_lock_is_told_so() {
    use zookeeper_client::{Acls, CreateMode};

    let ensemble = start().await;
    let operator = server(&ensemble).client_of_place().await;
    let options = CreateMode::Persistent.with_acls(Acls::anyone_read());
    operator.create("/closed", b"", &options).await.unwrap();
    let family = Family::new();
    let connect = server(&ensemble).connect_string();
    let ran = output(family.run(&connect, &["/closed"], "echo ran > ran")).await;
    assert_eq!(ran.status.code(), Some(77));
    assert!(said(&ran).contains("/closed"));
    assert_eq!(family.read("ran"), "");
}
