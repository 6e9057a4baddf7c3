//! The kinds of lock in the sweep, and the contenders for each.

use lock_recipes::{
    DistributedLock, InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphoreMutex,
    LockKind, Member, MultiLock, Session,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recipe {
    Mutex,
    Read,
    Write,
    /// A mutex, a read lock and a write lock, all or none.
    Set,
    /// The one permit of a semaphore, which is a set while it is acquired.
    Permit,
}

/// Where the leases of a semaphore are, below its path.
const LEASES: &str = "/leases";

/// A lock and how it is held.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) path: String,
    pub(crate) kind: LockKind,
}

impl Place {
    fn permit(semaphore: &str) -> Self {
        Self::new(&format!("{semaphore}{LEASES}"), LockKind::Permit)
    }

    fn new(path: &str, kind: LockKind) -> Self {
        Self {
            path: path.to_owned(),
            kind,
        }
    }

    /// The directories of its nodes.
    pub(crate) fn directories(&self) -> Vec<String> {
        let mut directories = vec![self.path.clone()];
        if let Some(semaphore) = self.path.strip_suffix(LEASES) {
            directories.push(format!("{semaphore}/locks"));
        }
        directories
    }

    pub(crate) fn conflicts(&self, other: &Self) -> bool {
        let share = self.kind == LockKind::Read && other.kind == LockKind::Read;
        self.path == other.path && !share
    }
}

impl Recipe {
    /// The locks of the holder that comes before the subject.
    pub(crate) fn before(self, directory: &str) -> Vec<Place> {
        match self {
            Self::Mutex => vec![Place::new(directory, LockKind::Mutex)],
            Self::Read => vec![Place::new(directory, LockKind::Write)],
            Self::Write => vec![Place::new(directory, LockKind::Read)],
            // The one in the middle, so that the subject keeps the first and withdraws the last.
            Self::Set => vec![Place::new(&format!("{directory}/b"), LockKind::Write)],
            Self::Permit => vec![Place::permit(directory)],
        }
    }

    /// The locks of the subject, whose connection is cut.
    pub(crate) fn subject(self, directory: &str) -> Vec<Place> {
        match self {
            Self::Mutex => vec![Place::new(directory, LockKind::Mutex)],
            Self::Read => vec![Place::new(directory, LockKind::Read)],
            Self::Write => vec![Place::new(directory, LockKind::Write)],
            Self::Permit => vec![Place::permit(directory)],
            Self::Set => vec![
                Place::new(&format!("{directory}/a"), LockKind::Mutex),
                Place::new(&format!("{directory}/b"), LockKind::Read),
                Place::new(&format!("{directory}/c"), LockKind::Write),
            ],
        }
    }

    /// The locks of the waiter that follows the subject.
    pub(crate) fn behind(self, directory: &str) -> Vec<Place> {
        match self {
            Self::Mutex => vec![Place::new(directory, LockKind::Mutex)],
            Self::Read | Self::Write => vec![Place::new(directory, LockKind::Write)],
            Self::Set => vec![Place::new(&format!("{directory}/a"), LockKind::Mutex)],
            Self::Permit => vec![Place::permit(directory)],
        }
    }
}

pub(crate) fn lock(session: &Session, places: &[Place]) -> Box<dyn DistributedLock> {
    let valid = "paths of the sweep are valid";
    if let [place] = places {
        return match place.kind {
            LockKind::Mutex => Box::new(InterProcessMutex::new(session, &place.path).expect(valid)),
            LockKind::Permit => {
                let semaphore = place.path.strip_suffix(LEASES).expect(valid);
                Box::new(InterProcessSemaphoreMutex::new(session, semaphore).expect(valid))
            }
            kind => {
                let lock = InterProcessReadWriteLock::new(session, &place.path).expect(valid);
                match kind {
                    LockKind::Read => Box::new(lock.read_lock()),
                    _ => Box::new(lock.write_lock()),
                }
            }
        };
    }
    let members = places.iter();
    let members = members.map(|place| Member::new(place.path.clone(), place.kind));
    Box::new(MultiLock::new(session, members).expect(valid))
}
