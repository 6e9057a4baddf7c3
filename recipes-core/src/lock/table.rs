//! What this process does with each lock path: who acquires it, and who holds it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use dashmap::DashMap;
use tokio::sync::watch;

use crate::lock::factory_root::FactoryRoot;
use crate::lock::hold::{Hold, Share};
use crate::lock::lease::Lease;
use crate::lock::lock_path::LockPath;
use crate::lock::session::Session;
use crate::names::node_name::LockKind;
use crate::names::owner::Owner;

/// One entry of the table: an owner that acquires or holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) path: Arc<str>,
    pub(crate) kind: LockKind,
    pub(crate) owner: Owner,
}

/// What an owner is doing with a lock.
enum OwnerEntry {
    /// It acquires the lock, under the claim with this number.
    Acquiring { claim: u64, over: ClaimOver },
    /// It holds the lock. The entry is dead once no guard is left.
    Held(Weak<Hold>),
}

impl OwnerEntry {
    /// Does not upgrade: dropping the last reference here would end a hold. That comes back to the
    /// table while a shard of it is locked.
    fn is_alive(&self) -> bool {
        match self {
            Self::Acquiring { .. } => true,
            Self::Held(hold) => hold.strong_count() > 0,
        }
    }
}

/// The end of another acquire's claim.
pub(crate) struct ClaimOver(watch::Receiver<()>);

impl ClaimOver {
    /// Completes when that acquire has the lock or has given up.
    pub(crate) async fn wait(mut self) {
        // The claim sends nothing; it drops its sender.
        while self.0.changed().await.is_ok() {}
    }
}

/// The right of one acquire to try for some locks in the name of its owner. While it lasts, other
/// acquires of the owner wait. Dropping it ends it.
pub(crate) struct Claim {
    session: Session,
    number: u64,
    keys: Vec<Key>,
    /// Dropped after the entries are removed, so that whoever it wakes finds them gone.
    _over: watch::Sender<()>,
}

impl Claim {
    /// Claims these locks; each with whether it is for a reader next to its owner's writer. `None`
    /// if another acquire of the owner was faster.
    pub(crate) fn stake(session: &Session, keys: Vec<(Key, bool)>) -> Option<Self> {
        let table = session.paths();
        let (over, ends) = watch::channel(());
        let mut claim = Self {
            session: session.clone(),
            number: table.next_claim.fetch_add(1, Ordering::Relaxed),
            keys: Vec::with_capacity(keys.len()),
            _over: over,
        };
        for (key, is_beside) in keys {
            if !table.claim(&key, is_beside, claim.number, &ends) {
                // Dropping the claim gives back the others.
                return None;
            }
            claim.keys.push(key);
        }
        Some(claim)
    }

    /// Turns one lease for each key into a hold of the owner, without an await in between. The holds
    /// take the place of the claim.
    pub(crate) fn hold(self, leases: Vec<Lease>) -> Vec<Share> {
        let granted = self.keys.iter().zip(leases);
        granted
            .map(|(key, lease)| Hold::begin(key.clone(), lease))
            .collect()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        for key in &self.keys {
            self.session.paths().end_claim(key, self.number);
        }
    }
}

#[derive(Default)]
struct PathState {
    lock: Weak<LockPath>,
    /// Of a path below which factories make locks. Such a path has no lock, and vice versa.
    root: Weak<FactoryRoot>,
    entries: BTreeMap<(LockKind, Owner), OwnerEntry>,
}

impl PathState {
    fn is_unused(&self) -> bool {
        self.entries.is_empty() && self.lock.strong_count() == 0 && self.root.strong_count() == 0
    }
}

/// What an owner does with a lock, as an acquire finds it.
pub(crate) enum Present {
    Nothing,
    Acquiring(ClaimOver),
    Held(Arc<Hold>),
}

