//! The configuration in ZooKeeper, and the lock around it.

use std::error::Error as StdError;
use std::time::SystemTime;

use lock_recipes::{
    Error, InterProcessReadWriteLock, LockGuard, NodesError, ReadGuard, ReleaseOutcome, Session,
    TransactionError,
};
use tracing::warn;

use crate::config::{Config, Manifest, NAMES, Nodes, Unusable};

/// A node that does not exist yet costs one failure, a lost connection one or two.
const FAILURES_MAX: usize = 5;

/// The number of nodes that are written when the writer is midway.
const MIDWAY: usize = 3;

const MANIFEST: &str = "manifest";

/// Reads and rewrites the configuration below a node.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    session: Session,
    lock: InterProcessReadWriteLock,
    root: String,
}

/// The result of a read or a write.
#[derive(Debug)]
pub(crate) struct Held<T> {
    pub(crate) config: T,
    /// When the lock was certainly held, from and until, in microseconds of the wall clock.
    pub(crate) held_us: [u64; 2],
}

/// Why a read failed, or why a write is not complete.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// If the lock was lost midway, other processes may write now, and what was read so far proves nothing.
    #[error("configuration not read or not verified")]
    Lock(#[from] Error),
    /// A guessed version in its place could make versions go back.
    #[error("{path:?} is no manifest; restore it, or delete it to begin at version 1")]
    ManifestUnreadable { path: String },
    #[error("{path:?} not written")]
    NotWritten {
        path: String,
        #[source]
        source: Error,
    },
    #[error("written, but it reads back otherwise: somebody writes without the lock")]
    Differs { found: Result<Config, Unusable> },
}

impl StoreError {
    /// Whether a retry may soon succeed.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Lock(error) => error.is_lost() || error.is_transient(),
            _ => false,
        }
    }
}

impl Store {
    pub(crate) fn new(session: &Session, root: &str) -> Result<Self, Error> {
        Ok(Self {
            session: session.clone(),
            // The lock is below the root, so the root exists whenever the lock is held.
            lock: InterProcessReadWriteLock::new(session, &format!("{root}/lock"))?,
            root: root.to_owned(),
        })
    }

    pub(crate) fn lock(&self) -> &InterProcessReadWriteLock {
        &self.lock
    }

    /// Reads under the read lock: readers read side by side, but never while a writer writes.
    pub(crate) async fn read(&self) -> Result<Held<Result<Config, Unusable>>, StoreError> {
        let guard = self.lock.read().await?;
        let from = now_us();
        let config = self.read_under(&guard).await?;
        let held_us = [from, now_us()];
        report(guard.release().await);
        Ok(Held { config, held_us })
    }

    /// Rewrites all nodes under the write lock, then verifies them under the read lock.
    ///
    /// If it fails midway, or is dropped, it leaves a half. Readers recognize that, and the next
    /// write repairs it. `midway` runs between the writes of two nodes.
    pub(crate) async fn write(
        &self,
        midway: impl Future<Output = ()>,
    ) -> Result<Held<Config>, StoreError> {
        let guard = self.lock.write().await?;
        let from = now_us();
        let version = self.next_version(&guard).await?;
        let config = Config::made_up(version, std::process::id());
        // Writes all nodes one by one, because an earlier writer may have left a half. One
        // transaction would be safer still; here the lock alone keeps readers from the half.
        let (first, rest) = NAMES.split_at(MIDWAY);
        self.write_values(&guard, &config, first).await?;
        guard.run(midway).await?;
        self.write_values(&guard, &config, rest).await?;
        // The manifest is last: until then its old checksum shows readers that this is a half.
        let manifest = serde_json::json!(config.manifest()).to_string();
        self.write_node(&guard, MANIFEST, &manifest).await?;
        let held_us = [from, now_us()];

        // Readers may come in now, but no writer. So what we read is what we wrote.
        let guard: ReadGuard = guard.downgrade().await?;
        let found = self.read_under(&guard).await?;
        report(guard.release().await);
        match found {
            Ok(found) if found == config => Ok(Held { config, held_us }),
            found => Err(StoreError::Differs { found }),
        }
    }

    /// Reads all nodes. No process may write meanwhile, because ZooKeeper reads one node at a time.
    async fn read_under(&self, guard: &LockGuard) -> Result<Result<Config, Unusable>, StoreError> {
        let mut nodes = Nodes::default();
        for name in NAMES {
            let value = self.read_node(guard, name).await?;
            nodes.values.insert(name.to_owned(), value);
        }
        nodes.manifest = self.read_node(guard, MANIFEST).await?;
        Ok(nodes.judge())
    }

    /// The version after that of the last complete configuration, so that versions have no gaps.
    async fn next_version(&self, guard: &LockGuard) -> Result<u64, StoreError> {
        let Some(manifest) = self.read_node(guard, MANIFEST).await? else {
            return Ok(1);
        };
        let unreadable = |_| StoreError::ManifestUnreadable {
            path: self.path(MANIFEST),
        };
        let manifest: Manifest = serde_json::from_slice(&manifest).map_err(unreadable)?;
        Ok(manifest.version + 1)
    }

    async fn write_values(
        &self,
        guard: &LockGuard,
        config: &Config,
        names: &[&str],
    ) -> Result<(), StoreError> {
        for &name in names {
            if let Some(value) = config.values.get(name) {
                self.write_node(guard, name, value).await?;
            }
        }
        Ok(())
    }

    /// Writes a node. The ensemble does that only while the lock is held.
    async fn write_node(
        &self,
        guard: &LockGuard,
        name: &str,
        data: &str,
    ) -> Result<(), StoreError> {
        use NodesError::{NoNode, NodeExists};
        use TransactionError::{Refused, Unknown};
        let path = self.path(name);
        let mut exists = true;
        let mut failures = 0;
        loop {
            let write = match exists {
                true => guard.transaction().set(&path, data),
                false => guard.transaction().create(&path, data),
            };
            // Not in `guard.run`: a commit counts, even if the lock is lost immediately afterwards.
            let Err(source) = write.commit().await else {
                return Ok(());
            };
            failures += 1;
            match source {
                source if failures == FAILURES_MAX => {
                    return Err(StoreError::NotWritten { path, source });
                }
                Error::Transaction(Refused { source: NoNode, .. }) => exists = false,
                Error::Transaction(Refused {
                    source: NodeExists, ..
                }) => exists = true,
                // The write was carried out or not; this read waits for a connection. No other
                // process writes, so writing the same again is harmless.
                Error::Transaction(Unknown { .. }) => {
                    if self.read_node(guard, name).await?.as_deref() == Some(data.as_bytes()) {
                        return Ok(());
                    }
                }
                source => return Err(StoreError::NotWritten { path, source }),
            }
        }
    }

    async fn read_node(
        &self,
        guard: &LockGuard,
        name: &str,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let read = guard.run(self.session.read(&self.path(name))).await??;
        Ok(read.map(|(data, _)| data))
    }

    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.root)
    }
}

/// Only logs errors: what was done under the lock stays done.
fn report(released: Result<ReleaseOutcome, Error>) {
    if let Err(error) = released {
        let error = &error as &dyn StdError;
        warn!(error, "lock not released as usual");
    }
}

#[expect(clippy::disallowed_methods, reason = "a record for people")]
fn now_us() -> u64 {
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    since.as_micros().try_into().unwrap_or(u64::MAX)
}
