//! One run of the sweep: a recipe, a frame, and a fault at it.

use std::fmt;
use std::time::Duration;

use test_rig::{Cut, Fault};

use crate::points::Point;
use crate::recipe::Recipe;

/// How long the ensemble keeps the subject's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// It may end in the middle of a run. It has this timeout.
    Short(Duration),
    /// Longer than a run, so that the end of the session repairs nothing.
    Long,
}

impl Lifetime {
    pub(crate) fn session_timeout(self) -> Duration {
        match self {
            Self::Short(timeout) => timeout,
            Self::Long => Duration::from_secs(20),
        }
    }

    /// How long the subject holds the lock.
    pub(crate) fn hold(self) -> Duration {
        match self {
            // Long enough that a partition takes the lock away meanwhile.
            Self::Short(timeout) => timeout * 3 / 4,
            Self::Long => Duration::from_millis(50),
        }
    }
}

/// What happens to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Harm {
    Fault(Fault),
    /// Nothing arrives in either direction, for twice the session timeout.
    Partition,
    /// The frame is lost with its connection, and the subject moves to another server.
    Move,
}

/// Everything that can happen to a frame. A long session notices silence too late for this test.
///
/// No frame is lost alone: the later ones on the same connection are lost too, or the connection
/// is. TCP does not lose a part and deliver the rest, and the ZooKeeper client relies on that.
pub(crate) fn harms(lifetime: Lifetime) -> Vec<Harm> {
    let cuts = [
        Fault::CutBefore(Cut::Fin),
        Fault::CutBefore(Cut::Reset),
        Fault::CutWithin(Cut::Fin),
        Fault::CutWithin(Cut::Reset),
        Fault::CutAfter(Cut::Fin),
        Fault::CutAfter(Cut::Reset),
    ];
    let mut harms = cuts.map(Harm::Fault).to_vec();
    if let Lifetime::Short(timeout) = lifetime {
        let split = Fault::Split {
            bytes: 3,
            pause: Duration::from_millis(1),
        };
        let late = Fault::Delay(timeout * 7 / 4);
        harms.extend([Fault::BlackHole, late, split].map(Harm::Fault));
        harms.push(Harm::Partition);
    }
    harms
}

/// Where a connection breaks, so that the next one can be harmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// When the subject waits and all its requests are answered.
    Waiting,
    At(Point, Fault),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) recipe: Recipe,
    pub(crate) lifetime: Lifetime,
    /// A cut that comes first.
    pub(crate) first: Option<First>,
    /// `None` for a run without a fault.
    pub(crate) harm: Option<(Point, Harm)>,
    pub(crate) dropped: Option<(Dropped, usize)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropped {
    Acquire,
    Release,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lifetime = match self.lifetime {
            Lifetime::Short(_) => "Short",
            Lifetime::Long => "Long",
        };
        write!(f, "{:?} {lifetime}", self.recipe)?;
        match &self.first {
            Some(First::Waiting) => write!(f, " cut while it waits,")?,
            Some(First::At(point, fault)) => write!(f, " after {point} {fault:?},")?,
            None => {}
        }
        if let Some((point, harm)) = &self.harm {
            write!(f, " {point} ")?;
            match harm {
                Harm::Fault(Fault::Delay(_)) => write!(f, "Delay")?,
                Harm::Fault(Fault::Split { .. }) => write!(f, "Split")?,
                Harm::Fault(fault) => write!(f, "{fault:?}")?,
                Harm::Partition | Harm::Move => write!(f, "{harm:?}")?,
            }
        }
        if let Some((dropped, polls)) = self.dropped {
            write!(f, " {dropped:?} dropped at {polls}")?;
        }
        Ok(())
    }
}
