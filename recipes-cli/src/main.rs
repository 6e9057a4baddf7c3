//! `lockctl`: runs commands under locks, and shows and repairs the locks of a store.
//!
//! The executable has four roles. As `lockctl` it is started by people. `run` starts it up to three
//! times more, under other names: in a terminal to keep the locks, as the supervisor of the command,
//! and to become the command. `run` relies on Linux to find all processes that a command has started,
//! and exists only there.

mod args;
mod commands;
mod exit;
mod output;
mod session;

#[cfg(target_os = "linux")]
use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
use recipes_core::Session;

use args::{Arguments, StoreArguments, Task};
#[cfg(target_os = "linux")]
use commands::run;
use commands::{man, revoke, serve, show};
use exit::{Failure, code};
use output::{log, messages, print};
use session::Purpose;

fn main() -> ExitCode {
    let code = role();
    messages::flush();
    code
}

fn role() -> ExitCode {
    #[cfg(target_os = "linux")]
    if let Some(code) = other_role() {
        return code;
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            let code = if error.use_stderr() { code::USAGE } else { 0 };
            return match error.print() {
                Ok(()) => ExitCode::from(code),
                Err(error) => Failure::system("print", &error).report(),
            };
        }
    };
    in_runtime(carry_out(arguments))
}

fn in_runtime(task: impl Future<Output = Result<ExitCode, Failure>>) -> ExitCode {
    // One thread: the kernel ends the command's supervisor together with the thread that started it.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(task),
        Err(error) => Err(Failure::system("start", &error)),
    };
    outcome.unwrap_or_else(|failure| failure.report())
}

/// The result of the role, if `run` started this process in another one.
#[cfg(target_os = "linux")]
fn other_role() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    match name.to_str()? {
        name @ run::KEEPER => {
            show_in_ps(name);
            Some(in_runtime(keep(arguments)))
        }
        name @ run::SUPERVISOR => {
            show_in_ps(name);
            Some(run::supervise(arguments))
        }
        run::COMMAND => Some(in_runtime(run::become_command(arguments))),
        _ => None,
    }
}

/// Without it, `ps`, `top` and `pgrep` show `exe`, by which it was started. The kernel cuts the name.
#[cfg(target_os = "linux")]
fn show_in_ps(name: &str) {
    // Where it is refused, the work is the same.
    drop(std::fs::write("/proc/self/comm", name));
}

/// Does what `run` asks for, outside the job of `lockctl`. The arguments are the job's process group
/// and those of `lockctl`.
#[cfg(target_os = "linux")]
async fn keep(mut arguments: impl Iterator<Item = OsString>) -> Result<ExitCode, Failure> {
    let group = arguments.next().unwrap_or_default();
    let own = std::iter::once(OsString::from("lockctl"));
    // `lockctl` has accepted them.
    let refused = |error: clap::Error| Failure::new(code::USAGE, error.to_string());
    let arguments = Arguments::try_parse_from(own.chain(arguments)).map_err(refused)?;
    if let Some(targets) = arguments.log {
        log::start(targets);
    }
    let Task::Run(run) = arguments.command else {
        return Err(Failure::new(code::USAGE, "only `run` keeps locks"));
    };
    let failed = |error| Failure::system("keep the locks", &error);
    let (job, signals) = run::Job::keep(&group).map_err(failed)?;
    run::keep(&arguments.store, &run, signals, Some(&job)).await
}

async fn carry_out(arguments: Arguments) -> Result<ExitCode, Failure> {
    let Arguments {
        store,
        json,
        log,
        command,
    } = arguments;
    if let Some(targets) = log {
        log::start(targets);
    }
    let on = &store;
    match command {
        #[cfg(target_os = "linux")]
        Task::Run(run) => return Box::pin(run::run(on, &run)).await,
        Task::Serve(asked) => Box::pin(serve::serve(on, &asked, json)).await,
        Task::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "lockctl", &mut script);
            print::write(&String::from_utf8_lossy(&script))
        }
        Task::Schema => print::write(&session::schema(on)?),
        Task::Man { folder } => man::write(Arguments::command(), &folder),
        Task::Ls { root } => {
            in_session(on, Purpose::Reads, async |it| {
                show::list(it, &root, json).await
            })
            .await
        }
        Task::Inspect { path } => {
            in_session(on, Purpose::Reads, async |it| {
                show::inspect(it, &path, json).await
            })
            .await
        }
        Task::Deadlocks(asked) => {
            let shown = async |it: &_| show::deadlocks(it, &asked, json).await;
            return in_session(on, Purpose::Reads, shown).await;
        }
        Task::Revoke { path } => {
            let changes = Purpose::Changes;
            in_session(on, changes, async |it| {
                revoke::revoke(it, &path, json).await
            })
            .await
        }
        Task::Break(asked) => {
            in_session(on, Purpose::Changes, async |it| {
                revoke::break_lock(it, on, &asked, json).await
            })
            .await
        }
    }
    .map(|()| ExitCode::SUCCESS)
}

/// Opens a session for a task, and closes it whatever the result.
async fn in_session<T>(
    store: &StoreArguments,
    purpose: Purpose<'_>,
    task: impl AsyncFnOnce(&Session) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let session = session::connect(store, purpose).await?;
    let outcome = task(&session).await;
    session.close().await;
    outcome
}
