//! Which frames a rule matches, and what happens to them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;

use super::frame::{Direction, Frame, Opcode};
use super::lock;

/// How a connection is closed, at both of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cut {
    /// In good order, as by a process that ends: everything written before arrives.
    Fin,
    /// By a reset, as by a host that does not know the connection. Bytes written just before may be
    /// lost too.
    Reset,
}

/// What happens to a frame, and with it to its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The connection is cut, and the frame is not forwarded.
    CutBefore(Cut),
    /// The connection is cut after the frame was forwarded.
    CutAfter(Cut),
    /// The connection is cut after half of the frame was forwarded.
    CutWithin(Cut),
    /// Nothing of this direction of the connection arrives any more, not even its end. The other
    /// direction goes on. The sender notices nothing, because its bytes are read.
    BlackHole,
    /// The frame disappears; those that follow do not. If it is a request to Redis or a database,
    /// whose answers have no numbers, all later answers seem to be for the request before. No headers
    /// to or from etcd can be dropped, because later ones refer to them.
    Drop,
    /// A reply becomes a refusal with this error code, which Redis only quotes, and which is the
    /// SQLSTATE of PostgreSQL. The server has carried the request out. If an answer has several
    /// messages, only the last that is of the statement can be refused: `CommandComplete`, `OK`. Answers of etcd pass.
    Refuse(i32),
    /// The frame is late, and so are those that follow.
    Delay(Duration),
    /// The frame comes in pieces of this many bytes, with a pause after each.
    Split {
        /// Length of a piece, at least 1.
        bytes: usize,
        /// Pause after a piece. Without one, pieces are likely to arrive together.
        pause: Duration,
    },
}

/// The properties by which frames match.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    pub(super) direction: Direction,
    pub(super) opcode: Option<Opcode>,
    pub(super) name: Option<String>,
    pub(super) path_part: Option<String>,
    pub(super) connection: Option<u64>,
}

impl Pattern {
    pub(super) fn matches(&self, frame: &Frame) -> bool {
        let names = |part: &String| frame.paths.iter().any(|path| path.contains(part));
        self.direction == frame.direction
            && self.opcode.is_none_or(|it| it == frame.opcode)
            && self.name.as_ref().is_none_or(|it| frame.names.contains(it))
            && self.connection.is_none_or(|it| it == frame.connection)
            && self.path_part.as_ref().is_none_or(names)
    }
}

/// Which of the matching frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Each,
    /// Counted from 1.
    Nth(usize),
}

#[derive(Clone, Debug)]
pub(super) enum Act {
    Fault(Fault),
    Hold(Arc<GateState>),
}

#[derive(Debug)]
struct Rule {
    pattern: Pattern,
    turn: Turn,
    matched: usize,
    act: Act,
    fired: watch::Sender<usize>,
}

/// The rules of a proxy, in the order in which they were set.
#[derive(Debug, Default)]
pub(super) struct Rules(Mutex<Vec<Rule>>);

impl Rules {
    pub(super) fn add(&self, pattern: Pattern, turn: Turn, act: Act) -> Injection {
        let (fired, fired_receiver) = watch::channel(0);
        let rule = Rule {
            pattern,
            turn,
            matched: 0,
            act,
            fired,
        };
        lock(&self.0).push(rule);
        Injection {
            fired: fired_receiver,
        }
    }

    pub(super) fn clear(&self) {
        lock(&self.0).clear();
    }

    /// Counts the frame in. Returns what shall happen to it, if a rule applies.
    pub(super) fn decide(&self, frame: &Frame) -> Option<Act> {
        let mut decision = None;
        for rule in lock(&self.0)
            .iter_mut()
            .filter(|it| it.pattern.matches(frame))
        {
            rule.matched += 1;
            let is_due = match rule.turn {
                Turn::Each => true,
                Turn::Nth(turn) => turn == rule.matched,
            };
            if is_due && decision.is_none() {
                decision = Some(rule.act.clone());
                rule.fired.send_modify(|fired| *fired += 1);
            }
        }
        decision
    }
}

/// A fault that waits for its frame, from [`FramePattern::then`](crate::FramePattern::then).
///
/// Dropping it changes nothing: the rule stays.
#[derive(Clone, Debug)]
pub struct Injection {
    fired: watch::Receiver<usize>,
}

impl Injection {
    /// Waits until the fault has struck. Returns at once if it already has.
    ///
    /// Never completes if no frame comes, or if the proxy or its rules are gone before one does.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future.
    pub async fn struck(&self) {
        let mut fired = self.fired.clone();
        let struck = fired.wait_for(|fired| *fired > 0).await.is_ok();
        if !struck {
            std::future::pending::<()>().await;
        }
    }

    /// Returns how many times it has struck.
    #[must_use]
    pub fn count(&self) -> usize {
        *self.fired.borrow()
    }
}

/// Holds one frame, and all that follow it, until it is released or dropped. From
/// [`FramePattern::hold`](crate::FramePattern::hold).
#[derive(Debug)]
#[must_use = "a gate that is dropped is open"]
pub struct Gate {
    pub(super) state: Arc<GateState>,
}

#[derive(Debug, Default)]
pub(super) struct GateState {
    reached: watch::Sender<bool>,
    open: watch::Sender<bool>,
}

impl Gate {
    /// Waits until the frame is at the gate. Returns at once if it was there before.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future.
    pub async fn reached(&self) {
        // The sender is ours, so waiting does not fail.
        drop(
            self.state
                .reached
                .subscribe()
                .wait_for(|reached| *reached)
                .await,
        );
    }

    /// Lets the frame pass. If it has not come yet, it will not be held.
    pub fn release(&self) {
        self.state.open.send_replace(true);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.release();
    }
}

impl GateState {
    /// Waits at the gate until it is open.
    pub(super) async fn pass(&self) {
        self.reached.send_replace(true);
        // The sender is ours, so waiting does not fail.
        drop(self.open.subscribe().wait_for(|open| *open).await);
    }
}
