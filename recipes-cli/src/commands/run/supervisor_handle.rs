//! The supervisor of a command, seen from the process with the session.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt as _;
use std::pin::pin;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use recipes_core::{LockGuard, LostError};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Instant, sleep, timeout};

use super::deadline_file::DeadlineFile;
use super::keeper::{JOB_ENDED, Job};
use super::schedule::{Schedule, report_by};
use super::signals::{Signals, resumes};
use super::wire::{self, EXECUTABLE, End, Order, Plan, SUPERVISOR, at};
use crate::args::{OnLost, OnRevoke, secret_variables};
use crate::exit::warn;

/// The lease is checked again after this part of its remaining time. That is often enough that a
/// heartbeat is passed on well before the deadlines that it moves.
const LOOKS_PER_LEASE: u32 = 16;
/// The shortest pause between two checks, for leases that are about to end.
const LOOK_MIN: Duration = Duration::from_millis(5);
/// An order that takes longer is not read: the supervisor is halted and its socket is full.
const ORDER_MAX: Duration = Duration::from_millis(50);
/// A supervisor that has reported gets this time to end: so many checks, with pauses between them.
const LAST_CHECKS: u32 = 100;
const LAST_CHECK: Duration = Duration::from_millis(2);
/// How long to sleep when nothing is due. Any length would do.
const IDLE: Duration = Duration::from_secs(3600);

/// A supervisor that was started. It ends the command when this is dropped.
#[derive(Debug)]
pub(crate) struct SupervisorHandle {
    process: Child,
    plan: Plan,
    orders: OwnedWriteHalf,
    deadline: DeadlineFile,
    reports: Lines<BufReader<OwnedReadHalf>>,
    told: Option<Instant>,
    lease: Duration,
}

