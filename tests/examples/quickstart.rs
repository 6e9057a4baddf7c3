//! The quickstart prints the same story in memory and on a real server.

use std::process::{Command, Output};

use test_rig::ZooKeeperServer;

use crate::executable::executable;

fn quickstart(arguments: &[&str]) -> Output {
    Command::new(executable("quickstart"))
        .args(arguments)
        .env_remove("LOCKS_URL")
        // With this environment it would find no server, no Curator and no Java.
        .env("ZOOKEEPER_HOME", "/nonexistent")
        .env("JAVA_HOME", "/nonexistent")
        .output()
        .unwrap()
}

fn story(output: &Output) -> String {
    let story = String::from_utf8(output.stdout.clone()).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{story}\n{errors}");
    for line in [
        "Alice acquires it with fencing token",
        "she holds it 2 times",
        "Bob waits for 200ms and gives up",
        "still holds the lock: true",
        "Bob has it, with a higher token",
        "Bob drops his guard",
        "queue: empty",
        "The session is closed.",
    ] {
        assert!(story.contains(line), "no {line:?} in\n{story}");
    }
    story
}

#[test]
fn it_needs_no_server() {
    let story = story(&quickstart(&[]));
    assert!(story.contains("in memory"), "{story}");
}

#[tokio::test]
async fn it_runs_on_a_real_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    let story = story(&quickstart(&["--connect", &server.connect_string()]));
    assert!(!story.contains("in memory"), "{story}");
}

#[test]
fn it_explains_what_it_does_not_understand() {
    let output = quickstart(&["--conect"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("--connect"));
}
