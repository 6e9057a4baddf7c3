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
/// Its semaphore, whose holders write nothing.
pub(crate) const SEMAPHORE: &str = "p";
/// The directory of the semaphore's leases. Its path is that of the attempts.
pub(crate) const LEASES: &str = "p/leases";
/// The directory of the semaphore's mutex.
const SEMAPHORES_MUTEX: &str = "p/locks";
pub(crate) const PERMITS: u32 = 3;
/// Its election. In every second history the nodes are those of a latch.
pub(crate) const ELECTION: &str = "e";

/// Directories of nodes that are gone when all is over.
pub(crate) fn directories(history: u64) -> impl Iterator<Item = String> {
    let others = [LEASES, SEMAPHORES_MUTEX, ELECTION];
    let all = LOCKS.into_iter().chain(others);
    all.map(move |name| path(history, name))
}

/// The paths under whose locks contenders write.
pub(crate) fn written(history: u64) -> impl Iterator<Item = String> {
    let all = LOCKS.into_iter().chain([ELECTION]);
    all.map(move |name| path(history, name))
}

/// The history that a path belongs to.
pub(crate) fn history_of(path: &str) -> Option<u64> {
    path.strip_prefix("/histories/")?
        .split('/')
        .next()?
        .parse()
        .ok()
}

/// Whether a path is that of an election.
pub(crate) fn is_election(path: &str) -> bool {
    path.rsplit_once('/')
        .is_some_and(|(_, name)| name == ELECTION)
}