impl SupervisorHandle {
    /// Starts it: in the job that this process keeps locks for, if any, and with its streams.
    pub(crate) fn start(
        plan: Plan,
        job: Option<&Job>,
        command: &[OsString],
        environment: &[(&'static str, String)],
    ) -> io::Result<Self> {
        let (ours, theirs) = StdUnixStream::pair()?;
        let deadline = DeadlineFile::create()?;
        let own_input = io::stdin();
        let input = job.map_or(own_input.as_fd(), |it| it.input.as_fd());
        // Sent before the spawn, because it would fail on a supervisor that has already ended.
        wire::hand_over(&ours, &[input, deadline.as_fd()])?;
        let mut supervisor = Command::new(EXECUTABLE);
        supervisor
            .arg0(SUPERVISOR)
            .arg(serde_json::to_string(&plan)?);
        // The credentials are for lockctl only, not for the command.
        for variable in secret_variables() {
            supervisor.env_remove(variable);
        }
        supervisor
            .args(command)
            .envs(environment.iter().map(|(name, value)| (name, value)));
        supervisor.stdin(Stdio::from(OwnedFd::from(theirs)));
        if plan.own_group {
            // Signals to our process group must not reach it.
            supervisor.process_group(0);
        }
        if let Some(job) = job {
            supervisor.process_group(job.group.as_raw_nonzero().get());
            supervisor.stderr(job.errors.try_clone()?);
        }
        let process = supervisor.spawn()?;
        // It still has their socket, whose end must be noticed.
        drop(supervisor);
        ours.set_nonblocking(true)?;
        let (reports, orders) = UnixStream::from_std(ours)?.into_split();
        Ok(Self {
            process,
            plan,
            orders,
            deadline,
            reports: BufReader::new(reports).lines(),
            told: None,
            lease: Duration::ZERO,
        })
    }

    /// Keeps the supervisor informed until the command has ended. Kills the supervisor if it does
    /// not report in time that it has ended a command that lost its lock.
    ///
    /// Returns `None` if the supervisor has ended without a report. Also returns how the lock was
    /// lost, if it was.
    pub(crate) async fn attend(
        &mut self,
        guard: &LockGuard,
        on_revoke: OnRevoke,
        signals: &mut Signals,
    ) -> (Option<End>, Option<LostError>) {
        let mut loss = pin!(guard.lost());
        let mut request = pin!(guard.requested_lock());
        let mut is_asked = false;
        let mut lost = None;
        let mut due = None;
        loop {
            let look_again = match self.follow(guard).await {
                Ok(look_again) => look_again,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => ORDER_MAX,
                // The supervisor has closed the socket. Its last report may still be there.
                Err(_) => IDLE,
            };
            tokio::select! {
                biased;
                report = self.reports.next_line() => {
                    let line = report.ok().flatten();
                    let end = line.and_then(|it| serde_json::from_str(&it).ok());
                    return (end, lost);
                }
                error = &mut loss, if lost.is_none() => {
                    match self.plan.on_lost {
                        OnLost::Ignore if self.told.is_some() => {
                            warn(&format!("{error}; the command goes on without it"));
                        }
                        _ => due = Some(report_by(Instant::now(), self.told, self.lease)),
                    }
                    lost = Some(error);
                    self.tell(Order::Lost).await.ok();
                }
                path = &mut request, if !is_asked => {
                    is_asked = true;
                    warn(&format!("somebody asks for the lock {path}"));
                    if on_revoke == OnRevoke::Term {
                        self.pass_on(Signal::TERM).await;
                    }
                }
                signal = signals.next() => {
                    if signal == JOB_ENDED {
                        // A supervisor that kills all goes on with it if this process is killed too.
                        self.resume();
                        self.tell(Order::Kill).await.ok();
                        let given = report_by(Instant::now(), None, self.lease);
                        due = Some(due.map_or(given, |it: Instant| it.min(given)));
                    } else {
                        self.pass_on(signal).await;
                    }
                }
                () = at(due) => {
                    // This kills the command too, and leaves its descendants to us.
                    self.process.kill().ok();
                    return (None, lost);
                }
                () = sleep(look_again) => {}
            }
        }
    }

    /// Sends the deadline if it has moved. Returns when to check again.
    async fn follow(&mut self, guard: &LockGuard) -> io::Result<Duration> {
        let Some(until) = guard.valid_until() else {
            return Ok(IDLE);
        };
        let left = until.saturating_duration_since(Instant::now());
        if self.told != Some(until) {
            // Only the store knows the session timeout that it has granted. The longest time
            // left comes near to half of it, from below.
            self.lease = self.lease.max(left);
            let order = Order::from(Schedule::of(self.plan.on_lost, until, self.lease));
            if let Order::Schedule { ask_at, kill_at } = order {
                self.deadline.write(ask_at, kill_at)?;
            }
            match self.told {
                None => self.tell(order).await?,
                Some(_) => self.try_tell(order)?,
            }
            self.told = Some(until);
        }
        Ok((left / LOOKS_PER_LEASE).max(LOOK_MIN))
    }

    /// Sends a signal for the command. One that requests an end also reaches a halted job.
    async fn pass_on(&mut self, signal: Signal) {
        if resumes(signal) {
            self.resume();
        }
        // A supervisor that has closed the socket ends the command by itself.
        self.tell(Order::Signal(signal.as_raw())).await.ok();
    }

    /// Lets a halted supervisor go on.
    fn resume(&self) {
        // An error means that it has ended.
        kill_process(Pid::from_child(&self.process), Signal::CONT).ok();
    }

    async fn tell(&mut self, order: Order) -> io::Result<()> {
        let line = wire::line(&order)?;
        timeout(ORDER_MAX, self.orders.write_all(&line)).await?
    }

    /// Sends an order without waiting, or not at all if the socket is full: a supervisor that is
    /// halted finds the deadline in shared memory when it goes on.
    fn try_tell(&self, order: Order) -> io::Result<()> {
        // The kernel takes a whole line of this length or nothing.
        match self.orders.try_write(&wire::line(&order)?) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            sent => sent.map(drop),
        }
    }

    /// Whether the supervisor was ever allowed to start the command.
    pub(crate) fn may_have_started(&self) -> bool {
        self.told.is_some()
    }

    /// Closes the socket, which ends all processes that are left, and waits for the supervisor to
    /// end. `None` if it has reported that nothing is left, and takes its time to end.
    pub(crate) async fn ended(self, has_reported: bool) -> io::Result<Option<ExitStatus>> {
        let Self {
            mut process,
            orders,
            reports,
            ..
        } = self;
        drop((orders, reports));
        if !has_reported {
            return process.wait().map(Some);
        }
        // It may print its last messages, which is no reason to keep the lock.
        for _ in 0..LAST_CHECKS {
            if let Some(status) = process.try_wait()? {
                return Ok(Some(status));
            }
            sleep(LAST_CHECK).await;
        }
        Ok(None)
    }
}
