//! What the guards of one owner share.

use std::sync::Arc;
use std::thread::{self, ThreadId};

use crate::error::LostError;
use crate::lock::lease::Lease;
use crate::lock::table::{Key, Owner, PathTable};
use crate::sync::{Mutex, lock};

/// The task that acquired a lock. It is recorded to warn a task that waits for itself.
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

/// One lock that one owner holds, with all guards of that owner.
#[derive(Debug)]
pub(crate) struct Hold {
    key: Key,
    lease: Lease,
    acquired_by: Task,
    guards: Mutex<Guards>,
}

/// What keeps a hold alive.
#[derive(Debug)]
struct Guards {
    /// Some acquires that the hold was granted to have not taken their guards yet.
    is_reserved: bool,
    alive: usize,
}

impl Guards {
    fn is_over(&self) -> bool {
        !self.is_reserved && self.alive == 0
    }
}

impl Hold {
    pub(crate) fn lease(&self) -> &Lease {
        &self.lease
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) fn acquired_by(&self) -> Task {
        self.acquired_by
    }

    pub(crate) fn guard_count(&self) -> usize {
        lock(&self.guards).alive
    }

    /// Whether the owner holds the lock. `None` if the hold is over, or lost without a guard that
    /// could learn of it.
    pub(crate) fn check(&self) -> Option<Result<(), LostError>> {
        self.standing(&lock(&self.guards))
    }

    fn standing(&self, guards: &Guards) -> Option<Result<(), LostError>> {
        match self.lease.check() {
            _ if guards.is_over() => None,
            Err(_) if guards.alive == 0 => None,
            standing => Some(standing),
        }
    }

    /// Adds a guard if [`check`](Self::check) is good.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Result<Entered, LostError>> {
        let mut guards = lock(&self.guards);
        if let Err(lost) = self.standing(&guards)? {
            return Some(Err(lost));
        }
        guards.alive += 1;
        Some(Ok(Entered {
            hold: Arc::clone(self),
            is_left: false,
        }))
    }

    /// Takes away a part of what keeps the hold alive; true if that was the last.
    fn leave(&self, what: impl FnOnce(&mut Guards)) -> bool {
        let mut guards = lock(&self.guards);
        what(&mut guards);
        let is_over = guards.is_over();
        drop(guards);
        if is_over {
            self.table().end_hold(&self.key, self);
        }
        is_over
    }

    fn table(&self) -> &PathTable {
        &self.lease.lock().session.shared.paths
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.table().end_hold(&self.key, self);
    }
}

/// A granted hold, reserved for the acquires that wait for it. They all share this value.
#[derive(Debug)]
pub(crate) struct Reserved(Arc<Hold>);

impl Reserved {
    pub(crate) fn new(key: Key, lease: Lease) -> Self {
        lease.begin(key.kind);
        let guards = Guards {
            is_reserved: true,
            alive: 0,
        };
        let hold = Arc::new(Hold {
            key,
            lease,
            acquired_by: Task::current(),
            guards: Mutex::new(guards),
        });
        hold.table().hold(&hold.key, &hold);
        Self(hold)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.0.leave(|guards| guards.is_reserved = false) {
            self.0.lease.abandon();
        }
    }
}

/// One guard's share of a hold; dropping it leaves the hold.
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
        lock(&self.hold.guards).alive += 1;
        Ok(Self {
            hold: Arc::clone(&self.hold),
            is_left: false,
        })
    }

    /// Leaves the hold, and returns it if this was its last guard.
    pub(crate) fn leave(mut self) -> Option<Arc<Hold>> {
        self.is_left = true;
        self.hold.leave(leave_one).then(|| Arc::clone(&self.hold))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if !self.is_left && self.hold.leave(leave_one) {
            self.hold.lease.abandon();
        }
    }
}

fn leave_one(guards: &mut Guards) {
    guards.alive -= 1;
}

#[cfg(test)]
mod tests;
