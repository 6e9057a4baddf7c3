//! How the process that the supervisor starts becomes the command of the user.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::io::Errno;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::cgroup::Cgroup;
use super::signals;
use crate::exit::{Failure, warn};
use crate::output::messages;

/// As in shells: the command cannot be run.
const NOT_RUN: u8 = 126;
/// As in shells: there is no such command.
const NOT_FOUND: u8 = 127;

/// Becomes the command, which the kernel kills when its supervisor ends. The arguments are the
/// supervisor's process, the folder of a cgroup or nothing, and the command.
///
/// That setting stays with the process when it becomes another program, except for one that runs as
/// another user.
pub(crate) async fn main(
    mut arguments: impl Iterator<Item = OsString>,
) -> Result<ExitCode, Failure> {
    // A message that does not fit into a file must not change the exit code.
    signals::defuse().map_err(|error| Failure::system("start the command", &error))?;
    let supervisor = arguments.next().unwrap_or_default();
    let unbound =
        |error: Errno| Failure::system("bind the command to its supervisor", &error.into());
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(unbound)?;
    // The supervisor may have ended before.
    let parent = getppid().map(|it| it.as_raw_nonzero().to_string());
    if parent.as_deref() != supervisor.to_str() {
        return Ok(ExitCode::from(NOT_RUN));
    }
    let cgroup = arguments.next().unwrap_or_default();
    if let Some(folder) = cgroup.to_str().filter(|it| !it.is_empty()) {
        // Its children are born there. Without it, looks through /proc must do.
        if let Err(error) = Cgroup::at(folder).enter() {
            warn(&format!("the command is not in a cgroup: {error}"));
            messages::flush();
        }
    }
    let program = arguments.next().unwrap_or_default();
    let error = Command::new(&program).args(arguments).exec();
    warn(&format!("cannot run {program:?}: {error}"));
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    Ok(ExitCode::from(if is_missing { NOT_FOUND } else { NOT_RUN }))
}
