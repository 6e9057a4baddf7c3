//! Owners, which re-enter locks, and the table of what this process does with each lock path.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use dashmap::DashMap;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use uuid::Uuid;

use crate::driver::internals::Attempted;
use crate::error::AcquireError;
use crate::lock::hold::{Hold, Task};
use crate::lock::lock_path::LockPath;
use crate::names::node_name::LockKind;

/// A random number that identifies this process.
static PROCESS: LazyLock<u64> = LazyLock::new(|| {
    // The halves have their fixed bits in different places, so all bits of the result are random.
    let (high, low) = Uuid::new_v4().as_u64_pair();
    high ^ low
});

static NEXT_OWNER: AtomicU64 = AtomicU64::new(1);

tokio::task_local! {
    static SCOPE: Owner;
}

/// An explicit owner of locks. It takes the place of the thread that owns a lock in Curator.
///
/// Acquires of one owner re-enter what the owner holds, through any handle of the same path and
/// session. Acquires of different owners exclude each other. An acquire outside any
/// [`scope`](Self::scope) that names no owner gets an owner of its own.
///
/// A scope is one logical thread: its acquires share the lock, whether they run side by side or are
/// nested. Spawned tasks are outside the scope of their spawner.
///
/// # Examples
/// ```
/// # use recipes_core::Owner;
/// # async fn example() {
/// let request = Owner::new();
/// request
///     .scope(async {
///         // Every acquire in here belongs to `request`.
///     })
///     .await;
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    number: u64,
}

impl Owner {
    /// Makes a new owner, different from every other in this process. Clones are the same owner.
    #[expect(
        clippy::new_without_default,
        reason = "two defaults would not be equal"
    )]
    #[must_use]
    pub fn new() -> Self {
        Self {
            number: NEXT_OWNER.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// Runs a future whose acquires belong to this owner.
    ///
    /// # Cancel safety
    /// The same as the future's.
    pub fn scope<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        SCOPE.scope(self.clone(), future)
    }

    /// Returns the name of this owner in the records of its nodes: sixteen hexadecimal digits for
    /// the process, a dash, and a number. It differs from the name of every other owner in any
    /// process.
    #[must_use]
    pub fn id(&self) -> String {
        Contending::from(self).to_string()
    }

    /// Returns the owner of the scope that is running, if any.
    #[must_use]
    pub fn current() -> Option<Self> {
        SCOPE.try_with(Clone::clone).ok()
    }
}

/// The contender that the record of a node names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contending {
    /// An owner, by its number.
    Owner(u64),
    /// The task of an acquire without an owner.
    Task(Task),
}

impl Contending {
    /// The task that is running.
    pub(crate) fn task() -> Self {
        Self::Task(Task::current())
    }
}

impl From<&Owner> for Contending {
    fn from(owner: &Owner) -> Self {
        Self::Owner(owner.number)
    }
}

/// The form in records.
impl fmt::Display for Contending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let process = *PROCESS;
        match self {
            Self::Owner(number) => write!(f, "{process:016x}-{number}"),
            Self::Task(Task::Spawned(id)) => write!(f, "{process:016x}-task{id}"),
            Self::Task(Task::Blocking(id)) => write!(f, "{process:016x}-{id:?}"),
        }
    }
}

type AttemptFuture = BoxFuture<'static, Result<Attempted, AcquireError>>;

/// An attempt that all acquires of one owner wait for together. The first one polls it. If that one
/// is dropped, the next continues; if the last is dropped, the attempt ends.
#[derive(Clone)]
pub(crate) struct Attempt {
    // Dropped before `outcome`, so that the table finds no attempt alive that is being dropped.
    alive: Arc<()>,
    outcome: Shared<AttemptFuture>,
}

impl Attempt {
    pub(crate) fn new(outcome: AttemptFuture) -> Self {
        Self {
            alive: Arc::default(),
            outcome: outcome.shared(),
        }
    }

    /// Waits for the outcome.
    pub(crate) async fn outcome(&self) -> Result<Attempted, AcquireError> {
        self.outcome.clone().await
    }
}

/// One entry of the table: an owner that acquires or holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) path: Arc<str>,
    pub(crate) kind: LockKind,
    pub(crate) owner: Owner,
}

/// What an owner is doing with a lock.
enum Entry {
    /// It acquires the lock. The entry is dead once no acquire waits for the attempt.
    Acquiring {
        id: u64,
        alive: Weak<()>,
        outcome: WeakShared<AttemptFuture>,
    },
    /// It holds the lock. The entry is dead once no guard is left.
    Held(Weak<Hold>),
}

impl Entry {
    /// Does not upgrade: dropping the last reference here would end an attempt or a hold. That
    /// comes back to the table while a shard of it is locked.
    fn is_alive(&self) -> bool {
        match self {
            Self::Acquiring { alive, .. } => alive.strong_count() > 0,
            Self::Held(hold) => hold.strong_count() > 0,
        }
    }
}

#[derive(Default)]
struct PathState {
    lock: Weak<LockPath>,
    entries: BTreeMap<(LockKind, Owner), Entry>,
}

