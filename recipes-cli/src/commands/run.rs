//! Running a command while locks are held.
//!
//! Three processes run, all of one executable, and four in a terminal:
//!
//! ```text
//! lockctl             in the job of a shell: starts the keeper, passes signals on
//!   │ socket: signals down
//! lockctl-keep        outside the job: has the session and the locks
//!   │ socket: orders and deadlines down, the end up
//! lockctl-supervise   ends the command, and all that it has started, by the deadline
//!   │
//! lockctl-exec        asks the kernel to be killed with the supervisor, and becomes the command
//! ```
//!
//! Without a terminal, `lockctl` itself has the session and the locks. Below, *keeper* is the process
//! that has them. Supervisor and command are in the job, if there is one.
//!
//! The supervisor depends on no other process to act in time. It has the deadline, on the clock of
//! the machine, and each heartbeat that the store answers moves the deadline on. So the command
//! ends in time whatever happens to the process with the session:
//!
//! | | the command and its descendants |
//! |---|---|
//! | the keeper is killed | killed when the socket closes |
//! | the keeper is halted | ended by the last deadline that the supervisor got |
//! | the job is halted by Ctrl-Z | what does not halt goes on: the keeper keeps the lock |
//! | `lockctl` is killed in a terminal | killed by order of the keeper, which releases the lock after it |
//! | `lockctl` and its keeper are killed | killed when the socket closes |
//! | the supervisor is halted | killed with it by the keeper, just after the loss |
//! | the supervisor is killed | the command by the kernel, the others by the keeper, before it releases |
//! | supervisor and keeper are halted | in a terminal, `lockctl` resumes the supervisor; else **they go on** |
//! | supervisor and keeper are killed at once | the command by the kernel; **descendants of it go on** |
//! | all are halted (a frozen container) | halted too; killed at the first moment after it |
//!
//! The command runs in a cgroup of its own where the keeper may make one. Descendants are also found
//! in `/proc`. Supervisor and keeper are *subreapers*, so a process that
//! leaves its process group, its session or its parent stays below them. A process with the
//! privileges of another user can be found there but not killed; a warning names it. A program that
//! becomes `lockctl` may have children, which are left alone. But if the supervisor is killed, what
//! they have started meanwhile and left behind is taken for the command's, because it has the same
//! parent then.
//!
//! | file | noun |
//! |---|---|
//! | `front` | what a shell starts, in a terminal |
//! | `keeper` | the job, seen from the keeper |
//! | `acquire` | connecting and waiting for the locks, within the time limit |
//! | `lock` | what a run holds: locks, a permit or the leadership |
//! | `whom` | for whom a run waits |
//! | `nesting` | runs inside runs: the owner that is passed on |
//! | `supervisor_handle` | the supervisor, seen from the keeper |
//! | `wire` | what the processes share: names, the messages on the socket |
//! | `deadline_file` | the latest deadline, in memory that keeper and supervisor share |
//! | `supervisor` | the supervisor |
//! | `execute` | how a process becomes the command |
//! | `schedule` | when to do what; pure |
//! | `process_tree` | what the command has started, and its end |
//! | `process_table` | what `/proc` shows |
//! | `cgroup` | a control group for the command |
//! | `signals` | signals that are passed on |
//! | `signal_echo` | whether the command has already got a signal; pure |
//! | `verdict` | from the outcome to the exit code; pure |

mod acquire;
mod cgroup;
mod deadline_file;
mod execute;
mod front;
mod keeper;
mod lock;
mod nesting;
mod process_table;
mod process_tree;
mod schedule;
mod signal_echo;
mod signals;
mod supervisor;
mod supervisor_handle;
mod verdict;
mod whom;
mod wire;

use std::io;
use std::process::ExitCode;
use std::time::Duration;

use futures::FutureExt as _;
use recipes_core::{
    Error, LockGuard, LockOptions, LostError, ReleaseError, ReleaseOutcome, Session, SessionHealth,
};
use tokio::time::sleep;
use tracing::debug;

use crate::args::{self, RunArguments, StoreArguments};
use crate::exit::{Failure, chain, code, warn};
use crate::session::NodeOptions;

use acquire::TimeLimit;
use cgroup::Cgroup;
use lock::Lock;
use nesting::Nesting;
use process_table::Spared;
use process_tree::ProcessTree;
use signals::Signals;
use supervisor_handle::SupervisorHandle;
use verdict::{Outcome, verdict};
use wire::Plan;

