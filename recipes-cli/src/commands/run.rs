//! Running a command while locks are held.
//!
//! Three processes run, all of one executable:
//!
//! ```text
//! lockctl             has the session and the locks; passes signals on
//!   │ socket: orders and deadlines down, the end up
//! lockctl-supervise   ends the command, and all that it has started, by the deadline
//!   │
//! lockctl-exec        asks the kernel to be killed with the supervisor, and becomes the command
//! ```
//!
//! The supervisor depends on no other process to act in time. It has the deadline, on the clock of
//! the machine, and each heartbeat that the store answers moves the deadline on. So the command
//! ends in time whatever happens to the process with the session:
//!
//! | | the command and its descendants |
//! |---|---|
//! | `lockctl` is killed | killed when the socket closes |
//! | `lockctl` is halted | ended by the last deadline that the supervisor got |
//! | the supervisor is halted | killed with it by `lockctl`, just after the loss |
//! | the supervisor is killed | the command by the kernel, the others by `lockctl`, before it releases |
//! | both are killed at once | the command by the kernel; **descendants of it go on** |
//! | all are halted (a frozen container) | halted too; killed at the first moment after it |
//!
//! Descendants are found in `/proc`. Supervisor and `lockctl` are *subreapers*, so a process that
//! leaves its process group, its session or its parent stays below them. A process with the
//! privileges of another user can be found but not killed; a warning names it. A program that
//! becomes `lockctl` may have children, which are left alone. But if the supervisor is killed, what
//! they have started meanwhile and left behind is taken for the command's, because it has the same
//! parent then.
//!
//! | file | noun |
//! |---|---|
//! | `acquire` | connecting and waiting for the locks, within the time limit |
//! | `whom` | for whom a run waits |
//! | `other_recipe` | directories that have nodes of another recipe |
//! | `nesting` | runs inside runs: the owner that is passed on |
//! | `supervisor_handle` | the supervisor, seen from `lockctl` |
//! | `wire` | what both sides share: names, the messages on the socket |
//! | `supervisor` | the supervisor |
//! | `execute` | how a process becomes the command |
//! | `schedule` | when to do what; pure |
//! | `process_tree` | the descendants of this process |
//! | `signals` | signals that are passed on |
//! | `signal_echo` | whether the command has already got a signal; pure |
//! | `verdict` | from the outcome to the exit code; pure |

mod acquire;
mod execute;
mod nesting;
mod other_recipe;
mod process_tree;
mod schedule;
mod signal_echo;
mod signals;
mod supervisor;
mod supervisor_handle;
mod verdict;
mod whom;
mod wire;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use futures::FutureExt as _;
use recipes_core::{
    ConfigError, LockGuard, LockOptions, LostError, ReleaseError, ReleaseOutcome, Session,
    SessionHealth, validate_path,
};
use recipes_multilock::{Member, MultiLock};
use recipes_zookeeper::{Acl, Acls, ZooKeeperBuilder};

use tokio::time::sleep;

use crate::args::{self, Mode, RunArguments, StoreArguments};
use crate::exit::{Failure, chain, code, warn};

use acquire::TimeLimit;
use nesting::Nesting;
use signals::Signals;
use supervisor_handle::SupervisorHandle;
use verdict::{Outcome, verdict};
use wire::Plan;

pub(crate) use execute::main as become_command;
pub(crate) use supervisor::main as supervise;
pub(crate) use wire::{COMMAND, SUPERVISOR};

/// How long closing the session may take on a store that has not answered.
const CLOSE_UNANSWERED_MAX: Duration = Duration::from_secs(1);

