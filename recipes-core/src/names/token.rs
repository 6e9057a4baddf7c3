//! Fencing tokens.

use std::fmt;

/// A number that rises with every conflicting grant of a lock, so that a store can refuse a late
/// writer.
///
/// It is the transaction id (`czxid`) that created the lock node. Send it with every write to the
/// store that the lock protects, and let that store refuse a token lower than the highest it has
/// seen. Then a holder that was paused beyond its session, and does not know it yet, can do no
/// harm. The store must see the token with the *first* access under the lock, even a read.
/// Otherwise a late writer may get in between the next holder's read and its write.
///
/// # Guarantees
/// Tokens of conflicting grants of one lock strictly rise, whatever happens to clocks, processes
/// and the network. That includes a lock directory that was removed and re-created: sequence
/// numbers restart then, which is why they are no tokens. Tokens of different locks are comparable,
/// because one store counts all its transactions. They fall only if the store loses its data.
///
/// # In a SQL table
/// ```sql
/// ALTER TABLE orders ADD COLUMN token BIGINT NOT NULL DEFAULT 0;
/// -- with every write under the lock, and with the first read; the parameter is as_i64()
/// UPDATE orders SET state = ?, token = ? WHERE id = ? AND token <= ?;
/// -- no row affected: refused, a later holder was here
/// ```
/// With local hand-offs add a column `handoff`, and compare `(token, handoff) <= (?, ?)`. The
/// cookbook's `fenced_write` shows both. [`Display`](fmt::Display) is for people: as texts, tokens
/// do not sort.
///
/// # Hand-offs within a process
/// With [`LockOptions::local_handoffs`](crate::LockOptions::local_handoffs) several grants in a row
/// rest on one node. They share the transaction id, and [`handoff`](Self::handoff) counts them. The
/// token orders by both. A store needs both to refuse a late write of an *earlier grant in the same
/// process*: one that was sent, was held up in flight, and arrives after the next grant's. To
/// refuse other processes, or without local hand-offs, [`as_i64`](Self::as_i64) is enough.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken {
    czxid: i64,
    handoff: u32,
}

impl FencingToken {
    pub(crate) const fn new(czxid: i64) -> Self {
        Self { czxid, handoff: 0 }
    }

    /// The token of the next grant on the same node.
    pub(crate) const fn handed_on(self) -> Self {
        // A node is handed on at most `u32::MAX` times.
        let handoff = self.handoff.saturating_add(1);
        Self { handoff, ..self }
    }

    /// The token as a number, for a store that keeps the highest one. All grants that rest on one
    /// node have the same.
    #[must_use]
    pub const fn as_i64(self) -> i64 {
        self.czxid
    }

    /// How many times the node had been handed on within its process before this grant; 0 without
    /// [`LockOptions::local_handoffs`](crate::LockOptions::local_handoffs).
    #[must_use]
    pub const fn handoff(self) -> u32 {
        self.handoff
    }
}

/// The number, followed by a point and the hand-off if there was one.
impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.handoff {
            0 => write!(f, "{}", self.czxid),
            handoff => write!(f, "{}.{handoff}", self.czxid),
        }
    }
}

/// As it is displayed.
impl fmt::Debug for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