pub(crate) use execute::main as become_command;
pub(crate) use keeper::Job;
pub(crate) use supervisor::main as supervise;
pub(crate) use wire::{COMMAND, KEEPER, SUPERVISOR};

/// The target of what `run` logs.
const LOG: &str = "lockctl::run";
/// How long closing the session may take on a store that has not answered.
const CLOSE_UNANSWERED_MAX: Duration = Duration::from_secs(1);

/// Runs the command under its locks, and returns its exit code. In a terminal, another process has
/// the locks.
pub(crate) async fn run(
    store: &StoreArguments,
    arguments: &RunArguments,
) -> Result<ExitCode, Failure> {
    lock::check(arguments)?;
    if signals::have_terminal() {
        return front::run().await;
    }
    let listen = |error| Failure::system("listen to signals", &error);
    keep(store, arguments, Signals::listen().map_err(listen)?, None).await
}

/// Waits for the locks, runs the command in the job, if there is one, and returns its exit code.
pub(crate) async fn keep(
    store: &StoreArguments,
    arguments: &RunArguments,
    mut signals: Signals,
    job: Option<&Job>,
) -> Result<ExitCode, Failure> {
    let options = match &arguments.purpose {
        Some(purpose) => LockOptions::new().purpose(purpose)?,
        None => LockOptions::new(),
    };
    let nesting = Nesting::from_environment()?;
    let nodes = node_options(store, arguments, &nesting)?;
    let limit = TimeLimit::starting_now(arguments.timeout);
    let session = tokio::select! {
        biased;
        signal = signals.next() => return Err(interrupted(signal)),
        session = acquire::connect(store, nodes, limit) => session?,
    };
    let wanted = Wanted {
        arguments,
        options,
        nesting,
        limit,
    };
    let lock = Lock::of(&session, &wanted)?;
    let outcome = locked(&session, &lock, &wanted, &mut signals, job).await;
    let is_unanswered = session.health() != SessionHealth::Connected
        || matches!(&outcome, Err(failure) if failure.code == code::NO_CONNECTION);
    // Signals that came earlier have been handled.
    while signals.next().now_or_never().is_some() {}
    // After a failure too. Otherwise others wait for our nodes until the session times out.
    tokio::select! {
        () = session.close() => {}
        () = sleep(CLOSE_UNANSWERED_MAX), if is_unanswered => {}
        _ = signals.next() => warn("the session is not closed; what is left of it goes when it times out"),
    }
    outcome
}

/// What the session writes into its nodes.
fn node_options(
    store: &StoreArguments,
    arguments: &RunArguments,
    nesting: &Nesting,
) -> Result<NodeOptions, Failure> {
    let refused = |what| Failure::new(code::USAGE, format!("--acl or LOCKCTL_ACL: {what}"));
    let acl = args::acl(&arguments.acl).map_err(refused)?;
    if acl.iter().any(|it| it.scheme() == "auth") && !store.authenticates() {
        return Err(refused(
            "a creator without credentials is nobody: give LOCKCTL_AUTH or --tls-cert".into(),
        ));
    }
    // The default of the store, whichever it is.
    let acl = match arguments.acl.as_str() {
        "open" => Vec::new(),
        _ => acl,
    };
    Ok(NodeOptions {
        application: application(arguments),
        within: nesting.within().map(str::to_owned),
        acl,
    })
}

/// The run, as nodes name it.
fn application(arguments: &RunArguments) -> String {
    let command = arguments.command.first().map(std::path::Path::new);
    let name = command.and_then(|it| it.file_name()).unwrap_or_default();
    format!("lockctl({})", name.to_string_lossy())
}

/// What is to be held, and how.
struct Wanted<'a> {
    arguments: &'a RunArguments,
    options: LockOptions,
    nesting: Nesting,
    limit: TimeLimit,
}

fn interrupted(signal: rustix::process::Signal) -> Failure {
    let number = signal.as_raw();
    let message = format!("ended by signal {number} before the command was started");
    Failure::new(signal_code(number), message)
}

fn signal_code(number: i32) -> u8 {
    code::SIGNAL.saturating_add(u8::try_from(number).unwrap_or_default())
}

