//! The supervisor: starts the command, and ends it together with all that it has started.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use futures::FutureExt as _;
use rustix::process::{Pid, Signal, WaitStatus, getpid, set_parent_process_death_signal};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::time::{Instant, sleep_until};

use super::cgroup::Cgroup;
use super::deadline_file::DeadlineFile;
use super::process_table::Spared;
use super::process_tree::{self, ProcessTree};
use super::signal_echo::SignalEcho;
use super::signals::{Signals, is_typed, resumes};
use super::wire::{self, COMMAND, EXECUTABLE, End, Moment, Order, Plan, at};
use crate::args::OnLost;
use crate::exit::Failure;

/// How long processes that a command leaves behind have to end before they are killed.
const REST_GRACE: Duration = Duration::from_secs(1);

/// Runs as the supervisor. The arguments are the plan and the command.
pub(crate) fn main(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let plan = arguments.next().unwrap_or_default();
    // One thread: the kernel kills the command when the thread that started it ends.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = runtime.and_then(|runtime| {
        let plan = serde_json::from_str(&plan.to_string_lossy())?;
        runtime.block_on(supervise(plan, arguments.collect()))
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => Failure::system("supervise the command", &error).report(),
    }
}

async fn supervise(plan: Plan, command: Vec<OsString>) -> io::Result<()> {
    process_tree::adopt_orphans()?;
    // It may be halted with its job when the process with the session is killed. Then only it is
    // left to end the command.
    set_parent_process_death_signal(Some(Signal::CONT))?;
    let signals = Signals::listen()?;
    let children = signal(SignalKind::child())?;
    let socket: OwnedFd = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3)?;
    let socket = StdUnixStream::from(socket);
    let (input, deadline) = wire::take(&socket)?;
    socket.set_nonblocking(true)?;
    let (orders, mut reports) = UnixStream::from_std(socket)?.into_split();
    let cgroup = plan.cgroup.as_deref().map(Cgroup::at);
    let mut supervisor = Supervisor {
        tree: ProcessTree::new(Spared::default(), cgroup),
        deadline: deadline.map(DeadlineFile::from),
        plan,
        children,
        signals,
        echo: SignalEcho::default(),
        orders: Some(BufReader::new(orders).lines()),
        ask_at: None,
        kill_at: None,
        is_asked: false,
        is_killed: false,
    };
    // The command does not start before its deadline is known, nor after it has passed.
    let first = next_order(&mut supervisor.orders).await;
    if !matches!(first, Some(Order::Schedule { .. })) {
        return Ok(());
    }
    supervisor.heed(first);
    if supervisor.kill_at.is_some_and(|it| it <= Instant::now()) {
        return Ok(());
    }
    // Signals until now were not for a command. The runtime notices signals between two polls.
    tokio::task::yield_now().await;
    while supervisor.signals.next().now_or_never().is_some() {}
    let leader = start(&supervisor.plan, command, input)?;
    let end = supervisor.until_ended(leader).await;
    // An error means that there is no process left to report to.
    drop(reports.write_all(&wire::line(&end)?).await);
    Ok(())
}

fn start(plan: &Plan, command: Vec<OsString>, input: OwnedFd) -> io::Result<Pid> {
    let mut process = Command::new(EXECUTABLE);
    process.arg0(COMMAND);
    process.arg(getpid().as_raw_nonzero().to_string());
    process.arg(plan.cgroup.as_deref().unwrap_or_default());
    process.args(command).stdin(Stdio::from(input));
    if plan.own_group {
        process.process_group(0);
    }
    Ok(Pid::from_child(&process.spawn()?))
}

type Orders = Lines<BufReader<OwnedReadHalf>>;

struct Supervisor {
    plan: Plan,
    tree: ProcessTree,
    /// Where later deadlines than those of the orders may be found.
    deadline: Option<DeadlineFile>,
    children: unix::Signal,
    /// In a job of a shell they reach the whole group, and are meant for the command.
    signals: Signals,
    echo: SignalEcho,
    /// `None` once the other end is closed.
    orders: Option<Orders>,
    ask_at: Option<Instant>,
    kill_at: Option<Instant>,
    is_asked: bool,
    is_killed: bool,
}

enum Event {
    /// `None` if no more orders will come.
    Order(Option<Order>),
    ChildEnded,
    AskAt,
    KillAt,
    /// This process got the signal.
    Signal(Signal),
    EchoDue,
}

