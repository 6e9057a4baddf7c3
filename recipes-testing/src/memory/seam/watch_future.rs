//! The client's end of a watch.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use recipes_core::NodeEvent;

use super::reply::Arrival;
use crate::memory::state::shared::Shared;

/// Completes with the event of one watch; dropping it removes the watch.
#[derive(Debug)]
pub(crate) struct WatchFuture {
    shared: Arc<Shared>,
    number: u64,
    arrival: Arrival,
}

impl WatchFuture {
    pub(crate) fn new(shared: Arc<Shared>, number: u64) -> Self {
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
        let number = this.number;
        let fired = this.shared.with(|state| {
            let (fired, old) = state.watches.poll(number, context.waker());
            state.retired.extend(old);
            fired
        });
        let fired = ready!(fired);
        ready!(this.arrival.poll(fired.delivery.due, context));
        this.shared.with(|state| {
            if let Some(session) = state.watches.session_of(number) {
                state.note_known(session, fired.delivery.zxid);
            }
        });
        Poll::Ready(fired.event)
    }
}

impl Drop for WatchFuture {
    fn drop(&mut self) {
        self.shared.with(|state| {
            let waker = state.watches.remove(self.number);
            state.retired.extend(waker);
        });
    }
}