async fn locked(
    session: &Session,
    lock: &Lock,
    wanted: &Wanted<'_>,
    signals: &mut Signals,
    job: Option<&Job>,
) -> Result<ExitCode, Failure> {
    let guard = tokio::select! {
        biased;
        signal = signals.next() => return Err(interrupted(signal)),
        guard = acquire::acquire(session, lock, wanted) => guard?,
    };
    let resumed = async {
        if let Some(job) = job {
            job.resumed().await;
        }
    };
    let outcome = tokio::select! {
        biased;
        signal = signals.next() => return Err(interrupted(signal)),
        () = resumed => command_under(&guard, wanted, signals, job).await,
        lost = guard.lost() => Ok((Outcome::NotStarted, Some(lost))),
    };
    let released = guard.release().await;
    let (outcome, mut lost) = outcome?;
    match released {
        Ok(ReleaseOutcome::Pending) => {
            warn("the lock is not certainly free yet: the store does not answer the release");
        }
        Ok(_) => {}
        Err(Error::Release(ReleaseError::Lost(error))) => {
            lost.get_or_insert(error);
        }
        Err(error) => warn(&chain(&error)),
    }
    let (code, message) = verdict(&outcome, lost.as_ref().map(loss));
    if let Some(message) = message {
        warn(&message);
    }
    Ok(ExitCode::from(code))
}

/// Which lock, and why. What to do about it, `run` has done.
fn loss(lost: &LostError) -> String {
    format!("lock {:?} is lost ({})", lost.path, lost.reason)
}

/// Runs the command. When it returns, no process that the command has started runs any more.
async fn command_under(
    guard: &LockGuard,
    wanted: &Wanted<'_>,
    signals: &mut Signals,
    job: Option<&Job>,
) -> Result<(Outcome, Option<LostError>), Failure> {
    let arguments = wanted.arguments;
    let start = |error| Failure::system("start the command's supervisor", &error);
    let spared = Spared::all().map_err(start)?;
    process_tree::adopt_orphans().map_err(start)?;
    let cgroup = cgroup();
    let name = cgroup.as_ref().and_then(Cgroup::name);
    let plan = Plan {
        on_lost: arguments.on_lost,
        own_group: job.is_none(),
        cgroup: name.map(str::to_owned),
    };
    let environment = environment(guard, &wanted.nesting);
    let supervisor = SupervisorHandle::start(plan, job, &arguments.command, &environment);
    let tree = ProcessTree::new(spared, cgroup);
    let outcome = match supervisor {
        Ok(supervisor) => supervised(supervisor, &tree, guard, arguments, signals).await,
        Err(error) => Err(error),
    };
    tree.remove();
    outcome.map_err(start)
}

/// The command's cgroup, if one can be made.
fn cgroup() -> Option<Cgroup> {
    match Cgroup::make() {
        Ok(cgroup) => {
            let folder = cgroup.name().unwrap_or_default();
            debug!(target: LOG, folder, "the command is ended by its cgroup");
            Some(cgroup)
        }
        Err(error) => {
            debug!(target: LOG, %error, "no cgroup: the command is ended by looks through /proc");
            None
        }
    }
}

async fn supervised(
    mut supervisor: SupervisorHandle,
    tree: &ProcessTree,
    guard: &LockGuard,
    arguments: &RunArguments,
    signals: &mut Signals,
) -> io::Result<(Outcome, Option<LostError>)> {
    let (end, lost) = supervisor.attend(guard, arguments.on_revoke, signals).await;
    let is_lost_before = lost.is_some() && !supervisor.may_have_started();
    let status = supervisor.ended(end.is_some()).await;
    // A report means that nothing is left. If the supervisor was killed, its processes are ours
    // now.
    if end.is_none() {
        tree.end_all().await;
    }
    Ok((Outcome::of(end, is_lost_before, status?), lost))
}

/// The variables that describe the locks to the command. Paths have no line breaks.
fn environment(guard: &LockGuard, nesting: &Nesting) -> [(&'static str, String); 3] {
    let members = guard.members();
    let paths: Vec<_> = members.iter().map(|it| it.path.clone()).collect();
    let tokens = members.iter().map(|it| it.fencing_token.to_string());
    let tokens: Vec<_> = tokens.collect();
    [
        ("LOCKCTL_PATHS", paths.join("\n")),
        ("LOCKCTL_TOKENS", tokens.join("\n")),
        (nesting::VARIABLE, nesting.chain()),
    ]
}
