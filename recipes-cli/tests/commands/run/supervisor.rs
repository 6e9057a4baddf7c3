//! The supervisor by itself: how it reacts to its first orders.

use std::fs::File;
use std::io::{IoSlice, Write as _};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::family::{Family, gone, named};
use super::process::{ended, pid, signal};
use super::{LONG, PATH, server, start};

/// A supervisor, and the socket for its orders.
struct Alone {
    socket: UnixStream,
    process: Child,
}

impl Alone {
    /// Starts it as `lockctl` does.
    fn start(family: &Family, on_lost: &str, own_group: bool, script: &str) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let plan = json!({"on_lost": on_lost, "own_group": own_group});
        // It handles all signals, even if these tests were started to ignore some.
        let mut command = Command::new("env");
        let supervise = "exec -a lockctl-supervise \"$@\"";
        command.args(["--default-signal", "bash", "-c", supervise, "-"]);
        command.args([env!("CARGO_BIN_EXE_lockctl"), &plan.to_string()]);
        command.args(["env", "--default-signal", "sh", "-c", script]);
        command.current_dir(family.path(".")).kill_on_drop(true);
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        hand_over(&ours, &File::open("/dev/null").unwrap());
        let process = command.spawn().unwrap();
        Self {
            socket: ours,
            process,
        }
    }

    fn tell(&mut self, order: &Value) {
        // The supervisor may have ended.
        drop(self.socket.write_all(format!("{order}\n").as_bytes()));
    }

    /// Sends no more orders.
    async fn ended(mut self) -> Option<i32> {
        self.socket.shutdown(Shutdown::Write).unwrap();
        ended(&mut self.process).await
    }
}

fn hand_over(socket: &UnixStream, input: &File) {
    let descriptors = [input.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let hello = [IoSlice::new(b"!")];
    sendmsg(socket, &hello, &mut control, SendFlags::empty()).unwrap();
}

/// The kernel cuts names after fifteen bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn supervisor_has_a_name_for_ps_that_its_command_does_not_get() {
    let ensemble = start().await;
    let family = Family::new();
    let mut run = family.command(&server(&ensemble).connect_string(), &[LONG, PATH]);
    let mut run = run.spawn().unwrap();
    let members = family.members(&ensemble).await;
    let name = |pid: i32| std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    let shell = named(&members, "shell");
    let names = [pid(&run), shell.parent(), shell.pid].map(name);
    assert_eq!(names, ["lockctl\n", "lockctl-supervi\n", "sh\n"]);
    signal(pid(&run), Signal::KILL);
    ended(&mut run).await;
    gone(&ensemble, &members).await;
}

fn unending() -> Value {
    json!({"schedule": {"ask_at": null, "kill_at": null}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_started_before_its_deadline_is_known_or_after_it() {
    let passed = json!({"schedule": {"ask_at": null, "kill_at": 0}});
    let firsts = [
        None,
        Some(json!("lost")),
        Some(json!({"signal": 15})),
        Some(passed),
    ];
    for on_lost in ["term", "kill", "ignore"] {
        for first in &firsts {
            let family = Family::new();
            let mut alone = Alone::start(&family, on_lost, true, "echo ran > ran");
            first.iter().for_each(|order| alone.tell(order));
            assert_eq!(alone.ended().await, Some(0));
            assert_eq!(family.read("ran"), "", "{on_lost} {first:?}");
        }
    }
    // Only the orders make the difference.
    let family = Family::new();
    let mut alone = Alone::start(&family, "ignore", true, "echo ran > ran");
    alone.tell(&unending());
    assert_eq!(alone.ended().await, Some(0));
    assert_eq!(family.read("ran"), "ran\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signal_that_all_of_a_job_has_got_is_not_sent_again() {
    let ensemble = start().await;
    let family = Family::new();
    let script = "
        trap 'echo int >> got' INT; trap 'echo quit >> got' QUIT; trap 'exit 9' TERM
        : > ready; while :; do sleep 0.05; done
    ";
    let mut alone = Alone::start(&family, "term", false, script);
    alone.tell(&unending());
    let ready = async || family.path("ready").exists().then_some(());
    ensemble.until("the command", ready).await;
    let got = async |text: &str| {
        let written = async || (family.read("got").contains(text)).then_some(());
        ensemble.until(text, written).await;
    };
    alone.tell(&json!({"signal": Signal::INT.as_raw()}));
    got("int").await;
    signal(pid(&alone.process), Signal::INT);
    alone.tell(&json!({"signal": Signal::INT.as_raw()}));
    // This order is handled after it.
    alone.tell(&json!({"signal": Signal::QUIT.as_raw()}));
    got("quit").await;
    alone.tell(&json!({"signal": Signal::TERM.as_raw()}));
    assert_eq!(ended(&mut alone.process).await, Some(0));
    assert_eq!(family.read("got"), "int\nquit\n");
}
