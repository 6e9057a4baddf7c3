//! Contenders of two processes for locks of all kinds.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use lock_recipes::LockKind::{Mutex as Mutual, Read, Write};
use lock_recipes::{
    AcquireError, DistributedLock, Error, InterProcessMutex, InterProcessReadWriteLock, LockKind,
    LockOptions, Member, MultiLock, Owner, Session,
};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::sleep;

use super::judge::Judge;

/// Polls that are enough for everything to settle that does not depend on time.
pub(crate) const SETTLED: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Process {
    Ours,
    Other,
}
use Process::{Other, Ours};

/// The kind of lock that a contender wants, and its locks. The second locks are for sets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wants {
    One(LockKind),
    /// Writes, reads next to that, and downgrades.
    Downgrade,
    Set(&'static [(LockKind, &'static str)]),
}
use Wants::{Downgrade, One, Set};

/// Contenders in the order in which they come.
pub(crate) type Cast = &'static [(Process, Wants)];

/// The path of single locks.
pub(crate) const FIRST: &str = "a";
pub(crate) const SECOND: &str = "b";
const THIRD: &str = "c";

/// Ahead are two contenders of one process and one of another. Two and one more follow.
pub(crate) const MUTEXES: Cast = &[
    (Ours, One(Mutual)),
    (Ours, One(Mutual)),
    (Other, One(Mutual)),
    (Ours, One(Mutual)),
    (Ours, One(Mutual)),
    (Other, One(Mutual)),
];
pub(crate) const WRITERS_THEN_READERS: Cast = &[
    (Ours, One(Write)),
    (Ours, One(Write)),
    (Other, One(Read)),
    (Ours, One(Read)),
    (Ours, One(Write)),
    (Other, One(Write)),
];
pub(crate) const READERS_THEN_WRITERS: Cast = &[
    (Ours, One(Read)),
    (Other, One(Read)),
    (Ours, One(Write)),
    (Ours, One(Write)),
    (Other, One(Write)),
    (Ours, One(Read)),
];
pub(crate) const READERS_BESIDE_WRITERS: Cast = &[
    (Ours, Downgrade),
    (Ours, Downgrade),
    (Other, One(Write)),
    (Ours, One(Read)),
    (Ours, One(Write)),
    (Other, Downgrade),
];
pub(crate) const SETS_OF_MUTEXES: Cast = &[
    (Ours, Set(&[(Mutual, FIRST), (Mutual, SECOND)])),
    (Ours, One(Mutual)),
    (Other, Set(&[(Mutual, SECOND)])),
    (Ours, Set(&[(Mutual, FIRST), (Mutual, SECOND)])),
    (Ours, One(Mutual)),
    (Other, Set(&[(Mutual, FIRST), (Mutual, SECOND)])),
];
pub(crate) const SETS_OF_ALL_KINDS: Cast = &[
    (Other, Set(&[(Read, SECOND)])),
    (
        Ours,
        Set(&[(Write, FIRST), (Read, SECOND), (Mutual, THIRD)]),
    ),
    (Ours, Set(&[(Read, FIRST), (Write, SECOND)])),
    (Other, Set(&[(Read, FIRST), (Mutual, THIRD)])),
    (Ours, One(Write)),
    (
        Other,
        Set(&[(Write, FIRST), (Write, SECOND), (Mutual, THIRD)]),
    ),
];

/// The locks of one cast, and their judge.
pub(crate) struct Stage {
    pub(crate) directory: String,
    /// How long each contender holds what it was granted.
    pub(crate) section: Duration,
    pub(crate) handoffs: u32,
    pub(crate) judge: Mutex<Judge>,
}

impl Stage {
    pub(crate) fn path(&self, lock: &str) -> String {
        format!("{}/{lock}", self.directory)
    }

