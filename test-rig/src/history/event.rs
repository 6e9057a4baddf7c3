//! One event, which is one line of text.

use std::fmt;
use std::str::FromStr;

use recipes_core::LockKind;
use thiserror::Error;

/// An attempt to acquire one lock. Attempts for the members of a set differ only in `member`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId {
    /// The process.
    pub worker: u32,
    /// A counter within the process.
    pub number: u32,
    /// A counter within a set; 0 for a single lock.
    pub member: u32,
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.worker, self.number, self.member)
    }
}

/// What one contender did or saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is about to acquire the lock at this path.
    Invoked {
        /// The kind of lock that it wants.
        kind: LockKind,
        /// How many permits the semaphore has, as far as this contender knows; 1 for other locks.
        permits: u32,
        /// The party: the owner that re-enters. Grants of one party may share a node, or be a
        /// writer and the readers next to it.
        party: u64,
        /// Path of the lock directory.
        path: String,
    },
    /// It got the lock, and the guard was valid after the stamp was taken.
    Granted {
        /// The fencing token.
        token: i64,
        /// Full path of the lock node.
        node: String,
    },
    /// The guard was valid after the stamp was taken.
    Valid,
    /// `lost()` completed, or the guard was not valid.
    Lost,
    /// It is about to release. The guard was valid after the stamp was taken.
    Releasing,
    /// The release is done, and the node is gone.
    Released,
    /// The release was not confirmed, or the guard was dropped.
    LetGo,
    /// The acquire ended without a guard: it failed, timed out, or was dropped.
    Ended,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happening {
    /// One contender's step.
    Of(AttemptId, Step),
    /// A process does not run until `Resumed`.
    Paused(u32),
    /// It runs again.
    Resumed(u32),
    /// A process was killed, which ends all its attempts and grants.
    Killed(u32),
    /// The ensemble does not serve until `Up`.
    Down,
    /// It serves again.
    Up,
    /// A session is about to be ended from outside: its holders cannot know before others.
    Evicted(i64),
    /// The end. A contender that still waits would wait for ever.
    Over,
    /// This node still existed at the end.
    Left(String),
}

/// An event: what happened, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Nanoseconds of a clock that all processes share and that cannot be set.
    pub at: u64,
    /// What happened.
    pub what: Happening,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.at)?;
        match &self.what {
            Happening::Of(id, step) => write!(f, "{id} {step}"),
            Happening::Paused(worker) => write!(f, "paused {worker}"),
            Happening::Resumed(worker) => write!(f, "resumed {worker}"),
            Happening::Killed(worker) => write!(f, "killed {worker}"),
            Happening::Down => f.write_str("down"),
            Happening::Up => f.write_str("up"),
            Happening::Evicted(session) => write!(f, "evicted {session}"),
            Happening::Over => f.write_str("over"),
            Happening::Left(node) => write!(f, "left {node}"),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invoked {
                kind,
                permits,
                party,
                path,
            } => {
                write!(f, "invoked {}", kind.as_str())?;
                if *kind == LockKind::Permit {
                    write!(f, ":{permits}")?;
                }
                write!(f, " {party} {path}")
            }
            Self::Granted { token, node } => write!(f, "granted {token} {node}"),
            Self::Valid => f.write_str("valid"),
            Self::Lost => f.write_str("lost"),
            Self::Releasing => f.write_str("releasing"),
            Self::Released => f.write_str("released"),
            Self::LetGo => f.write_str("let-go"),
            Self::Ended => f.write_str("ended"),
        }
    }
}

/// A line is not an event.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("not an event of a history: {line:?}")]
pub struct EventError {
    /// The line.
    pub line: String,
}

impl FromStr for Event {
    type Err = EventError;

    fn from_str(line: &str) -> Result<Self, EventError> {
        parse(line).ok_or_else(|| EventError {
            line: line.to_owned(),
        })
    }
}

/// Paths come last, since they may contain anything but the end of a line.
fn parse(line: &str) -> Option<Event> {
    let (at, rest) = line.split_once(' ')?;
    let (first, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let what = match first {
        "paused" => Happening::Paused(rest.parse().ok()?),
        "resumed" => Happening::Resumed(rest.parse().ok()?),
        "killed" => Happening::Killed(rest.parse().ok()?),
        "down" if rest.is_empty() => Happening::Down,
        "up" if rest.is_empty() => Happening::Up,
        "evicted" => Happening::Evicted(rest.parse().ok()?),
        "over" if rest.is_empty() => Happening::Over,
        "left" => Happening::Left(rest.to_owned()),
        id => Happening::Of(parse_id(id)?, parse_step(rest)?),
    };
    let at = at.parse().ok()?;
    Some(Event { at, what })
}

fn parse_id(id: &str) -> Option<AttemptId> {
    let mut parts = id.split('.').map(|part| part.parse().ok());
    let (worker, number, member) = (parts.next()??, parts.next()??, parts.next()??);
    let id = AttemptId {
        worker,
        number,
        member,
    };
    parts.next().is_none().then_some(id)
}

fn parse_step(text: &str) -> Option<Step> {
    let (first, rest) = text.split_once(' ').unwrap_or((text, ""));
    let step = match first {
        "invoked" => {
            let (kind, rest) = rest.split_once(' ')?;
            let (party, path) = rest.split_once(' ')?;
            let (kind, permits) = parse_kind(kind)?;
            return Some(Step::Invoked {
                kind,
                permits,
                party: party.parse().ok()?,
                path: path.to_owned(),
            });
        }
        "granted" => {
            let (token, node) = rest.split_once(' ')?;
            let (token, node) = (token.parse().ok()?, node.to_owned());
            return Some(Step::Granted { token, node });
        }
        "valid" => Step::Valid,
        "lost" => Step::Lost,
        "releasing" => Step::Releasing,
        "released" => Step::Released,
        "let-go" => Step::LetGo,
        "ended" => Step::Ended,
        _ => return None,
    };
    rest.is_empty().then_some(step)
}

/// The kind, and how many permits there are: `permit:3`.
fn parse_kind(word: &str) -> Option<(LockKind, u32)> {
    if let Some((word, permits)) = word.split_once(':') {
        let permits = permits.parse().ok().filter(|permits| *permits > 0)?;
        return (word == LockKind::Permit.as_str()).then_some((LockKind::Permit, permits));
    }
    let mut exclusive_or_shared = [
        LockKind::Mutex,
        LockKind::Read,
        LockKind::Write,
        LockKind::Latch,
    ]
    .into_iter();
    let kind = exclusive_or_shared.find(|kind| kind.as_str() == word)?;
    Some((kind, 1))
}
