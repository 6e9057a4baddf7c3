//! The factory that makes locks by key, on one ensemble or on several.

use recipes_core::{ConfigError, DistributedLock, Session, escape_key, validate_path};
use recipes_multilock::{Member, MultiLock};
use recipes_mutex::InterProcessMutex;
use recipes_rwlock::InterProcessReadWriteLock;

use crate::shards::{Shard, Shards};

/// Makes locks by key below one root path. A key is any string, such as an order number or a file
/// name.
///
/// A cheap handle. The same key is always the same lock, in this process and in others.
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
    /// [`ConfigError::InvalidPath`] names what is wrong with the root.
    pub fn new(session: &Session, root: &str) -> Result<Self, ConfigError> {
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
    /// [`ConfigError::NoShards`] for an empty list, [`ConfigError::DuplicateShard`] for a name that
    /// is there twice, [`ConfigError::InvalidPath`] for the root.
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
    ) -> Result<Self, ConfigError> {
        let shards = sessions.into_iter().map(|(name, session)| Shard {
            name: name.into(),
            session: session.clone(),
        });
        Self::over(Ensembles::Sharded(Shards::new(shards)?), root)
    }

    fn over(ensembles: Ensembles, root: &str) -> Result<Self, ConfigError> {
        validate_path(root)?;
        let root = root.to_owned();
        Ok(Self { ensembles, root })
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
    /// [`ConfigError::OptionsDiffer`] if another live handle of this session, which this factory
    /// did not make, has options for the same path.
    ///
    /// [`unescape_key`]: crate::unescape_key
    pub fn mutex(&self, key: &str) -> Result<InterProcessMutex, ConfigError> {
        InterProcessMutex::new(self.session_of(key), &self.path(key))
    }

    /// Makes the read/write lock of a key; sends nothing.
    ///
    /// # Errors
    /// As [`mutex`](Self::mutex); [`ConfigError::RecipeDiffers`] if a live handle of this session is
    /// the mutex of the key.
    pub fn read_write_lock(&self, key: &str) -> Result<InterProcessReadWriteLock, ConfigError> {
        InterProcessReadWriteLock::new(self.session_of(key), &self.path(key))
    }

    /// Makes the set of the mutexes of these keys; sends nothing.
    ///
    /// Keys of several shards are acquired in the order of their paths, one ensemble after the
    /// other. Neighbours in that order on one ensemble are acquired in one transaction. Such a set
    /// has no [`transaction`](crate::LockGuard::transaction).
    /// [`in_given_order`](MultiLock::in_given_order) does not change the sets of a
    /// [sharded](Self::sharded) factory.
    ///
    /// # Errors
    /// As [`MultiLock::new`].
    pub fn multi_lock<K: AsRef<str>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<MultiLock, ConfigError> {
        match &self.ensembles {
            Ensembles::One(session) => {
                let paths = keys.into_iter().map(|key| self.path(key.as_ref()));
                MultiLock::new(session, paths.map(Member::mutex))
            }
            Ensembles::Sharded(shards) => self.sharded_set(shards, keys),
        }
    }

    fn sharded_set<K: AsRef<str>>(
        &self,
        shards: &Shards,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<MultiLock, ConfigError> {
        let placed = keys.into_iter().map(|key| {
            let key = key.as_ref();
            (self.path(key), shards.of(key))
        });
        let mut placed: Vec<_> = placed.collect();
        // Over all shards, not shard by shard: that order would change with the list of shards.
        placed.sort_by(|(path, _), (other, _)| path.cmp(other));
        let runs = placed.chunk_by(|(_, shard), (_, next)| shard.name == next.name);
        let mut sets = Vec::new();
        for run in runs {
            let members = run.iter().map(|(path, _)| Member::mutex(path.as_str()));
            if let Some((_, shard)) = run.first() {
                sets.push(MultiLock::new(&shard.session, members)?);
            }
        }
        match sets.as_slice() {
            [set] => Ok(set.clone()),
            _ => {
                let sets = sets.into_iter();
                MultiLock::from_locks(
                    sets.map(|it| Box::new(it) as Box<dyn DistributedLock>)
                        .collect(),
                )
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
