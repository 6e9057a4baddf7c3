//! The client's end of a request.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::time::{Instant, Sleep, sleep_until};

use crate::memory::state::request::{Call, Outcome};
use crate::memory::state::shared::Shared;

/// Completes with the outcome of one request, which was sent when this was made. Dropping it
/// forgets the reply.
#[derive(Debug)]
pub(crate) struct PendingReply {
    shared: Arc<Shared>,
    session: i64,
    number: u64,
    yielded: bool,
    collected: bool,
    arrival: Arrival,
}

impl PendingReply {
    pub(crate) fn send(shared: Arc<Shared>, session: i64, call: Call) -> Self {
        let number = shared.with(|state| state.submit(session, call));
        let arrival = Arrival::default();
        Self {
            shared,
            session,
            number,
            yielded: false,
            collected: false,
            arrival,
        }
    }
}

impl Future for PendingReply {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let this = self.get_mut();
        let (session, number) = (this.session, this.number);
        let due = this
            .shared
            .with(|state| state.poll_due(session, number, context.waker()));
        // No network answers at once. Tests must be able to cancel a caller between the request and
        // its reply.
        if !this.yielded {
            this.yielded = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        ready!(this.arrival.poll(ready!(due), context));
        this.collected = true;
        Poll::Ready(this.shared.with(|state| state.collect(session, number)))
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if !self.collected {
            self.shared
                .with(|state| state.abandon(self.session, self.number));
        }
    }
}

/// Waits until a message is due.
#[derive(Debug, Default)]
pub(crate) struct Arrival(Option<Pin<Box<Sleep>>>);

impl Arrival {
    pub(crate) fn poll(&mut self, due: Option<Instant>, context: &mut Context<'_>) -> Poll<()> {
        let Some(due) = due.filter(|due| *due > Instant::now()) else {
            return Poll::Ready(());
        };
        // A message that was lost and sent again is due at a different time.
        if self.0.as_ref().is_none_or(|sleep| sleep.deadline() != due) {
            self.0 = Some(Box::pin(sleep_until(due)));
        }
        match &mut self.0 {
            Some(sleep) => sleep.as_mut().poll(context),
            None => Poll::Ready(()),
        }
    }
}
