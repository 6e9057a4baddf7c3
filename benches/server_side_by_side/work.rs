//! The work that every side of the comparison does.

use std::fmt;
use std::time::Duration;

/// One step of work. Its answer consists of numbers, by kind:
///
/// | work | figures |
/// |---|---|
/// | `Uncontended`, `Set` | nanoseconds of each acquire and each release, in turn |
/// | `RoundTrip`, `Try` | nanoseconds of each attempt |
/// | `Parallel`, `ReadWrite`, `Drain` | cycles while all took part, nanoseconds of that, all cycles |
/// | `Saturated`, `Paced` | see `Contest` |
/// | `Hold`, `Free`, `Queue` | none |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// One round trip and nothing else.
    RoundTrip,
    /// Acquire and release a lock without contention.
    Uncontended,
    /// The same for several locks together.
    Set { members: usize },
    /// Lets another session hold the lock, from now on.
    Hold,
    /// Tries in vain to get a lock that is held.
    Try,
    /// Ends `Hold`.
    Free,
    /// Sessions that want one lock all the time.
    Saturated { sessions: usize },
    /// Sessions that work for [`HOLD`] while they hold the lock, and pause for [`PAUSE`] after it.
    Paced { sessions: usize },
    /// Lets waiters queue up behind a holder.
    Queue { sessions: usize, waiters: usize },
    /// Releases the holder of `Queue`. All waiters then hold the lock in turn.
    Drain { sessions: usize, waiters: usize },
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
}

impl Work {
    /// Whether only some sides do it, on one store.
    pub(crate) fn is_a_queue(self) -> bool {
        matches!(self, Self::Queue { .. } | Self::Drain { .. })
    }
}

/// For how long readers share a node.
pub(crate) const SHARED: Duration = Duration::from_millis(10);
/// How long a holder works.
pub(crate) const HOLD: Duration = Duration::from_millis(2);
/// How long a contender does something else. With eight contenders some always wait.
pub(crate) const PAUSE: Duration = Duration::from_millis(3);

/// How long a client that polls waits before it tries again.
pub(crate) const POLL: Duration = Duration::from_millis(60);

/// The server, the lock, and the duration.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) lock: String,
    pub(crate) length: Duration,
}

/// The line that a peer reads, as defined in `tests/peers/README.md`. The first part names the
/// kind of lock.
pub(crate) struct Order<'a>(pub(crate) &'a str, pub(crate) Work, pub(crate) &'a Place);

impl fmt::Display for Order<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { url, lock, length } = self.2;
        let work = match self.1 {
            Work::RoundTrip => "roundtrip",
            Work::Uncontended => "uncontended",
            Work::Set { .. } => "set",
            Work::Hold => "hold",
            Work::Try => "try",
            Work::Free => "free",
            Work::Saturated { .. } => "saturated",
            Work::Paced { .. } => "paced",
            Work::Queue { .. } => "queue",
            Work::Drain { .. } => "drain",
            Work::Parallel { .. } => "parallel",
            Work::ReadWrite { .. } => "readwrite",
        };
        write!(f, "{work} {url} {lock} {} {}", length.as_millis(), self.0)?;
        match self.1 {
            Work::Set { members } => write!(f, " {members}"),
            Work::Saturated { sessions } => write!(f, " {sessions}"),
            Work::Paced { sessions } => {
                let (hold, pause) = (HOLD.as_millis(), PAUSE.as_millis());
                write!(f, " {sessions} {hold} {pause}")
            }
            Work::Queue { sessions, waiters } => write!(f, " {sessions} {waiters}"),
            Work::Parallel { locks } => write!(f, " {locks}"),
            Work::ReadWrite {
                sessions,
                tasks,
                write_percent,
                ..
            } => write!(f, " {sessions} {tasks} {write_percent}"),
            Work::RoundTrip
            | Work::Uncontended
            | Work::Hold
            | Work::Try
            | Work::Free
            | Work::Drain { .. } => Ok(()),
        }
    }
}
