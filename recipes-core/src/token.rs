//! Fencing tokens.

use std::fmt;

/// A number that rises with every grant of a lock, by which a store refuses a late writer.
///
/// It is the transaction id (`czxid`) that created the lock node. Send it with every write to the
/// store that the lock protects and let the store refuse a token lower than the highest it has
/// seen: then a holder that was paused beyond its session and does not know it yet cannot do harm.
/// The store must see the token with the *first* access under the lock, a read too: a late writer
/// may otherwise get in between the next holder's read and its write.
///
/// # Guarantees
/// Over conflicting grants of one lock tokens strictly rise, whatever happens to clocks, processes
/// and the network, also when the lock directory was removed and made again (sequence numbers
/// restart then, which is why they are no tokens). Tokens of different locks are comparable, since
/// one ensemble counts all its transactions. They fall only if the ensemble loses its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(i64);

impl FencingToken {
    pub(crate) const fn new(czxid: i64) -> Self {
        Self(czxid)
    }

    /// The token as a number, for a store that keeps the highest one.
    #[must_use]
    pub const fn as_i64(self) -> i64 {
        self.0
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
