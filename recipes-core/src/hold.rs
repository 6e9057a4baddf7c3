//! What the guards of one owner share.

use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use crate::error::LostError;
use crate::lease::Lease;
use crate::owner::{Key, Owner};
use crate::sync::lock;

/// The task that acquired a lock, to warn one that waits for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    Spawned(tokio::task::Id),
    /// Outside any task, as in `main`.
    Blocking(ThreadId),
}

impl Task {
    pub(crate) fn current() -> Self {
        tokio::task::try_id().map_or_else(|| Self::Blocking(thread::current().id()), Self::Spawned)
    }
}

/// One lock held by one owner, with as many guards as it has entered.
#[derive(Debug)]
pub(crate) struct Hold {
    key: Key,
    lease: Lease,
    acquired_by: Task,
    guards: Mutex<Guards>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Guards {
    /// Granted, nobody has taken it yet.
    Untaken,
    /// This many guards live.
    Alive(usize),
    /// The last one is gone; the next acquire starts anew.
    Gone,
}

impl Hold {
    pub(crate) fn new(key: Key, lease: Lease) -> Self {
        let guards = Mutex::new(Guards::Untaken);
        Self {
            key,
            lease,
            acquired_by: Task::current(),
            guards,
        }
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) fn acquired_by(&self) -> Task {
        self.acquired_by
    }

    pub(crate) fn guards(&self) -> Guards {
        *lock(&self.guards)
    }

    pub(crate) fn guard_count(&self) -> usize {
        match self.guards() {
            Guards::Alive(count) => count,
            Guards::Untaken | Guards::Gone => 0,
        }
    }

    /// Adds a guard: `None` if the hold is over, an error if guards of it live and it is lost.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Result<Entered, LostError>> {
        let mut guards = lock(&self.guards);
        let count = match (&*guards, self.lease.check()) {
            (Guards::Alive(_), Err(lost)) => return Some(Err(lost)),
            (Guards::Alive(count), Ok(())) => count + 1,
            (Guards::Untaken, Ok(())) => 1,
            (Guards::Untaken, Err(_)) | (Guards::Gone, _) => return None,
        };
        *guards = Guards::Alive(count);
        Some(Ok(Entered {
            hold: Arc::clone(self),
            is_left: false,
        }))
    }

    /// Takes a guard away; true if it was the last.
    fn leave(&self) -> bool {
        let mut guards = lock(&self.guards);
        *guards = match *guards {
            Guards::Alive(count) if count > 1 => Guards::Alive(count - 1),
            _ => Guards::Gone,
        };
        let is_last = matches!(*guards, Guards::Gone);
        drop(guards);
        if is_last {
            self.lease
                .lock()
                .session
                .shared
                .paths
                .end_hold(&self.key, self);
        }
        is_last
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.lease
            .lock()
            .session
            .shared
            .paths
            .end_hold(&self.key, self);
    }
}

/// One guard's part of a hold; leaves it when dropped.
#[derive(Debug)]
pub(crate) struct Entered {
    hold: Arc<Hold>,
    is_left: bool,
}

impl Entered {
    pub(crate) fn lease(&self) -> &Lease {
        &self.hold.lease
    }

    pub(crate) fn owner(&self) -> &Owner {
        &self.hold.key.owner
    }

    pub(crate) fn hold_count(&self) -> usize {
        self.hold.guard_count()
    }

    /// Adds a guard, unless the lock is lost.
    pub(crate) fn reenter(&self) -> Result<Self, LostError> {
        self.hold.lease.check()?;
        // The hold cannot be over while `self` is part of it.
        if let Guards::Alive(count) = &mut *lock(&self.hold.guards) {
            *count += 1;
        }
        Ok(Self {
            hold: Arc::clone(&self.hold),
            is_left: false,
        })
    }

    /// Leaves the hold; returns it if this was its last guard.
    pub(crate) fn leave(mut self) -> Option<Arc<Hold>> {
        self.is_left = true;
        self.hold.leave().then(|| Arc::clone(&self.hold))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if !self.is_left && self.hold.leave() {
            self.hold.lease.abandon();
        }
    }
}
