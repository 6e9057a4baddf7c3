//! The one mutex, and what all handles share.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};

use recipes_core::NodesError;
use tokio::sync::watch;
use tokio::time::Instant;

use super::State;
use crate::memory::builder::MemoryBuilder;
use crate::memory::error::MemoryError;

/// What all handles and futures of an ensemble share.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// Tells whoever waits to be let in that it may try again.
    pub(crate) admits: watch::Sender<()>,
}

impl Shared {
    pub(crate) fn new(options: &MemoryBuilder) -> Arc<Self> {
        Arc::new_cyclic(|shared| Self {
            state: Mutex::new(State::new(options, shared.clone())),
            admits: watch::Sender::new(()),
        })
    }

    /// Waits until the ensemble lets a client in.
    pub(crate) async fn admitted<T>(
        &self,
        mut admit: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<T, NodesError> {
        let mut admits = self.admits.subscribe();
        // The loop ends when the ensemble runs. The sender exists as long as this.
        loop {
            if let Some(admitted) = self.with(&mut admit) {
                return Ok(admitted);
            }
            if admits.changed().await.is_err() {
                return Err(MemoryError::Unreachable.into());
            }
        }
    }

    /// Reads or changes the state. First, messages that are due arrive, and sessions past their
    /// timeout expire. News that are due are handed out before and after.
    ///
    /// Wakers are used and dropped after the mutex is released, because an executor may poll or
    /// drop a future immediately. Before that, sessions learn that they have less time.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.let_arrive(Instant::now());
        state.expire_overdue();
        state.deliver();
        let result = change(&mut state);
        state.deliver();
        let shortened = mem::take(&mut state.shortened);
        let wakers = mem::take(&mut state.wakers);
        let retired = mem::take(&mut state.retired);
        drop(state);
        for (reliant, timeout) in shortened {
            reliant.shortened(timeout);
        }
        drop(retired);
        for waker in wakers {
            waker.wake();
        }
        result
    }
}
