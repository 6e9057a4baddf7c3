//! The orders of a process of contenders, and the paths of its locks.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) worker: u32,
    pub(crate) seed: u64,
    pub(crate) address: String,
    pub(crate) journal: PathBuf,
    /// The start, on the clock of the histories.
    pub(crate) start: u64,
    pub(crate) scenes: Scenes,
}

/// Which locks are contended for when: a few histories at the same time, then others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenes {
    pub(crate) count: u64,
    pub(crate) side_by_side: u64,
    pub(crate) length_ms: u64,
}

impl Scenes {
    pub(crate) fn histories(&self) -> u64 {
        self.count * self.side_by_side
    }

    pub(crate) fn length(&self) -> Duration {
        Duration::from_millis(self.count * self.length_ms)
    }
}

impl fmt::Display for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (worker, seed, start) = (self.worker, self.seed, self.start);
        let Scenes {
            count,
            side_by_side,
            length_ms,
        } = self.scenes;
        let (address, journal) = (&self.address, self.journal.display());
        write!(
            f,
            "{worker} {seed} {start} {count} {side_by_side} {length_ms} {address} {journal}"
        )
    }
}

impl FromStr for Orders {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.splitn(8, ' ');
        let mut next = || words.next().ok_or(());
        let mut number = || next()?.parse::<u64>().map_err(drop);
        let (worker, seed, start) = (number()?, number()?, number()?);
        let scenes = Scenes {
            count: number()?,
            side_by_side: number()?,
            length_ms: number()?,
        };
        Ok(Self {
            worker: u32::try_from(worker).map_err(drop)?,
            seed,
            start,
            scenes,
            address: next()?.to_owned(),
            journal: next()?.into(),
        })
    }
}

pub(crate) fn path(history: u64, lock: &str) -> String {
    format!("/histories/{history}/{lock}")
}

/// The node with the last token that was written under a lock.
pub(crate) fn register(path: &str) -> String {
    format!("/registers{}", path.replace('/', "-").replacen('-', "/", 1))
}

/// Locks of a history: two mutexes, and one for readers and writers.
pub(crate) const LOCKS: [&str; 3] = ["a", "b", "s"];
