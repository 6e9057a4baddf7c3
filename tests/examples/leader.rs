//! One of two workers leads, and the other follows it.

use std::process::{Command, Output};

use test_rig::ZooKeeperServer;

use crate::executable::executable;

fn leader(store: Option<&str>) -> Output {
    let mut command = Command::new(executable("leader"));
    command.env_remove("LOCKS_URL");
    if let Some(address) = store {
        command.env("LOCKS_URL", address);
    }
    command.output().unwrap()
}

fn assert_handed_over(output: &Output) {
    let story = String::from_utf8(output.stdout.clone()).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{story}\n{errors}");
    let mut rest = story.as_str();
    // In this order.
    for line in [
        "The leader is anna, in term ",
        "anna works, under term ",
        "bert leaves the work to the leader.",
        "anna is stopped",
        "The leader is bert, in term ",
        "bert works, under term ",
        "Nobody leads.",
    ] {
        let Some((_, after)) = rest.split_once(line) else {
            panic!("no {line:?} in its place in\n{story}")
        };
        rest = after;
    }
}

#[test]
fn it_needs_no_server() {
    assert_handed_over(&leader(None));
}

#[tokio::test]
async fn it_runs_on_a_real_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    assert_handed_over(&leader(Some(&server.connect_string())));
}