/// The lock paths of a session, by path, with an entry for each kind and owner.
///
/// Every method is synchronous and returns owned values: no shard stays locked across an await.
#[derive(Default)]
pub(crate) struct PathTable {
    paths: DashMap<Arc<str>, PathState>,
    next_claim: AtomicU64,
}

impl PathTable {
    /// The one lock of a path in this session; `make` makes it if there is none. `None` for the
    /// root of a factory.
    pub(crate) fn lock(
        &self,
        path: &str,
        make: impl FnOnce(Arc<str>) -> LockPath,
    ) -> Option<Arc<LockPath>> {
        let path: Arc<str> = path.into();
        let mut state = self.paths.entry(Arc::clone(&path)).or_default();
        if state.root.strong_count() > 0 {
            return None;
        }
        Some(state.lock.upgrade().unwrap_or_else(|| {
            let lock = Arc::new(make(path));
            state.lock = Arc::downgrade(&lock);
            lock
        }))
    }

    /// The one root of this path in this session; `make` makes it if there is none. `None` if the
    /// path is a lock.
    pub(crate) fn root(
        &self,
        path: &str,
        make: impl FnOnce(Arc<str>) -> FactoryRoot,
    ) -> Option<Arc<FactoryRoot>> {
        let path: Arc<str> = path.into();
        let mut state = self.paths.entry(Arc::clone(&path)).or_default();
        if state.lock.strong_count() > 0 {
            return None;
        }
        Some(state.root.upgrade().unwrap_or_else(|| {
            let root = Arc::new(make(path));
            state.root = Arc::downgrade(&root);
            root
        }))
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
            Some(OwnerEntry::Acquiring { over, .. }) => {
                Some(Present::Acquiring(ClaimOver(over.0.clone())))
            }
            Some(OwnerEntry::Held(hold)) => hold.upgrade().map(Present::Held),
            None => None,
        };
        present.unwrap_or(Present::Nothing)
    }

    /// Enters a claim. Fails if the owner already acquires or holds this lock. Fails also if it
    /// acquires or holds the other half of a read/write lock, unless the claim is for a reader next
    /// to its writer.
    fn claim(&self, key: &Key, is_beside: bool, claim: u64, ends: &watch::Receiver<()>) -> bool {
        let mut state = self.paths.entry(Arc::clone(&key.path)).or_default();
        let slot = (key.kind, key.owner.clone());
        if state.entries.get(&slot).is_some_and(OwnerEntry::is_alive) {
            return false;
        }
        let other = key.kind.counterpart().map(|kind| (kind, key.owner.clone()));
        let other = other.and_then(|other| state.entries.get(&other));
        if !is_beside && other.is_some_and(OwnerEntry::is_alive) {
            return false;
        }
        let over = ClaimOver(ends.clone());
        state
            .entries
            .insert(slot, OwnerEntry::Acquiring { claim, over });
        true
    }

    /// Replaces a claim by the hold that it led to.
    pub(crate) fn hold(&self, key: &Key, hold: &Arc<Hold>) {
        let mut state = self.paths.entry(Arc::clone(&key.path)).or_default();
        state.entries.insert(
            (key.kind, key.owner.clone()),
            OwnerEntry::Held(Arc::downgrade(hold)),
        );
    }

    /// Removes a claim that is over, but not an entry that has taken its place.
    fn end_claim(&self, key: &Key, ended: u64) {
        self.remove(
            key,
            |entry| matches!(entry, OwnerEntry::Acquiring { claim, .. } if *claim == ended),
        );
    }

    /// Removes a hold that is over, but not an entry that has taken its place.
    pub(crate) fn end_hold(&self, key: &Key, ended: *const Hold) {
        self.remove(
            key,
            |entry| matches!(entry, OwnerEntry::Held(hold) if hold.as_ptr() == ended),
        );
    }

    fn remove(&self, key: &Key, is_it: impl Fn(&OwnerEntry) -> bool) {
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
            OwnerEntry::Held(hold) => hold.upgrade(),
            OwnerEntry::Acquiring { .. } => None,
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
mod tests;