impl PathState {
    fn is_unused(&self) -> bool {
        self.entries.is_empty() && self.lock.strong_count() == 0
    }
}

/// What an owner does with a lock, as an acquire finds it.
pub(crate) enum Present {
    Nothing,
    Acquiring(Attempt),
    Held(Arc<Hold>),
}

/// The lock paths of a session, by path, with an entry for each kind and owner.
///
/// Every method is synchronous and returns owned values: no shard stays locked across an await.
#[derive(Default)]
pub(crate) struct PathTable {
    paths: DashMap<Arc<str>, PathState>,
    next_attempt: AtomicU64,
}

impl PathTable {
    /// The one lock of a path in this session; `make` makes it if there is none.
    pub(crate) fn lock(
        &self,
        path: &str,
        make: impl FnOnce(Arc<str>) -> LockPath,
    ) -> Arc<LockPath> {
        let path: Arc<str> = path.into();
        let mut state = self.paths.entry(Arc::clone(&path)).or_default();
        state.lock.upgrade().unwrap_or_else(|| {
            let lock = Arc::new(make(path));
            state.lock = Arc::downgrade(&lock);
            lock
        })
    }

    /// Removes a path without entries and handles.
    pub(crate) fn forget(&self, path: &str) {
        self.paths.remove_if(path, |_, state| state.is_unused());
    }

    /// What this owner is doing with this lock.
    pub(crate) fn present(&self, key: &Key) -> Present {
        let Some(state) = self.paths.get(&key.path) else {
            return Present::Nothing;
        };
        let present = match state.entries.get(&(key.kind, key.owner.clone())) {
            // `outcome` only while `alive` is held: otherwise it may be the last reference.
            Some(Entry::Acquiring { alive, outcome, .. }) => alive
                .upgrade()
                .and_then(|alive| Some((alive, outcome.upgrade()?)))
                .map(|(alive, outcome)| Present::Acquiring(Attempt { alive, outcome })),
            Some(Entry::Held(hold)) => hold.upgrade().map(Present::Held),
            None => None,
        };
        present.unwrap_or(Present::Nothing)
    }

    /// Enters an attempt. Fails if the owner already acquires or holds this lock. Fails also if it
    /// acquires or holds the other half of a read/write lock, unless the attempt is for a reader
    /// next to its writer.
    pub(crate) fn begin(&self, key: &Key, is_beside: bool, id: u64, attempt: &Attempt) -> bool {
        let mut state = self.paths.entry(Arc::clone(&key.path)).or_default();
        let slot = (key.kind, key.owner.clone());
        if state.entries.get(&slot).is_some_and(Entry::is_alive) {
            return false;
        }
        let other = key.kind.counterpart().map(|kind| (kind, key.owner.clone()));
        let other = other.and_then(|other| state.entries.get(&other));
        if !is_beside && other.is_some_and(Entry::is_alive) {
            return false;
        }
        if let Some(outcome) = attempt.outcome.downgrade() {
            let alive = Arc::downgrade(&attempt.alive);
            state
                .entries
                .insert(slot, Entry::Acquiring { id, alive, outcome });
        }
        true
    }

    pub(crate) fn next_attempt(&self) -> u64 {
        self.next_attempt.fetch_add(1, Ordering::Relaxed)
    }

    /// Replaces an attempt by the hold that it led to.
    pub(crate) fn hold(&self, key: &Key, hold: &Arc<Hold>) {
        let mut state = self.paths.entry(Arc::clone(&key.path)).or_default();
        state.entries.insert(
            (key.kind, key.owner.clone()),
            Entry::Held(Arc::downgrade(hold)),
        );
    }

    /// Removes an attempt that is over, but not an entry that has taken its place.
    pub(crate) fn end_attempt(&self, key: &Key, ended: u64) {
        self.remove(
            key,
            |entry| matches!(entry, Entry::Acquiring { id, .. } if *id == ended),
        );
    }

    /// Removes a hold that is over, but not an entry that has taken its place.
    pub(crate) fn end_hold(&self, key: &Key, ended: *const Hold) {
        self.remove(
            key,
            |entry| matches!(entry, Entry::Held(hold) if hold.as_ptr() == ended),
        );
    }

    fn remove(&self, key: &Key, is_it: impl Fn(&Entry) -> bool) {
        if let Some(mut state) = self.paths.get_mut(&key.path) {
            let slot = (key.kind, key.owner.clone());
            if state.entries.get(&slot).is_some_and(is_it) {
                state.entries.remove(&slot);
            }
        }
        self.forget(&key.path);
    }

    /// The live holds of a path, of every kind and owner.
    pub(crate) fn holds(&self, path: &str) -> Vec<Arc<Hold>> {
        let Some(state) = self.paths.get(path) else {
            return Vec::new();
        };
        let holds = state.entries.values().filter_map(|entry| match entry {
            Entry::Held(hold) => hold.upgrade(),
            Entry::Acquiring { .. } => None,
        });
        holds.collect()
    }
}

