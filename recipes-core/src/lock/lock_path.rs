//! A lock path in a session: the state that all handles of it share.

use std::sync::Arc;

use tracing::debug;

use crate::error::ConfigError;
use crate::lock::directory::Vacancy;
use crate::lock::local_queue::LocalQueue;
use crate::lock::session::Session;
use crate::lock::shared_reads::{SharedReads, WriterWaits};
use crate::log::LOCK;
use crate::names::node_name::LockKind;
use crate::names::owner::{OwnerChain, OwnerLabel};
use crate::names::path;
use crate::session::options::LockOptions;
use crate::sync::Mutex;

/// One lock directory, the same for every handle in the session.
#[derive(Debug)]
pub(crate) struct LockPath {
    pub(crate) session: Session,
    pub(crate) path: Arc<str>,
    pub(crate) options: LockOptions,
    /// Recipes order nodes differently and cannot share a directory.
    queue: LockKind,
    /// The queue of the contenders that want the lock for themselves, if they share one node.
    local_queue: Option<Arc<LocalQueue>>,
    /// The readers, if they share nodes.
    shared_reads: Option<Arc<SharedReads>>,
    pub(crate) vacancy: Mutex<Vacancy>,
}

impl LockPath {
    /// The lock of a path. Path and options are checked before any I/O.
    ///
    /// Options that yield become those of the live handles, if there are any: all contenders of
    /// this session share one queue of local hand-offs.
    pub(crate) fn open(
        session: &Session,
        path: &str,
        kind: LockKind,
        options: &LockOptions,
    ) -> Result<Arc<Self>, ConfigError> {
        path::validate(path)?;
        let queue = kind.queue();
        let handoffs_max = options.local_handoffs;
        // As long as others wait for a session that has died.
        let open_for_max = session.core().options.requested_timeout();
        let open_for = options.shared_reads.min(open_for_max);
        let lock = session.paths().lock(path, |path| Self {
            session: session.clone(),
            path,
            options: options.clone(),
            queue,
            local_queue: (handoffs_max > 0).then(|| Arc::new(LocalQueue::new(handoffs_max))),
            shared_reads: (!open_for.is_zero()).then(|| Arc::new(SharedReads::new(open_for))),
            vacancy: Mutex::default(),
        });
        let path = || path.to_owned();
        let Some(lock) = lock else {
            return Err(ConfigError::FactoryRoot { path: path() });
        };
        if lock.queue != queue {
            return Err(ConfigError::RecipeDiffers { path: path() });
        }
        if let Some((option, [in_use, requested])) = lock.options.difference(options) {
            if !options.yields {
                return Err(ConfigError::OptionsDiffer {
                    path: path(),
                    option,
                    in_use,
                    requested,
                });
            }
            debug!(target: LOCK, lock = %lock.path, option, "options of a live handle apply");
        }
        Ok(lock)
    }

    /// The queue in which contenders of this kind wait for each other, before one of them contends
    /// with other processes. `None` if each has a node of its own.
    pub(crate) fn local_queue(&self, kind: LockKind) -> Option<&Arc<LocalQueue>> {
        self.local_queue.as_ref().filter(|_| kind != LockKind::Read)
    }

    /// The readers that share nodes with one of this kind. `None` if each has a node of its own, and for
    /// other kinds.
    pub(crate) fn shared_reads(&self, kind: LockKind) -> Option<&Arc<SharedReads>> {
        self.shared_reads
            .as_ref()
            .filter(|_| kind == LockKind::Read)
    }

    /// Notes that a contender of this kind waits, for as long as the result lives, so that no reader goes
    /// ahead of a writer.
    pub(crate) fn waits(&self, kind: LockKind) -> Option<WriterWaits> {
        let reads = self.shared_reads.as_ref();
        reads
            .filter(|_| kind == LockKind::Write)
            .map(SharedReads::writer)
    }

    /// What a node made now contains, unless its target has data of its own.
    pub(crate) fn node_data(&self, kind: LockKind, owner: Option<OwnerLabel>) -> Arc<[u8]> {
        let options = &self.session.core().options;
        let owner = owner.map(|label| OwnerChain {
            within: options.within.as_deref(),
            label,
        });
        let data = self.options.data.as_ref().unwrap_or(&options.data);
        data.bytes(kind, owner, self.options.purpose.as_deref())
            .into()
    }

    /// The full path of a node of this lock.
    pub(crate) fn node_path(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }
}

impl Drop for LockPath {
    fn drop(&mut self) {
        self.session.paths().forget(&self.path);
    }
}
