//! The factory that makes locks by key, on one ensemble or on several.

use std::sync::Arc;

use recipes_core::internal::FactoryRoot;
use recipes_core::{DistributedLock, Error, LockOptions, Session, escape_key};
use recipes_leader::LeaderElection;
use recipes_multilock::{Member, MultiLock};
use recipes_mutex::InterProcessMutex;
use recipes_rwlock::InterProcessReadWriteLock;
use recipes_semaphore::InterProcessSemaphore;

use crate::key_member::KeyMember;
use crate::shards::{Shard, Shards};

/// Makes locks by key below one root path. A key is any string, such as an order number or a file
/// name.
///
/// With the root, and percent-encoded, a key of 1,000 bytes fits on every store. An acquire of one that does not fit is refused
/// ([`AcquireError::Refused`](crate::AcquireError::Refused)), and nothing is sent.
///
/// A cheap handle. The same key is always the same lock, in this process and in others.
///
/// The root is no lock itself. A session with a live factory refuses locks of its root
/// ([`ConfigError::FactoryRoot`](crate::ConfigError::FactoryRoot)), and no factory can be made while a lock of the
/// root is in use ([`ConfigError::RootIsLock`](crate::ConfigError::RootIsLock)). If another process uses the root as
/// a lock all the same, keys do not block it: see [`escape_key`].
///
/// # Examples
/// ```
/// # use lock_recipes::LockFactory;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let session = recipes_testing::MemoryEnsemble::new().session();
/// let seats = LockFactory::new(&session, "/locks/seats")?;
/// let seat = seats.mutex("Row 7/12")?;
/// assert_eq!(seat.path(), "/locks/seats/Row%207%2F12");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LockFactory {
    ensembles: Ensembles,
    root: String,
    options: Arc<LockOptions>,
    /// One for each session: keeps the root from being a lock.
    _roots: Arc<[Arc<FactoryRoot>]>,
}

#[derive(Clone, Debug)]
enum Ensembles {
    One(Session),
    Sharded(Shards),
}

impl LockFactory {
    /// Makes a factory of the locks below `root`, an absolute path; sends nothing.
    ///
    /// # Errors
    /// [`ConfigError::InvalidPath`](crate::ConfigError::InvalidPath) names what is wrong with the root;
    /// [`ConfigError::RootIsLock`](crate::ConfigError::RootIsLock) if a live handle or guard of this session is a
    /// lock of it.
    pub fn new(session: &Session, root: &str) -> Result<Self, Error> {
        Self::over(Ensembles::One(session.clone()), root)
    }

    /// Makes a factory that spreads the locks below `root` over several ensembles; sends nothing.
    ///
    /// Each session comes with the name of its *shard*. The name alone decides which keys belong to
    /// the shard, not its place in the list, the session, or the current addresses of its servers.
    /// Any strings do, but they must not change: use names like `"locks-1"` rather than hosts.
    ///
    /// **All processes that share these locks must have the same names for the same ensembles.**
    /// Two processes that differ may both hold the lock of one key, each on another ensemble, and
    /// neither is notified. `docs/scaling.md` in the repository explains how to change the shards
    /// of a running service.
    ///
    /// # Guarantees
    /// - A key belongs to the shard with the highest weight (rendezvous hashing). The weight is the
    ///   first 8 bytes, as an unsigned big-endian number, of the SHA-256 of name, a zero byte, and
    ///   key, in UTF-8. If two weights are equal, the greater name wins. All versions keep this
    ///   rule, and other languages can implement it.
    /// - If a shard is added to n others, each key stays or moves to the new one, and one in n + 1
    ///   moves. If a shard is removed, its keys move and no others.
    /// - Sets of keys wait for their members in the order of their paths, over all shards, so they
    ///   never wait for each other in a circle.
    ///
    /// Fencing tokens of different shards cannot be compared, because each ensemble counts for
    /// itself. So a key that moves to another shard may get lower tokens than before.
    ///
    /// # Errors
    /// [`ConfigError::NoShards`](crate::ConfigError::NoShards) for an empty list,
    /// [`ConfigError::DuplicateShard`](crate::ConfigError::DuplicateShard) for a name that is there twice,
    /// [`ConfigError::InvalidPath`](crate::ConfigError::InvalidPath) and
    /// [`ConfigError::RootIsLock`](crate::ConfigError::RootIsLock) for the root.
    ///
    /// # Examples
    /// ```
    /// # use lock_recipes::LockFactory;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (here, there) = (recipes_testing::MemoryEnsemble::new(), recipes_testing::MemoryEnsemble::new());
    /// # let (one, two) = (here.session(), there.session());
    /// let orders = LockFactory::sharded([("locks-1", &one), ("locks-2", &two)], "/locks/orders")?;
    /// let guard = orders.mutex("4711")?.acquire().await?;
    /// println!("held on {:?}", orders.shard_of("4711"));
    /// guard.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn sharded<'a, N: Into<String>>(
        sessions: impl IntoIterator<Item = (N, &'a Session)>,
        root: &str,
    ) -> Result<Self, Error> {
        let shards = sessions.into_iter().map(|(name, session)| Shard {
            name: name.into(),
            session: session.clone(),
        });
        Self::over(Ensembles::Sharded(Shards::new(shards)?), root)
    }

