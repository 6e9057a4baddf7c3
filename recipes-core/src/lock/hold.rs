//! What the guards of one owner share.

use std::sync::Arc;

use crate::error::LostError;
use crate::lock::lease::Lease;
use crate::lock::table::{Key, PathTable};
use crate::names::owner::{Owner, Task};
use crate::sync::{Mutex, lock};

/// Whether the owner of a hold has the lock.
#[derive(Debug)]
pub(crate) enum HoldState<T = ()> {
    /// No guard is left.
    Over,
    /// The lock is lost, and guards are left that report it.
    Lost(LostError),
    Good(T),
}

/// One lock that one owner holds, with all guards of that owner.
#[derive(Debug)]
pub(crate) struct Hold {
    key: Key,
    lease: Lease,
    acquired_by: Task,
    /// How many guards keep the hold alive.
    guards: Mutex<usize>,
}

impl Hold {
    /// Makes the hold of a lock that was granted, with its first guard.
    pub(crate) fn begin(key: Key, lease: Lease) -> Share {
        lease.begin(key.kind);
        let hold = Arc::new(Self {
            key,
            lease,
            acquired_by: Task::current(),
            guards: Mutex::new(1),
        });
        hold.table().hold(&hold.key, &hold);
        Share {
            hold,
            is_left: false,
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

    pub(crate) fn guard_count(&self) -> usize {
        *lock(&self.guards)
    }

    /// Whether the owner holds the lock.
    pub(crate) fn check(&self) -> HoldState {
        self.standing(*lock(&self.guards))
    }

    fn standing(&self, guards: usize) -> HoldState {
        match self.lease.check() {
            _ if guards == 0 => HoldState::Over,
            Err(lost) => HoldState::Lost(lost),
            Ok(()) => HoldState::Good(()),
        }
    }

    /// Adds a guard if [`check`](Self::check) is good.
    pub(crate) fn join(self: &Arc<Self>) -> HoldState<Share> {
        let mut guards = lock(&self.guards);
        match self.standing(*guards) {
            HoldState::Over => HoldState::Over,
            HoldState::Lost(lost) => HoldState::Lost(lost),
            HoldState::Good(()) => {
                *guards += 1;
                HoldState::Good(Share {
                    hold: Arc::clone(self),
                    is_left: false,
                })
            }
        }
    }

    /// Takes a guard away; true if that was the last.
    fn leave(&self) -> bool {
        let mut guards = lock(&self.guards);
        *guards -= 1;
        let is_over = *guards == 0;
        drop(guards);
        if is_over {
            self.table().end_hold(&self.key, self);
        }
        is_over
    }

    fn table(&self) -> &PathTable {
        self.lease.lock().session.paths()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.table().end_hold(&self.key, self);
    }
}

/// One guard's share of a hold; dropping it leaves the hold.
#[derive(Debug)]
pub(crate) struct Share {
    hold: Arc<Hold>,
    is_left: bool,
}

impl Share {
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
        *lock(&self.hold.guards) += 1;
        Ok(Self {
            hold: Arc::clone(&self.hold),
            is_left: false,
        })
    }

    /// Leaves the hold, and returns it if this was its last guard.
    pub(crate) fn leave(mut self) -> Option<Arc<Hold>> {
        self.is_left = true;
        self.hold.leave().then(|| Arc::clone(&self.hold))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if !self.is_left && self.hold.leave() {
            self.hold.lease.abandon();
        }
    }
}

#[cfg(test)]
impl Share {
    pub(crate) fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }
}

#[cfg(test)]
mod tests;
