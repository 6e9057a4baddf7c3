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

/// Bits of a token below those of its era.
const ERA_SHIFT: u32 = 56;
/// The sign is not used.
const ERA_MAX: u8 = i8::MAX as u8;

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

    /// The token as a number that is higher than all of eras before, for locks that have changed their store, or whose
    /// store has lost data: tokens of different stores do not compare, and those of the new one may be lower.
    ///
    /// Era 0 is [`as_i64`](Self::as_i64). So a service needs no era before the first change, and no other column after
    /// it. All services of a lock use the same era: see "Changing the store" in `docs/operating.md`.
    ///
    /// `None` for an era above 127, and for a token above 2⁵⁶: microseconds since 1970 reach that in the year 4253, and a
    /// ZooKeeper ensemble after 16 million elections.
    ///
    /// # Examples
    /// ```
    /// # use recipes_core::{DistributedLock, Error};
    /// # async fn example(lock: &dyn DistributedLock, era: u8) -> Result<(), Error> {
    /// let guard = lock.acquire().await?;
    /// let token = guard.fencing_token().and_then(|token| token.in_era(era));
    /// // UPDATE orders SET state = $1, token = $2 WHERE id = $3 AND token <= $2
    /// # drop(token);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn in_era(self, era: u8) -> Option<i64> {
        match self.czxid >= 0 && self.czxid >> ERA_SHIFT == 0 && era <= ERA_MAX {
            true => Some(((era as i64) << ERA_SHIFT) | self.czxid),
            false => None,
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_of_a_later_era_is_higher_and_era_zero_is_the_token() {
        // Redis and databases count microseconds, ZooKeeper transactions since the last election.
        let numbers = [0, 100, 5 << 32, 1_795_779_836_318_800, (1 << 56) - 1];
        let tokens = numbers.map(FencingToken::new);
        for token in tokens {
            assert_eq!(token.in_era(0), Some(token.as_i64()));
            for other in tokens {
                for era in 1..=ERA_MAX {
                    assert!(
                        token.in_era(era) > other.in_era(era - 1),
                        "{token} {other} {era}"
                    );
                    assert_eq!(token < other, token.in_era(era) < other.in_era(era));
                }
            }
        }
    }

    #[test]
    fn what_has_no_place_in_an_era_is_no_number() {
        assert_eq!(FencingToken::new(1).in_era(128), None);
        assert_eq!(FencingToken::new(1 << 56).in_era(1), None);
        assert_eq!(FencingToken::new(-1).in_era(1), None);
    }
}