    fn over(ensembles: Ensembles, root: &str) -> Result<Self, Error> {
        let roots: Result<_, _> = match &ensembles {
            Ensembles::One(session) => FactoryRoot::new(session, root).map(|it| Arc::from([it])),
            Ensembles::Sharded(shards) => {
                let sessions = shards.all().map(|it| &it.session);
                sessions.map(|it| FactoryRoot::new(it, root)).collect()
            }
        };
        Ok(Self {
            ensembles,
            root: root.to_owned(),
            options: Arc::new(LockOptions::new().yielding()),
            _roots: roots?,
        })
    }

    /// Sets the options of all locks that this factory makes from now on.
    ///
    /// Options belong to a path in a session, not to a handle. If a handle that this factory did not make is alive
    /// and has other options for the path of a key, those apply to both: the factory's lock is made all the same, and
    /// a debug event says so. To be sure of the options of a key, take its lock from one factory only. A handle that
    /// is made *without* a factory is still refused
    /// ([`ConfigError::OptionsDiffer`](crate::ConfigError::OptionsDiffer)) if a live one has other options.
    ///
    /// # Examples
    /// ```
    /// # use lock_recipes::{LockFactory, LockOptions};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let session = recipes_testing::MemoryEnsemble::new().session();
    /// let options = LockOptions::new().local_handoffs(8).purpose("seat sale")?;
    /// let seats = LockFactory::new(&session, "/locks/seats")?.with_options(options);
    /// # seats.mutex("7/12")?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_options(mut self, options: LockOptions) -> Self {
        self.options = Arc::new(options.yielding());
        self
    }

    /// Returns the name of the shard that a key belongs to; `None` if all keys are on one ensemble.
    #[must_use]
    pub fn shard_of(&self, key: &str) -> Option<&str> {
        match &self.ensembles {
            Ensembles::One(_) => None,
            Ensembles::Sharded(shards) => Some(&shards.of(key).name),
        }
    }

    /// Makes the mutex of a key; sends nothing.
    ///
    /// Its path is the root and the key as [`escape_key`] writes it; [`unescape_key`] reverses
    /// that.
    ///
    /// # Errors
    /// [`ConfigError::RecipeDiffers`](crate::ConfigError::RecipeDiffers) if a live handle of this session is the
    /// read/write lock of the key; [`ConfigError::FactoryRoot`](crate::ConfigError::FactoryRoot) if the lock is the
    /// root of another factory.
    ///
    /// [`unescape_key`]: crate::unescape_key
    pub fn mutex(&self, key: &str) -> Result<InterProcessMutex, Error> {
        InterProcessMutex::with_options(self.session_of(key), &self.path(key), &self.options)
    }

    /// Makes the read/write lock of a key; sends nothing.
    ///
    /// # Errors
    /// As [`mutex`](Self::mutex); [`ConfigError::RecipeDiffers`](crate::ConfigError::RecipeDiffers) if a live handle
    /// of this session is the mutex of the key.
    pub fn read_write_lock(&self, key: &str) -> Result<InterProcessReadWriteLock, Error> {
        let (session, path) = (self.session_of(key), self.path(key));
        InterProcessReadWriteLock::with_options(session, &path, &self.options)
    }

    /// Makes the semaphore of a key, with so many permits; sends nothing.
    ///
    /// The key needs a factory of its own for semaphores: a semaphore and another lock of the same key do not keep each
    /// other out, so an acquire of whichever comes second fails with
    /// [`AcquireError::RecipeDiffers`](crate::AcquireError::RecipeDiffers).
    ///
    /// # Errors
    /// As [`mutex`](Self::mutex); [`ConfigError::NoPermits`](crate::ConfigError::NoPermits) unless there are 1 to
    /// 10,000 permits.
    pub fn semaphore(&self, key: &str, permits: usize) -> Result<InterProcessSemaphore, Error> {
        let (session, path) = (self.session_of(key), self.path(key));
        InterProcessSemaphore::with_options(session, &path, permits, &self.options)
    }

    /// Makes the election of a key, for a candidate with this id; sends nothing. The nodes are those
    /// of Curator's `LeaderSelector`, whatever the [options](Self::with_options) of this factory.
    ///
    /// # Errors
    /// As [`LeaderElection::new`]; [`ConfigError::FactoryRoot`](crate::ConfigError::FactoryRoot) if the election is
    /// the root of another factory.
    pub fn election(&self, key: &str, id: &str) -> Result<LeaderElection, Error> {
        LeaderElection::new(self.session_of(key), &self.path(key), id)
    }

    /// Makes the set of the locks of these keys; sends nothing.
    ///
    /// A string is the mutex of its key. [`KeyMember`] has the other kinds, and one set may mix
    /// them.
    ///
    /// Keys of several shards are acquired in the order of their paths, one ensemble after the
    /// other. Neighbours in that order on one ensemble are acquired in one transaction. Such a set
    /// has no [`transaction`](crate::LockGuard::transaction).
    /// [`in_given_order`](MultiLock::in_given_order) does not change the sets of a
    /// [sharded](Self::sharded) factory.
    ///
    /// # Errors
    /// [`ConfigError::EmptySet`](crate::ConfigError::EmptySet);
    /// [`ConfigError::DuplicateMember`](crate::ConfigError::DuplicateMember) if a key is there twice, in the same or
    /// in different kinds; otherwise as [`mutex`](Self::mutex).
    ///
    /// # Examples
    /// ```
    /// # use lock_recipes::{KeyMember, LockFactory};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let session = recipes_testing::MemoryEnsemble::new().session();
    /// let accounts = LockFactory::new(&session, "/locks/accounts")?;
    /// let transfer = accounts.multi_lock(["alice", "bob"])?;
    /// let report = [KeyMember::read("rates"), KeyMember::mutex("report 2026")];
    /// let report = accounts.multi_lock(report)?;
    /// # drop((transfer, report));
    /// # Ok(())
    /// # }
    /// ```
    pub fn multi_lock<M: Into<KeyMember>>(
        &self,
        members: impl IntoIterator<Item = M>,
    ) -> Result<MultiLock, Error> {
        let members = members.into_iter().map(Into::into);
        match &self.ensembles {
            Ensembles::One(session) => MultiLock::new(session, members.map(|it| self.member(it))),
            Ensembles::Sharded(shards) => self.sharded_set(shards, members),
        }
    }

    fn member(&self, member: KeyMember) -> Member {
        let path = self.path(&member.key);
        member.at(path).options(LockOptions::clone(&self.options))
    }

    fn sharded_set(
        &self,
        shards: &Shards,
        members: impl Iterator<Item = KeyMember>,
    ) -> Result<MultiLock, Error> {
        let placed = members.map(|it| (self.path(&it.key), shards.of(&it.key), it));
        let mut placed: Vec<_> = placed.collect();
        let asked: Vec<_> = placed.iter().map(|(path, ..)| path.clone()).collect();
        let asked = || asked.iter().map(String::as_str);
        // Over all shards, not shard by shard: that order would change with the list of shards.
        placed.sort_by(|(path, ..), (other, ..)| path.cmp(other));
        let runs = placed.chunk_by(|(_, shard, _), (_, next, _)| shard.name == next.name);
        let mut sets = Vec::new();
        for run in runs {
            let members = run.iter().map(|(.., it)| self.member(it.clone()));
            if let Some((_, shard, _)) = run.first() {
                sets.push(MultiLock::new(&shard.session, members)?);
            }
        }
        match sets.as_slice() {
            [set] => Ok(set.clone().listed_by(asked())),
            _ => {
                let sets = sets
                    .into_iter()
                    .map(|it| Box::new(it) as Box<dyn DistributedLock>);
                Ok(MultiLock::from_locks(sets.collect())?.listed_by(asked()))
            }
        }
    }

    fn session_of(&self, key: &str) -> &Session {
        match &self.ensembles {
            Ensembles::One(session) => session,
            Ensembles::Sharded(shards) => &shards.of(key).session,
        }
    }

    fn path(&self, key: &str) -> String {
        format!("{}/{}", self.root, escape_key(key))
    }
}
