//! The work that every side of the comparison does.

use std::fmt;
use std::time::Duration;

/// For how long readers share a node.
pub(crate) const SHARED: Duration = Duration::from_millis(10);

/// One step of work. Its answer consists of numbers, by kind:
///
/// | work | figures |
/// |---|---|
/// | `Uncontended`, `Set`, `Permit` | nanoseconds of each acquire and each release, in turn |
/// | `Try`, `Read` | nanoseconds of each attempt |
/// | `Contended`, `Local`, `Parallel`, `ReadWrite` | cycles while all took part, nanoseconds of that, all cycles |
/// | `Drain` | cycles, nanoseconds, cycles |
/// | `Release` | 1, nanoseconds, 1 |
/// | `Hold`, `Free`, `Queue`, `Crowd`, `Disperse` | none |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Read a node, which is one round trip and nothing else.
    Read,
    /// Acquire and release a lock without contention.
    Uncontended,
    /// The same for several locks together.
    Set { members: usize },
    /// Acquire and release one permit of a semaphore without contention.
    Permit { permits: usize },
    /// Sessions that want one lock all the time.
    Contended { sessions: usize },
    /// Contenders of one session that want one lock all the time. Only this library hands it on
    /// among them, at most this many times in a row.
    Local { contenders: usize, handoffs: u32 },
    /// Contenders of one session that want different locks.
    Parallel { locks: usize },
    /// Tasks of some sessions, so many in each, that read and write under one lock.
    ReadWrite {
        sessions: usize,
        tasks: usize,
        write_percent: u8,
        /// Only this library has its readers share a node, for [`SHARED`].
        shares: bool,
    },
    /// Lets another session hold the lock, from now on.
    Hold,
    /// Tries in vain to get a lock that is held.
    Try,
    /// Ends `Hold`.
    Free,
    /// Lets waiters queue up after a holder. In Curator's case they have a lock object each
    /// (`apart`), or one for each session.
    Queue {
        sessions: usize,
        waiters: usize,
        apart: bool,
    },
    /// Releases the holder of `Queue`. All waiters then hold the lock in turn.
    Drain,
    /// Lets waiters with a session each wait for a holder.
    Crowd { waiters: usize },
    /// Releases the holder of `Crowd`, and lets the next one keep the lock.
    Release,
    /// Ends `Crowd`.
    Disperse,
}

/// The server, the lock, and the duration.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) at: String,
    pub(crate) path: String,
    pub(crate) length: Duration,
}

/// The line that a peer reads, as defined in `tests/peers/README.md`.
pub(crate) struct Order<'a>(pub(crate) Work, pub(crate) &'a Place);

impl fmt::Display for Order<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { at, path, length } = self.1;
        let place = format!("{at} {path} {}", length.as_millis());
        match self.0 {
            Work::Read => write!(f, "read {place}"),
            Work::Uncontended => write!(f, "uncontended {place}"),
            Work::Set { members } => write!(f, "set {place} {members}"),
            Work::Permit { permits } => write!(f, "semaphore {place} {permits}"),
            Work::Contended { sessions } => write!(f, "contended {place} {sessions}"),
            Work::Local { contenders, .. } => write!(f, "local {place} {contenders}"),
            Work::Parallel { locks } => write!(f, "parallel {place} {locks}"),
            Work::ReadWrite {
                sessions,
                tasks,
                write_percent,
                ..
            } => write!(f, "readwrite {place} {sessions} {tasks} {write_percent}"),
            Work::Hold => write!(f, "hold {place}"),
            Work::Try => write!(f, "try {place}"),
            Work::Free => write!(f, "free"),
            Work::Queue {
                sessions,
                waiters,
                apart,
            } => write!(f, "queue {place} {sessions} {waiters} {}", u8::from(apart)),
            Work::Drain => write!(f, "drain"),
            Work::Crowd { waiters } => write!(f, "crowd {place} {waiters}"),
            Work::Release => write!(f, "release"),
            Work::Disperse => write!(f, "disperse"),
        }
    }
}