    pub(crate) fn judge(&self) -> MutexGuard<'_, Judge> {
        self.judge.lock().unwrap()
    }

    fn options(&self, process: Process) -> LockOptions {
        let handoffs = if process == Ours { self.handoffs } else { 0 };
        LockOptions::new().local_handoffs(handoffs)
    }

    fn read_write(&self, session: &Session, process: Process) -> InterProcessReadWriteLock {
        let (path, options) = (self.path(FIRST), self.options(process));
        InterProcessReadWriteLock::with_options(session, &path, &options).unwrap()
    }

    fn lock(&self, session: &Session, process: Process, wants: Wants) -> Box<dyn DistributedLock> {
        let members = match wants {
            One(Mutual) => {
                let (path, options) = (self.path(FIRST), self.options(process));
                let lock = InterProcessMutex::with_options(session, &path, &options);
                return Box::new(lock.unwrap());
            }
            One(Read) => return Box::new(self.read_write(session, process).read_lock()),
            Set(members) => members,
            _ => return Box::new(self.read_write(session, process).write_lock()),
        };
        let members = members.iter().map(|(kind, lock)| {
            let path = self.path(lock);
            let member = match kind {
                Read => Member::read(path),
                Write => Member::write(path),
                _ => Member::mutex(path),
            };
            member.options(self.options(process))
        });
        Box::new(MultiLock::new(session, members).unwrap())
    }

    /// Lets a contender acquire what it wants, and hold it for a while.
    pub(crate) fn enter(
        self: &Arc<Self>,
        session: &Session,
        name: usize,
        (process, wants): (Process, Wants),
    ) -> JoinHandle<()> {
        let lock = self.lock(session, process, wants);
        let reader = matches!(wants, Downgrade).then(|| self.read_write(session, process));
        let stage = Arc::clone(self);
        tokio::spawn(async move {
            let owner = Owner::new();
            let guard = lock.acquire().owner(&owner).await.unwrap();
            stage.judge().granted(name, guard);
            sleep(stage.section).await;
            if let Some(lock) = reader {
                stage.go_on_reading(name, &lock, &owner).await;
            }
            stage.leave(name).await;
            stage.judge().served += 1;
        })
    }

    async fn go_on_reading(&self, name: usize, lock: &InterProcessReadWriteLock, owner: &Owner) {
        match lock.read().owner(owner).await {
            Ok(reader) => self.judge().granted(name, reader.into()),
            Err(Error::Acquire(AcquireError::Lost(_))) => return,
            Err(error) => panic!("{error}"),
        }
        sleep(self.section).await;
        self.leave(name).await;
        sleep(self.section).await;
    }

    /// The result of the release does not matter here.
    async fn leave(&self, name: usize) {
        let guard = self.judge().take(name);
        drop(guard.release().await);
    }
}

pub(crate) async fn turns(count: usize) {
    for _ in 0..count {
        yield_now().await;
    }
}

/// Which nodes of one lock an operator removes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Victims {
    First,
    Second,
    Last,
    /// In this order, immediately one after the other.
    SecondAndFirst,
    /// The nodes that `lockctl break` deletes.
    Held,
}

impl Victims {
    pub(crate) const ALL: [Self; 5] = [
        Self::First,
        Self::Second,
        Self::Last,
        Self::SecondAndFirst,
        Self::Held,
    ];

    /// The paths of the victims among the nodes of a lock.
    pub(crate) fn of(self, mut names: Vec<String>, stage: &Stage, lock: &str) -> Vec<String> {
        let path = stage.path(lock);
        names.sort_by_key(|name| name.get(name.len() - 10..).map(str::to_owned));
        let chosen = match self {
            Self::First => vec![names.first()],
            Self::Second => vec![names.get(1)],
            Self::Last => vec![names.last()],
            Self::SecondAndFirst => vec![names.get(1), names.first()],
            Self::Held => return stage.judge().held_at(&path),
        };
        let chosen = chosen.into_iter().flatten();
        chosen.map(|name| format!("{path}/{name}")).collect()
    }
}
