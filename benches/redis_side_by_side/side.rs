//! The sides that are compared.

use std::fmt;

use super::hash::{HashLocks, Waiting};
use super::ours::Ours;
use super::work::{Place, Work};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ours,
    /// A hash, and clients that poll.
    Polled,
    /// A hash, and clients that each release wakes.
    Woken,
}

impl Kind {
    /// The columns of the tables.
    pub(crate) const ALL: [Self; 3] = [Self::Ours, Self::Polled, Self::Woken];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ours => "ours",
            Self::Polled => "hash, polled",
            Self::Woken => "hash, all woken",
        })
    }
}

pub(crate) struct Sides {
    ours: Ours,
    polled: HashLocks,
    woken: HashLocks,
}

impl Sides {
    pub(crate) async fn start() -> Self {
        Self {
            ours: Ours::default(),
            polled: HashLocks::new(Waiting::Polls),
            woken: HashLocks::new(Waiting::IsWoken),
        }
    }

    /// Panics if a side fails, because work that was not done cannot be compared.
    pub(crate) async fn perform(&mut self, kind: Kind, work: Work, place: &Place) -> Vec<u64> {
        match kind {
            Kind::Ours => self.ours.perform(work, place).await,
            Kind::Polled => self.polled.perform(work, place).await,
            Kind::Woken => self.woken.perform(work, place).await,
        }
    }

    pub(crate) async fn close(self) {
        self.ours.close().await;
    }
}
