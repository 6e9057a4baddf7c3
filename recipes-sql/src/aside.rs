//! The connection beside that of the requests, and what runs on it.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use recipes_core::NodeEvent;
use recipes_core::caught;
use recipes_keeper::{CallError, Caller, Loss, LossSender, Rewatch, Shared};
use tokio::task::JoinHandle;

use crate::beats;
use crate::bell::Bell;
use crate::poller;

/// What a beat has told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beat {
    /// The most that the store's clock advances at once.
    pub(crate) step: Duration,
    /// In how long a session is due, if nobody is heard until then.
    pub(crate) due: Duration,
}

/// What a poll has told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Polled {
    /// Of each watch, in their order.
    pub(crate) news: Vec<Option<NodeEvent>>,
    /// How many nodes are ahead of that of another session which is watched, the least of them.
    pub(crate) ahead: Option<u64>,
    /// Nobody was changing a watched node. Whoever begins to do so rings.
    pub(crate) is_still: bool,
    /// As `is_still`, of the session's own nodes. Another's that a transaction has fenced is never still.
    pub(crate) is_own_still: bool,
}

/// The connection beside that of the requests.
pub(crate) trait Aside: Send + Sync + 'static {
    /// Keeps the session alive. `None` if it has ended.
    fn beat(&self) -> BoxFuture<'_, Result<Option<Beat>, CallError>>;

    /// Asks for the news of all watches, as of one moment. Whether `ahead` is wanted.
    fn poll<'a>(
        &'a self,
        watches: &'a [Rewatch],
        wants_ahead: bool,
    ) -> BoxFuture<'a, Result<Polled, CallError>>;

    /// The number of the watch on a node that was deleted, and how, if a ring proves that.
    fn deletion(&self, ring: &str) -> Option<(u64, NodeEvent)>;

    /// Has the server ring from now on, or no more. Returns whether it rings.
    fn ring(&self, is_wanted: bool) -> BoxFuture<'_, Result<bool, CallError>>;
}

/// What runs on the connection. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Running(JoinHandle<()>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Keeps a session alive and tells its news, until either ends the use of its wire.
pub(crate) fn run(
    aside: Arc<dyn Aside>,
    shared: Arc<Shared>,
    session: &Caller,
    bell: Arc<Bell>,
    loss: LossSender,
) -> Running {
    let (id, timeout, number) = (session.id, session.timeout, session.connection);
    Running(tokio::spawn(async move {
        let beats = beats::keep(&*aside, &shared, id, timeout);
        let news = poller::tell(&*aside, &shared.watches, id, number, &bell);
        let over = caught(async {
            tokio::select! {
                biased;
                over = beats => over,
                over = news => over,
            }
        });
        loss.send_replace(Some(over.await.unwrap_or(Loss::Connection)));
    }))
}
