//! The process that keeps the locks of a job in a terminal, from outside the job.
//!
//! Ctrl-Z halts a job, but not all that a job has started: a command may ignore it, or may have left
//! the process group. This process is not in the group. It goes on sending heartbeats, so a halted
//! job keeps its lock. If the lock is lost nevertheless, it ends all that the job has started.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::time::Duration;

use rustix::process::{Pid, Signal, getppid, kill_process_group};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::process_table::{has_shell, is_halted};
use super::signals::Signals;
use super::wire::{self, Order};

/// Comes once, when the process that the shell has started does not exist any more.
pub(super) const JOB_ENDED: Signal = Signal::KILL;
/// Signals that wait to be passed on. More make no difference to a command.
const SIGNALS_MAX: usize = 100;
/// How soon a command starts in a job that was resumed.
const RESUMED_CHECK: Duration = Duration::from_millis(50);

/// How soon a halted job goes on that no shell can resume.
const SHELL_CHECK: Duration = Duration::from_millis(500);

/// The job for which this process keeps locks.
#[derive(Debug)]
pub(crate) struct Job {
    pub(super) group: Pid,
    /// The process that the shell has started.
    front: Option<Pid>,
    pub(super) input: OwnedFd,
    pub(super) errors: OwnedFd,
}

impl Job {
    /// Becomes the keeper for the process that has started this one. Returns the signals of the job
    /// as well.
    pub(crate) fn keep(group: &OsStr) -> io::Result<(Self, Signals)> {
        let no_group = || io::Error::other("no process group was given");
        let group = group.to_str().and_then(|it| it.parse().ok());
        let group = group.and_then(Pid::from_raw).ok_or_else(no_group)?;
        let socket: OwnedFd = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?;
        let socket = StdUnixStream::from(socket);
        let (input, errors) = wire::take(&socket)?;
        let no_errors = || io::Error::other("no standard error came");
        let errors = errors.ok_or_else(no_errors)?;
        socket.set_nonblocking(true)?;
        let (to_us, signals) = mpsc::channel(SIGNALS_MAX);
        tokio::spawn(listen(UnixStream::from_std(socket)?, to_us));
        let front = getppid();
        if let Some(front) = front {
            tokio::spawn(resume_abandoned(front, group));
        }
        let job = Self {
            group,
            front,
            input,
            errors,
        };
        Ok((job, Signals::of_job(signals)?))
    }

    /// Completes when the job is not halted. A command is not started in a halted job.
    pub(super) async fn resumed(&self) {
        while self.front.is_some_and(is_halted) {
            sleep(RESUMED_CHECK).await;
        }
    }
}

/// Does for the job what the kernel does for one without this process, which makes it look as if a
/// shell could resume it: without a shell Ctrl-Z halts nothing, and a halted job whose shell has ended
/// gets SIGHUP and goes on. Otherwise it would hold its lock for ever.
async fn resume_abandoned(front: Pid, group: Pid) {
    // If the processes cannot be seen, nothing is known.
    let mut had_shell = has_shell(group).unwrap_or(true);
    loop {
        sleep(SHELL_CHECK).await;
        if !is_halted(front) {
            continue;
        }
        if has_shell(group).unwrap_or(true) {
            had_shell = true;
            continue;
        }
        // An error means that the job has ended.
        if had_shell {
            kill_process_group(group, Signal::HUP).ok();
        }
        kill_process_group(group, Signal::CONT).ok();
    }
}

/// Passes on what the front passes on. When the front has ended, as after `kill -9`, that is a
/// signal too.
async fn listen(socket: UnixStream, signals: mpsc::Sender<Signal>) {
    let mut lines = BufReader::new(socket).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(Order::Signal(number)) = serde_json::from_str(&line) {
            if let Some(signal) = Signal::from_named_raw(number) {
                // It is full only if a hundred wait, and one more makes no difference.
                signals.try_send(signal).ok();
            }
        }
    }
    // An error means that this process ends already.
    signals.send(JOB_ENDED).await.ok();
}