impl Supervisor {
    /// Waits until neither the command nor anything that it has started runs.
    async fn until_ended(&mut self, leader: Pid) -> End {
        let mut status = None;
        while status.is_none() && !self.is_killed {
            let event = self.next_event().await;
            self.act(event);
            status = status_of(leader, std::iter::from_fn(process_tree::reap));
        }
        let for_the_lock = self.is_asked || self.is_killed;
        if !self.is_killed {
            self.end_rest().await;
        }
        let ended = self.tree.end_all().await;
        self.tree.remove();
        let status = status.or_else(|| status_of(leader, ended.into_iter()));
        End {
            code: status.and_then(WaitStatus::exit_status),
            signal: status.and_then(WaitStatus::terminating_signal),
            for_the_lock,
        }
    }

    /// Gives the processes that the command has left behind some time to end by themselves.
    async fn end_rest(&mut self) {
        if !ProcessTree::may_be_left() {
            return;
        }
        self.request(Signal::TERM);
        let killed_at = Instant::now() + REST_GRACE;
        // By then the last of them is a child of this process, so its end is an event.
        while !self.is_killed && ProcessTree::may_be_left() {
            tokio::select! {
                biased;
                event = self.next_event() => self.act(event),
                () = sleep_until(killed_at) => return,
            }
        }
    }

    async fn next_event(&mut self) -> Event {
        let ask_at = self.ask_at.filter(|_| !self.is_asked);
        tokio::select! {
            biased;
            // An order that moves the deadline may have waited for this process to be resumed.
            order = next_order(&mut self.orders) => Event::Order(order),
            () = at(self.kill_at) => Event::KillAt,
            () = at(ask_at) => Event::AskAt,
            _ = self.children.recv() => Event::ChildEnded,
            signal = self.signals.next() => Event::Signal(signal),
            () = at(self.echo.due()) => Event::EchoDue,
        }
    }

    fn act(&mut self, event: Event) {
        match event {
            Event::Order(order) => self.heed(order),
            Event::KillAt => {
                self.read_deadline();
                self.is_killed |= is_due(self.kill_at);
            }
            Event::AskAt => {
                self.read_deadline();
                if is_due(self.ask_at) {
                    self.is_asked = true;
                    self.request(Signal::TERM);
                }
            }
            Event::ChildEnded => {}
            Event::Signal(signal) => self.echo.note_seen(signal, Instant::now()),
            Event::EchoDue => {
                if let Some(signal) = self.echo.decide(Instant::now()) {
                    self.request(signal);
                }
            }
        }
    }

    /// Takes over the deadline that counts. Orders may be older, if this process was halted.
    fn read_deadline(&mut self) {
        if let Some((ask_at, kill_at)) = self.deadline.as_ref().and_then(DeadlineFile::read) {
            self.ask_at = ask_at.map(Moment::instant);
            self.kill_at = kill_at.map(Moment::instant);
        }
    }

    /// Sends a signal to the command and its descendants. One that requests them to end also reaches
    /// those that are halted.
    fn request(&self, signal: Signal) {
        self.tree.signal_all(signal);
        if resumes(signal) {
            self.tree.signal_all(Signal::CONT);
        }
    }

    fn heed(&mut self, order: Option<Order>) {
        match order {
            Some(Order::Schedule { ask_at, kill_at }) => {
                self.ask_at = ask_at.map(Moment::instant);
                self.kill_at = kill_at.map(Moment::instant);
                self.read_deadline();
            }
            Some(Order::Signal(number)) => {
                let shares_group = !self.plan.own_group;
                match Signal::from_named_raw(number) {
                    Some(signal) if shares_group && is_typed(signal) => {
                        self.echo.note_ordered(signal, Instant::now());
                    }
                    Some(signal) => self.request(signal),
                    None => {}
                }
            }
            Some(Order::Kill) => self.is_killed = true,
            // The lock is not held any more, or no order can report whether it is.
            Some(Order::Lost) => self.is_killed |= self.plan.on_lost != OnLost::Ignore,
            None => {
                self.orders = None;
                self.is_killed |= self.plan.on_lost != OnLost::Ignore;
            }
        }
    }
}

fn is_due(moment: Option<Instant>) -> bool {
    moment.is_some_and(|it| it <= Instant::now())
}

fn status_of(leader: Pid, ended: impl Iterator<Item = (Pid, WaitStatus)>) -> Option<WaitStatus> {
    // All of them are reaped, so that no zombie stays.
    let mut status = None;
    for (pid, its) in ended {
        if pid == leader {
            status = Some(its);
        }
    }
    status
}

async fn next_order(orders: &mut Option<Orders>) -> Option<Order> {
    let Some(lines) = orders else {
        return std::future::pending().await;
    };
    let line = lines.next_line().await.ok().flatten()?;
    serde_json::from_str(&line).ok()
}
