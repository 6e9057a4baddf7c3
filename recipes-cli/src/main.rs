//! `zklock`: runs commands under locks, and shows and mends the locks of an ensemble.
//!
//! The executable plays three parts. As `zklock` it is what people start. `run` starts it twice
//! more, under other names: once as the supervisor of the command, once to become the command.

#[cfg(not(target_os = "linux"))]
compile_error!("zklock relies on Linux to find all processes that a command has started");

mod arguments;
mod ensemble;
mod failure;
mod run;

use std::env;
use std::io;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use arguments::{Arguments, Task};
use failure::{Failure, code};

fn main() -> ExitCode {
    let mut arguments = env::args_os();
    let name = arguments.next().unwrap_or_default();
    if name == run::SUPERVISOR {
        return run::supervise(arguments);
    }
    if name == run::COMMAND {
        return run::become_command(arguments);
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
    // One thread: the kernel ends the command's supervisor together with the thread that started it.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(carry_out(arguments)),
        Err(error) => Err(Failure::system("start", &error)),
    };
    outcome.unwrap_or_else(|failure| failure.report())
}

async fn carry_out(arguments: Arguments) -> Result<ExitCode, Failure> {
    match arguments.command {
        Task::Run(run) => Box::pin(run::run(&arguments.ensemble, &run)).await,
        Task::Completions { shell } => {
            let mut command = Arguments::command();
            clap_complete::generate(shell, &mut command, "zklock", &mut io::stdout());
            Ok(ExitCode::SUCCESS)
        }
    }
}