impl fmt::Debug for PathTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PathTable")
            .field("paths", &self.paths.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::future;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;

    struct Claim {
        table: Arc<PathTable>,
        key: Key,
        id: u64,
    }

    impl Drop for Claim {
        fn drop(&mut self) {
            self.table.end_attempt(&self.key, self.id);
        }
    }

    fn key(owner: &Owner, kind: LockKind) -> Key {
        Key {
            path: "/a".into(),
            kind,
            owner: owner.clone(),
        }
    }

    fn pending() -> Attempt {
        Attempt::new(future::pending().boxed())
    }

    fn is_acquiring(table: &PathTable, key: &Key) -> bool {
        matches!(table.present(key), Present::Acquiring(_))
    }

    #[test]
    fn owner_has_one_attempt_at_a_time_which_is_his_own() {
        let (table, owner) = (PathTable::default(), Owner::new());
        let (mutex, attempt) = (key(&owner, LockKind::Mutex), pending());
        assert!(table.begin(&mutex, false, 1, &attempt));
        assert!(is_acquiring(&table, &mutex));
        assert!(!table.begin(&mutex, false, 2, &pending()));
        let others = key(&Owner::new(), LockKind::Mutex);
        assert!(matches!(table.present(&others), Present::Nothing));
        let of_other = pending();
        assert!(table.begin(&others, false, 3, &of_other));
        // These two attempts are not in the table any more.
        table.end_attempt(&mutex, 2);
        table.end_attempt(&mutex, 3);
        assert!(is_acquiring(&table, &mutex));
        table.end_attempt(&mutex, 1);
        assert!(matches!(table.present(&mutex), Present::Nothing));
        assert!(is_acquiring(&table, &others));
        drop(of_other);
        assert!(matches!(table.present(&others), Present::Nothing));
        let next = pending();
        assert!(table.begin(&others, false, 4, &next), "nobody waits for it");
        table.end_attempt(&others, 3);
        assert!(is_acquiring(&table, &others));
    }

    #[test]
    fn halves_of_a_lock_are_begun_beside_each_other_only_on_purpose() {
        for (first, second) in [
            (LockKind::Write, LockKind::Read),
            (LockKind::Read, LockKind::Write),
        ] {
            let (table, owner) = (PathTable::default(), Owner::new());
            let (first, second) = (key(&owner, first), key(&owner, second));
            let (one, other) = (pending(), pending());
            assert!(table.begin(&first, false, 1, &one));
            assert!(!table.begin(&second, false, 2, &other));
            assert!(table.begin(&second, true, 2, &other));
            // Another owner is not affected.
            let stranger = key(&Owner::new(), LockKind::Write);
            assert!(table.begin(&stranger, false, 3, &pending()));
        }
    }

    #[test]
    fn path_is_forgotten_with_its_last_entry() {
        let (table, owner) = (PathTable::default(), Owner::new());
        let (reads, writes) = (key(&owner, LockKind::Read), key(&owner, LockKind::Write));
        let (one, other) = (pending(), pending());
        assert!(table.begin(&writes, false, 1, &one));
        assert!(table.begin(&reads, true, 2, &other));
        table.end_attempt(&writes, 1);
        assert_eq!(table.paths.len(), 1);
        table.forget("/a");
        assert!(is_acquiring(&table, &reads), "in use");
        table.end_attempt(&reads, 2);
        assert_eq!(table.paths.len(), 0);
    }

    /// Dropping the last reference to an attempt comes back to the table: it must not be locked
    /// then.
    #[test]
    fn attempts_that_are_dropped_while_others_look_at_them_lock_nobody_up() {
        let table = Arc::new(PathTable::default());
        let key = Key {
            path: "/a".into(),
            kind: LockKind::Mutex,
            owner: Owner::new(),
        };
        #[expect(clippy::disallowed_methods, reason = "threads of the machine")]
        let until = Instant::now() + Duration::from_secs(1);
        #[expect(clippy::disallowed_methods, reason = "threads of the machine")]
        let is_time = move || Instant::now() < until;
        let (drops, done) = std::sync::mpsc::channel();
        let (dropping, key_of_both) = (Arc::clone(&table), key.clone());
        let finished = drops.clone();
        thread::spawn(move || {
            while is_time() {
                let (table, key) = (Arc::clone(&dropping), key_of_both.clone());
                let id = table.next_attempt();
                let claim = Claim {
                    table,
                    key: key.clone(),
                    id,
                };
                let outcome = async move {
                    let _claim = claim;
                    future::pending().await
                };
                let attempt = Attempt::new(outcome.boxed());
                dropping.begin(&key, false, id, &attempt);
            }
            finished.send(()).unwrap();
        });
        thread::spawn(move || {
            while is_time() {
                drop(table.present(&key));
            }
            drops.send(()).unwrap();
        });
        for _ in 0..2 {
            let locked_up = done.recv_timeout(Duration::from_secs(30));
            assert!(locked_up.is_ok(), "locked up");
        }
    }
}
