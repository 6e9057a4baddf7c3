//! The part of `lockctl run` that is in the job of a shell.
//!
//! It starts the keeper, passes signals on to it, prints what it says and ends as it ends. So it may
//! be halted for any time without harm to the lock.

use std::io::{self, BufRead as _, BufReader};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStderr, Command, ExitCode, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::{Pid, Signal, getpgrp, kill_process};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

use super::process_table::{Look, Spared, is_halted};
use super::process_tree::{ProcessTree, adopt_orphans};
use super::signals::Signals;
use super::wire::{self, EXECUTABLE, KEEPER, Order};
use crate::exit::{Failure, code};
use crate::output::messages;

/// An order that takes longer is not read: the keeper is halted and its socket is full.
const ORDER_MAX: Duration = Duration::from_millis(50);
/// How often to check whether the keeper is halted. A lock lasts for seconds after that.
const HALTED_CHECK: Duration = Duration::from_millis(200);

/// Runs the command line in a keeper, for this job.
pub(crate) async fn run() -> Result<ExitCode, Failure> {
    let failed = |error| Failure::system("start the process that keeps the locks", &error);
    let mut signals = Signals::listen().map_err(failed)?;
    let spared = Spared::all().map_err(failed)?;
    adopt_orphans().map_err(failed)?;
    let (mut keeper, printer, mut orders) = start().map_err(failed)?;
    let status = ended(&mut keeper, &mut signals, &mut orders).await;
    let status = status.map_err(failed)?;
    // The keeper has ended, so there is an end to what it says.
    drop(printer.join());
    match status.code() {
        Some(code) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(code::INTERNAL))),
        None => {
            ProcessTree::new(spared, None).end_all().await;
            let message = "the process that keeps the locks was killed";
            Err(Failure::new(code::INTERNAL, message))
        }
    }
}

fn start() -> io::Result<(Child, JoinHandle<()>, UnixStream)> {
    let (ours, theirs) = StdUnixStream::pair()?;
    // Sent before the spawn, because it would fail on a keeper that has already ended.
    wire::hand_over(&ours, &[io::stdin().as_fd(), io::stderr().as_fd()])?;
    let mut keeper = Command::new(EXECUTABLE);
    keeper
        .arg0(KEEPER)
        .arg(getpgrp().as_raw_nonzero().to_string())
        .args(std::env::args_os().skip(1))
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        // A terminal may halt a process that is not in the foreground and prints.
        .stderr(Stdio::piped())
        .process_group(0);
    let mut process = keeper.spawn()?;
    // It still has their socket, whose end must be noticed.
    drop(keeper);
    let said = process.stderr.take();
    let said = said.ok_or_else(|| io::Error::other("no standard error"))?;
    let printer = thread::Builder::new().spawn(|| print(said))?;
    ours.set_nonblocking(true)?;
    Ok((process, printer, UnixStream::from_std(ours)?))
}

/// Prints what the keeper says, to its end.
fn print(said: ChildStderr) {
    let mut said = BufReader::new(said);
    let mut line = Vec::new();
    while said.read_until(b'\n', &mut line).is_ok_and(|it| it > 0) {
        messages::send(std::mem::take(&mut line));
    }
}

/// Passes signals on until the keeper ends.
async fn ended(
    keeper: &mut Child,
    signals: &mut Signals,
    orders: &mut UnixStream,
) -> io::Result<ExitStatus> {
    let mut children = signal(SignalKind::child())?;
    loop {
        if let Some(status) = keeper.try_wait()? {
            return Ok(status);
        }
        tokio::select! {
            signal = signals.next() => {
                let line = wire::line(&Order::Signal(signal.as_raw()))?;
                // One that has just ended reads nothing any more.
                drop(timeout(ORDER_MAX, orders.write_all(&line)).await);
            }
            _ = children.recv() => {}
            () = sleep(HALTED_CHECK) => resume_supervisor_of(Pid::from_child(keeper)),
        }
    }
}

/// Lets a halted supervisor go on whose keeper is halted too, because one of the two must end the
/// command in time. A supervisor that is halted alone is the keeper's concern.
fn resume_supervisor_of(keeper: Pid) {
    if !is_halted(keeper) {
        return;
    }
    // What cannot be seen this time, the next check may see.
    let supervisors = Look::now().map(|it| it.supervisors_of(keeper));
    for supervisor in supervisors.unwrap_or_default() {
        // An error means that it has ended.
        kill_process(supervisor, Signal::CONT).ok();
    }
}