/// Waits for the locks, runs the command, and returns its exit code.
pub(crate) async fn run(
    store: &StoreArguments,
    arguments: &RunArguments,
) -> Result<ExitCode, Failure> {
    check(&arguments.paths)?;
    let options = match &arguments.purpose {
        Some(purpose) => LockOptions::new().purpose(purpose)?,
        None => LockOptions::new(),
    };
    let nesting = Nesting::from_environment()?;
    let nodes = NodeOptions::of(store, arguments, &nesting)?;
    let listen = |error| Failure::system("listen to signals", &error);
    let mut signals = Signals::listen().map_err(listen)?;
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
    let outcome = locked(&session, &wanted, &mut signals).await;
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

/// Refuses invalid paths before a session is opened.
fn check(paths: &[String]) -> Result<(), ConfigError> {
    let mut seen = BTreeSet::new();
    for path in paths {
        validate_path(path)?;
        if !seen.insert(path) {
            let path = path.clone();
            return Err(ConfigError::DuplicateMember { path });
        }
    }
    Ok(())
}

/// What the session writes into its nodes.
struct NodeOptions {
    application: String,
    within: Option<String>,
    acl: Vec<Acl>,
}

impl NodeOptions {
    fn of(
        store: &StoreArguments,
        arguments: &RunArguments,
        nesting: &Nesting,
    ) -> Result<Self, Failure> {
        let command = arguments.command.first().map(std::path::Path::new);
        let name = command.and_then(|it| it.file_name()).unwrap_or_default();
        let refused = |what| Failure::new(code::USAGE, format!("--acl or LOCKCTL_ACL: {what}"));
        let acl = args::acl(&arguments.acl).map_err(refused)?;
        if acl.iter().any(|it| it.scheme() == "auth") && !store.authenticates() {
            return Err(refused(
                "a creator without credentials is nobody: give LOCKCTL_AUTH or --tls-cert".into(),
            ));
        }
        Ok(Self {
            application: format!("lockctl({})", name.to_string_lossy()),
            within: nesting.within().map(str::to_owned),
            acl,
        })
    }

    fn set(&self, builder: ZooKeeperBuilder) -> ZooKeeperBuilder {
        let builder = builder.application(&self.application);
        let builder = builder.acl(Acls::new(&self.acl));
        match &self.within {
            Some(owner) => builder.within(owner),
            None => builder,
        }
    }
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
    wanted: &Wanted<'_>,
    signals: &mut Signals,
) -> Result<ExitCode, Failure> {
    let arguments = wanted.arguments;
    let member = match arguments.mode {
        Mode::Mutex => Member::mutex,
        Mode::Read => Member::read,
        Mode::Write => Member::write,
    };
    let members = arguments.paths.iter().map(member);
    let members = members.map(|it| it.options(wanted.options.clone()));
    let lock = MultiLock::new(session, members)?;
    let guard = tokio::select! {
        biased;
        signal = signals.next() => return Err(interrupted(signal)),
        guard = acquire::acquire(session, &lock, wanted) => guard?,
    };
    let outcome = command_under(&guard, wanted, signals).await;
    let released = guard.release().await;
    let (outcome, mut lost) = outcome?;
    match released {
        Ok(ReleaseOutcome::Pending) => {
            warn("the lock is not certainly free yet: the store does not answer the release");
        }
        Ok(_) => {}
        Err(ReleaseError::Lost(error)) => {
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
) -> Result<(Outcome, Option<LostError>), Failure> {
    let arguments = wanted.arguments;
    let start = |error| Failure::system("start the command's supervisor", &error);
    let spared = process_tree::Spared::all().map_err(start)?;
    process_tree::adopt_orphans().map_err(start)?;
    let plan = Plan {
        on_lost: arguments.on_lost,
        own_group: !signals.have_terminal(),
    };
    let supervisor = SupervisorHandle::start(
        plan,
        &arguments.command,
        &environment(guard, &wanted.nesting),
    );
    let mut supervisor = supervisor.map_err(start)?;
    let (end, lost) = supervisor.attend(guard, arguments.on_revoke, signals).await;
    let is_lost_before = lost.is_some() && !supervisor.may_have_started();
    let status = supervisor.ended();
    // A report means that nothing is left. If the supervisor was killed, its processes are ours
    // now.
    if end.is_none() {
        process_tree::end_all(&spared).await;
    }
    let outcome = Outcome::of(end, is_lost_before, status.map_err(start)?);
    Ok((outcome, lost))
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
