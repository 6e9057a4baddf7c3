//! One connection to one server, through a client of its own.
//!
//! The client would connect again by itself, at a time and to a server of its own choice, and the session
//! would have another timeout without anybody's knowledge. So the task that the client spawns is caught
//! and runs as a part of ours. It is dropped as soon as its connection is lost: before that poll ends it
//! has sent nothing over another one, because no connection is made within one poll.

use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use asyncs::task::{Spawn, Task, enter};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use recipes_core::{NodeEvent, caught};
use zookeeper_client::{Client, Error, OneshotWatcher, SessionState, StateWatcher};

use crate::answers::node_event;

/// One connection. Dropping it closes it; the session stays.
pub(crate) struct Wire {
    /// What the client does in the background.
    task: BoxFuture<'static, ()>,
    state: StateWatcher,
    open: Arc<Open>,
}

/// The connection over which requests leave.
pub(crate) struct Up {
    pub(crate) client: Client,
    pub(crate) open: Arc<Open>,
}

/// Whether a connection is open. Its client panics if a watch is polled after it was lost.
#[derive(Debug)]
pub(crate) struct Open(Mutex<bool>);

impl Open {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tasks that a client spawns.
#[derive(Default)]
struct Tasks(Mutex<Vec<BoxFuture<'static, ()>>>);

impl Spawn for Tasks {
    fn spawn(&self, task: Task) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.push(Box::into_pin(task.future));
    }
}

impl Wire {
    /// Connects. The client carries nothing while the wire is not [served](Self::serve).
    pub(crate) async fn open(
        connecting: impl Future<Output = Result<Client, Error>>,
    ) -> Result<(Self, Up), Error> {
        let tasks = Tasks::default();
        let mut connecting = pin!(connecting);
        let client = poll_fn(|cx| {
            let _here = enter(&tasks);
            connecting.as_mut().poll(cx)
        });
        let client = client.await?;
        let tasks = tasks.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        if tasks.is_empty() {
            let why = "the client runs where it cannot be stopped".to_owned();
            return Err(Error::UnexpectedError(why));
        }
        let open = Arc::new(Open(Mutex::new(true)));
        let wire = Self {
            task: join_all(tasks).map(drop).boxed(),
            state: client.state_watcher(),
            open: Arc::clone(&open),
        };
        Ok((wire, Up { client, open }))
    }

    /// Carries requests and answers until the connection is lost. Returns what the client says of the
    /// session then; [`Disconnected`](SessionState::Disconnected) if it may go on over another wire.
    ///
    /// Once all clones of the client are dropped, the session is closed. Must not be called again after
    /// it has returned.
    pub(crate) async fn serve(&mut self) -> SessionState {
        let Self { task, state, .. } = self;
        let served = poll_fn(|cx| {
            let ended = task.poll_unpin(cx);
            match (state.peek_state(), ended) {
                (SessionState::SyncConnected, Poll::Pending) => Poll::Pending,
                // Its task has ended without a word.
                (SessionState::SyncConnected, Poll::Ready(())) => {
                    Poll::Ready(SessionState::Disconnected)
                }
                (state, _) => Poll::Ready(state),
            }
        });
        caught(served).await.unwrap_or(SessionState::Disconnected)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        // Before the task goes, and with it what watches wait for. At the end of a session the client has
        // told each of them something.
        if !self.state.peek_state().is_terminated() {
            *self.open.lock() = false;
        }
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire")
            .field("state", &self.state.peek_state())
            .finish_non_exhaustive()
    }
}

/// A watch that was set over one connection.
pub(crate) struct Watcher {
    open: Arc<Open>,
    event: BoxFuture<'static, Option<NodeEvent>>,
}

impl Watcher {
    pub(crate) fn new(open: &Arc<Open>, watcher: OneshotWatcher) -> Self {
        Self {
            open: Arc::clone(open),
            event: watcher.changed().map(|event| node_event(&event)).boxed(),
        }
    }

    /// Whether it was set over this connection.
    pub(crate) fn is_of(&self, open: &Arc<Open>) -> bool {
        Arc::ptr_eq(&self.open, open)
    }

    /// What happened to the node. `None` if the connection is lost. Must not be polled again then.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<NodeEvent>> {
        // The wire is dropped after this poll or before it.
        let is_open = self.open.lock();
        if !*is_open {
            return Poll::Ready(None);
        }
        // If the client's task has panicked, this panics too.
        let polled = catch_unwind(AssertUnwindSafe(|| self.event.poll_unpin(cx)));
        polled.unwrap_or(Poll::Ready(None))
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watcher").finish_non_exhaustive()
    }
}
