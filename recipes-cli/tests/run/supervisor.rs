//! The supervisor, by itself: what it does with the first that it is told.

use std::fs::File;
use std::io::{IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Output, Stdio};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::family::Family;
use crate::zklock::output;

/// Starts it as `zklock` does, tells it this, and closes the socket.
async fn supervised(family: &Family, on_lost: &str, first: Option<Value>) -> Output {
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_zklock"));
    let plan = json!({"on_lost": on_lost, "own_group": true});
    command.arg0("zklock-supervise").arg(plan.to_string());
    command.args(["sh", "-c", "echo ran > ran"]);
    command.current_dir(family.path("."));
    command.stdin(Stdio::from(OwnedFd::from(theirs)));
    hand_over(&ours, &File::open("/dev/null").unwrap());
    if let Some(order) = first {
        ours.write_all(format!("{order}\n").as_bytes()).unwrap();
    }
    ours.shutdown(std::net::Shutdown::Write).unwrap();
    output(command).await
}

fn hand_over(socket: &UnixStream, input: &File) {
    let descriptors = [input.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let hello = [IoSlice::new(b"!")];
    sendmsg(socket, &hello, &mut control, SendFlags::empty()).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_started_before_its_deadline_is_known_or_after_it() {
    let passed = json!({"schedule": {"ask_at": null, "kill_at": 0}});
    for on_lost in ["term", "kill", "ignore"] {
        for first in [
            None,
            Some(json!("lost")),
            Some(json!({"signal": 15})),
            Some(passed.clone()),
        ] {
            let family = Family::new();
            let ended = supervised(&family, on_lost, first.clone()).await;
            assert_eq!(family.read("ran"), "", "{on_lost} {first:?}");
            assert_eq!(ended.status.code(), Some(0), "{ended:?}");
            assert_eq!(ended.stdout, b"", "{on_lost} {first:?}");
        }
    }
    // It is what is told that makes the difference.
    let family = Family::new();
    let unending = json!({"schedule": {"ask_at": null, "kill_at": null}});
    supervised(&family, "ignore", Some(unending)).await;
    assert_eq!(family.read("ran"), "ran\n");
}
