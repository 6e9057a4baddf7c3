//! A watch that lives through reconnects.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use recipes_core::NodeEvent;
use tokio::sync::oneshot;

use crate::kept::{Kept, Seen};
use crate::wire::Watcher;

/// A watch, as its session knows it.
pub(crate) struct Entry {
    pub(crate) path: String,
    pub(crate) seen: Seen,
    pub(crate) news: oneshot::Sender<News>,
}

/// What the session tells a watch after a reconnect.
#[derive(Debug)]
pub(crate) enum News {
    Event(NodeEvent),
    /// It is set again, and the next news come there.
    Watcher(Watcher, oneshot::Receiver<News>),
}

/// A watch on a node. Dropping it removes it, on the server too.
#[derive(Debug)]
pub(crate) struct Watch {
    kept: Arc<Kept>,
    number: u64,
    /// `None` if its connection is lost.
    watcher: Option<Watcher>,
    news: oneshot::Receiver<News>,
}

impl Watch {
    pub(crate) fn new(
        kept: Arc<Kept>,
        number: u64,
        watcher: Watcher,
        news: oneshot::Receiver<News>,
    ) -> Self {
        Self {
            kept,
            number,
            watcher: Some(watcher),
            news,
        }
    }
}

impl Future for Watch {
    type Output = NodeEvent;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<NodeEvent> {
        let Self { watcher, news, .. } = &mut *self;
        loop {
            if let Some(set) = watcher {
                match set.poll(cx) {
                    Poll::Ready(Some(event)) => return Poll::Ready(event),
                    Poll::Ready(None) => *watcher = None,
                    Poll::Pending => {}
                }
            }
            match news.poll_unpin(cx) {
                Poll::Ready(Ok(News::Event(event))) => return Poll::Ready(event),
                Poll::Ready(Ok(News::Watcher(again, next))) => {
                    (*watcher, *news) = (Some(again), next);
                }
                Poll::Ready(Err(_)) => return Poll::Ready(NodeEvent::SessionEnded),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.kept.unwatch(self.number);
    }
}
