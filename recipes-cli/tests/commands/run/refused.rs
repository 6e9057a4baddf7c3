//! Refusals by the kernel, as container profiles and processes of other users cause them.

use std::collections::BTreeMap;
use std::process::Stdio;

use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::family::{Family, alive, named};
use super::process::{ended, pid, signal};
use super::{LONG, PATH, next_in_line, server, start};
use crate::lockctl::{PATIENCE, said};

/// A system call with its first arguments.
pub(super) struct Call {
    number: i64,
    arguments: [Option<u64>; 2],
}

/// Duplicates descriptor 0, which of these processes only the supervisor does.
fn duplication_of_input() -> Call {
    const DUPFD_CLOEXEC: u64 = 1030;
    Call {
        number: if cfg!(target_arch = "x86_64") { 72 } else { 25 },
        arguments: [Some(0), Some(DUPFD_CLOEXEC)],
    }
}

/// Requests a process to end, which is refused as if it were another user's.
pub(super) fn termination() -> Call {
    Call {
        number: if cfg!(target_arch = "x86_64") {
            62
        } else {
            129
        },
        arguments: [None, Some(Signal::TERM.as_raw().try_into().unwrap())],
    }
}

/// Starts a command for which the kernel refuses a call, also in the processes that it starts.
pub(super) fn start_refused(mut command: Command, call: &Call, with: Errno) -> Child {
    let arguments = call.arguments.iter().zip(0..);
    let conditions = arguments.filter_map(|(value, place)| {
        let equal = SeccompCmpOp::Eq;
        SeccompCondition::new(place, SeccompCmpArgLen::Dword, equal, (*value)?).ok()
    });
    let rule = SeccompRule::new(conditions.collect()).unwrap();
    let filter = SeccompFilter::new(
        BTreeMap::from([(call.number, vec![rule])]),
        SeccompAction::Allow,
        SeccompAction::Errno(with.raw_os_error().unsigned_abs()),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    let program = BpfProgram::try_from(filter.unwrap()).unwrap();
    let runtime = Handle::current();
    // A filter applies to a thread, and to the processes that it starts.
    let starter = std::thread::spawn(move || {
        let _inside = runtime.enter();
        seccompiler::apply_filter(&program).unwrap();
        command.spawn().unwrap()
    });
    starter.join().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn supervisor_that_fails_says_why_and_nobody_says_anything_else() {
    let ensemble = start().await;
    let family = Family::new();
    let connect = server(&ensemble).connect_string();
    let mut command = family.run(&connect, &[LONG, PATH], "echo ran > ran");
    command.stderr(Stdio::piped());
    let run = start_refused(command, &duplication_of_input(), Errno::MFILE);
    let ran = run.wait_with_output().await.unwrap();
    assert!(said(&ran).contains("supervise the command"), "{ran:?}");
    assert_eq!(ran.status.code(), Some(70));
    assert_eq!(family.read("ran"), "");
    ensemble.await_children(PATH, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_is_kept_as_long_as_nobody_can_see_what_runs() {
    let ensemble = start().await;
    let family = Family::new();
    let connect = server(&ensemble).connect_string();
    let mut command = family.command(&connect, &[LONG, PATH]);
    let mut run = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(run.stderr.take().unwrap()).lines();
    let members = family.members(&ensemble).await;
    let (_session, mut next) = next_in_line(&ensemble).await;
    let files = |current| {
        let maximum = getrlimit(Resource::Nofile).maximum;
        let limit = Rlimit { current, maximum };
        prlimit(Pid::from_raw(pid(&run)), Resource::Nofile, limit).unwrap()
    };
    let before = files(Some(0));
    signal(named(&members, "shell").parent(), Signal::KILL);
    let told = async {
        tokio::select! {
            line = said.next_line() => line.unwrap().unwrap(),
            granted = &mut next => panic!("{granted:?} while these run: {:?}", alive(&members)),
        }
    };
    let told = timeout(PATIENCE, told).await.expect("nothing is said");
    assert!(told.contains("cannot see which processes run"), "{told}");
    files(before.current);
    let granted = next.await.unwrap();
    let left = alive(&members);
    assert!(left.is_empty(), "granted while these run: {left:?}");
    assert_eq!(ended(&mut run).await, Some(70));
    drop(granted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signal_that_does_not_reach_a_process_is_said() {
    let ensemble = start().await;
    let family = Family::new();
    let connect = server(&ensemble).connect_string();
    let script = r#"echo "shell $$" > family; exec sleep 1000"#;
    let mut command = family.run(&connect, &[LONG, PATH], script);
    command.stderr(Stdio::piped());
    let mut run = start_refused(command, &termination(), Errno::PERM);
    let mut said = BufReader::new(run.stderr.take().unwrap()).lines();
    let shell = async || family.written().pop();
    let shell = ensemble.until("the command", shell).await;
    signal(pid(&run), Signal::TERM);
    let told = timeout(PATIENCE, said.next_line()).await;
    let told = told.expect("nothing is said").unwrap().unwrap();
    let expected = format!("process {} is another user's: signal 15", shell.pid);
    assert!(told.contains(&expected), "{told}");
    assert!(shell.is_alive());
}
