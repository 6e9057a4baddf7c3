//! The client's end of a watch.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use recipes_core::NodeEvent;

use super::reply::Arrival;
use super::shared::Shared;

/// Completes with the event of one watch; dropping it removes the watch.
#[derive(Debug)]
pub(super) struct WatchFuture {
    shared: Arc<Shared>,
    number: u64,
    arrival: Arrival,
}

impl WatchFuture {
    pub(super) fn new(shared: Arc<Shared>, number: u64) -> Self {
        Self {
            shared,
            number,
            arrival: Arrival::default(),
        }
    }
}

impl Future for WatchFuture {
    type Output = NodeEvent;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<NodeEvent> {
        let this = self.get_mut();
        let watch = this
            .shared
            .with(|state| state.watches.poll(this.number, context.waker()));
        let fired = ready!(watch);
        ready!(this.arrival.poll(fired.due, context));
        Poll::Ready(fired.event)
    }
}

impl Drop for WatchFuture {
    fn drop(&mut self) {
        self.shared.with(|state| state.watches.remove(self.number));
    }
}
