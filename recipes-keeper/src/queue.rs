//! Requests that wait for the connection.
//!
//! A request is in the queue as soon as its method returns, so requests are sent in the order of the
//! calls. If the connection has nothing else to do, it is sent then, too: each task in between would take
//! its time. Otherwise the keeper sends what waits, together, in one call. While there is no connection,
//! requests wait for the next one.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use recipes_core::NodesError;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::answers::whole;
use crate::asked::Asked;
use crate::flight::{Landed, Over, settle};
use crate::kept::Kept;
use crate::traffic::Line;
use crate::wire::{Outcome, Wire};

/// One call does so much at most: others of the server wait as long.
const REQUESTS_MAX: usize = 128;
/// See [`REQUESTS_MAX`]. A single larger request goes alone.
const BYTES_MAX: usize = 1024 * 1024;

/// A request, and who waits for its answer.
pub(crate) struct Request {
    pub(crate) asked: Asked,
    pub(crate) answer: oneshot::Sender<Outcome>,
}

/// The answer to a request that is in the queue.
pub(crate) type Answer = oneshot::Receiver<Outcome>;

#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

/// What waits. Whoever has it decides the order of what is sent.
#[derive(Default)]
pub(crate) struct Waiting {
    requests: VecDeque<Request>,
    /// How many callers are about to ask for more that leaves together.
    held: usize,
    is_over: bool,
    /// Where they leave, while there is a connection. Beats that are apart have none here.
    line: Option<Line>,
}

impl Waiting {
    pub(crate) fn ask(&mut self, asked: Asked) -> Answer {
        let (answer, answered) = oneshot::channel();
        if self.is_over {
            drop(answer.send(Err(whole(NodesError::SessionEnded))));
        } else {
            self.requests.push_back(Request { asked, answer });
        }
        answered
    }

    pub(crate) fn may_leave(&self) -> bool {
        self.held == 0 && !self.requests.is_empty()
    }

    /// Takes what leaves in the next call, with so many listings at most.
    fn take(&mut self, listings_max: usize) -> Vec<Request> {
        // After an outage, most of what asks only may be for callers who are gone.
        self.requests
            .retain(|request| !request.answer.is_closed() || request.asked.changes());
        let (mut bytes, mut listings, mut count) = (0, 0, 0);
        for request in self.requests.iter().take(REQUESTS_MAX) {
            bytes += request.asked.bytes();
            listings += usize::from(request.asked.lists());
            if (bytes > BYTES_MAX || listings > listings_max) && count > 0 {
                break;
            }
            count += 1;
        }
        self.requests.drain(..count).collect()
    }

    /// Sends one call of what waits, if it may leave. In one step: nobody else sends in between.
    fn send(&mut self, kept: &Kept) -> bool {
        let room = self.line.as_ref().and_then(|line| line.room(kept));
        let Some(room) = room.filter(|_| self.may_leave()) else {
            return false;
        };
        let requests = self.take(room);
        match &mut self.line {
            Some(line) if !requests.is_empty() => line.send(kept, requests),
            _ => return false,
        }
        true
    }
}

/// Requests that are asked for while it lives leave together.
pub(crate) struct Together<'a>(&'a Kept);

impl Drop for Together<'_> {
    fn drop(&mut self) {
        self.0.with(|waiting| waiting.held -= 1);
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("waiting", &self.lock().requests.len())
            .finish()
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for something that the keeper sends.
    pub(crate) fn ask(&self, asked: Asked) -> Answer {
        let answer = self.lock().ask(asked);
        self.arrived.notify_one();
        answer
    }

    /// Completes when something may leave. It may be dropped.
    pub(crate) async fn arrived(&self, may_leave: impl Fn(&Waiting) -> bool) {
        loop {
            if may_leave(&self.lock()) {
                return;
            }
            self.arrived.notified().await;
        }
    }

    /// Takes what leaves in the next call, with so many listings at most.
    pub(crate) fn take(&self, listings_max: usize) -> Vec<Request> {
        self.lock().take(listings_max)
    }

    /// Refuses what waits, and all that comes.
    pub(crate) fn end(&self) {
        let requests = {
            let mut waiting = self.lock();
            waiting.is_over = true;
            std::mem::take(&mut waiting.requests)
        };
        for request in requests {
            drop(request.answer.send(Err(whole(NodesError::SessionEnded))));
        }
    }
}

impl Kept {
    /// Decides what is asked, and asks it, with nobody in between.
    pub(crate) fn with<T>(&self, ask: impl FnOnce(&mut Waiting) -> T) -> T {
        let mut waiting = self.queue.lock();
        let asked = ask(&mut waiting);
        if waiting.line.as_ref().is_some_and(Line::is_free) {
            waiting.send(self);
        } else if waiting.may_leave() {
            self.queue.arrived.notify_one();
        }
        asked
    }

    pub(crate) fn ask(&self, asked: Asked) -> Answer {
        self.with(|waiting| waiting.ask(asked))
    }

    pub(crate) fn together(&self) -> Together<'_> {
        self.with(|waiting| waiting.held += 1);
        Together(self)
    }

    /// From now on requests leave over this connection.
    pub(crate) async fn connect(&self, wire: &Arc<dyn Wire>) {
        let connect = |cx: &mut Context<'_>| {
            self.queue.lock().line = Some(Line::new(self, wire, cx.waker()));
            Poll::Ready(())
        };
        poll_fn(connect).await;
    }

    /// Requests wait for another connection. Dropping the old one gives up what was sent over it.
    #[must_use]
    pub(crate) fn disconnect(&self) -> Option<Line> {
        self.queue.lock().line.take()
    }

    /// Completes when something may leave over the connection. It may be dropped.
    pub(crate) async fn may_send(&self) {
        let may_send = |it: &Waiting| {
            it.may_leave() && it.line.as_ref().is_some_and(|it| it.room(self).is_some())
        };
        self.queue.arrived(may_send).await;
    }

    /// Sends one call of what waits. False if nothing may leave.
    pub(crate) fn send(&self) -> bool {
        self.queue.lock().send(self)
    }

    /// The next call that has an answer. It may be dropped.
    pub(crate) async fn landed(&self) -> Landed {
        poll_fn(|cx| match &mut self.queue.lock().line {
            Some(line) => line.poll_landed(cx),
            None => Poll::Pending,
        })
        .await
    }

    /// Waits until all calls have landed. An error if one ends the use of the connection.
    pub(crate) async fn land(&self) -> Result<(), Over> {
        let are_landed = || {
            let waiting = self.queue.lock();
            waiting.line.as_ref().is_none_or(|it| it.traffic.is_empty())
        };
        while !are_landed() {
            settle(self.landed().await, self)?;
        }
        Ok(())
    }

    /// When the last call was sent over the connection, and whether a call has had no answer for longer
    /// than `patience`.
    pub(crate) fn last_sent(&self, now: Instant, patience: Duration) -> (Option<Instant>, bool) {
        let waiting = self.queue.lock();
        let line = waiting.line.as_ref();
        let is_silent = line.is_some_and(|it| it.traffic.is_silent(now, patience));
        (line.map(|it| it.last), is_silent)
    }
}

#[cfg(test)]
mod tests {
    use recipes_core::NodeOp;

    use super::*;

    #[test]
    fn what_only_asks_is_not_sent_for_callers_who_are_gone() {
        let queue = Queue::default();
        let (path, version) = (|| "/a".to_owned(), None);
        let multi = |operation| Asked::Multi([operation].into());
        drop(queue.ask(Asked::List(path())));
        let check = || NodeOp::Check {
            path: path(),
            version,
        };
        let delete_op = || NodeOp::Delete {
            path: path(),
            version,
        };
        drop(queue.ask(multi(check())));
        let delete = multi(delete_op());
        drop(queue.ask(delete.clone()));
        let checked = Asked::Multi([check(), delete_op()].into());
        drop(queue.ask(checked.clone()));
        drop(queue.ask(Asked::Watch(path(), 1)));
        drop(queue.ask(Asked::Unwatch(path())));
        let kept = queue.ask(Asked::Read(path()));
        let first: Vec<_> = queue.take(1).into_iter().map(|it| it.asked).collect();
        let unwatch = Asked::Unwatch(path());
        assert_eq!(first, [delete, checked, unwatch, Asked::Read(path())]);
        drop(kept);
    }

    #[test]
    fn no_more_listings_leave_together_than_may() {
        let queue = Queue::default();
        let list = || queue.ask(Asked::List("/a".to_owned()));
        let kept = [list(), list(), queue.ask(Asked::Beat), list(), list()];
        assert_eq!(queue.take(2).len(), 3);
        // One leaves, whatever the limit.
        assert_eq!(queue.take(0).len(), 1);
        assert_eq!(queue.take(9).len(), 1);
        drop(kept);
    }

    #[test]
    fn what_leaves_together_is_bounded() {
        let queue = Queue::default();
        let path = |length: usize| "x".repeat(length);
        let sizes = |lengths: &[usize]| {
            let kept: Vec<_> = lengths
                .iter()
                .map(|length| queue.ask(Asked::Read(path(*length))))
                .collect();
            let mut counts = Vec::new();
            while !queue.lock().requests.is_empty() {
                counts.push(queue.take(0).len());
            }
            drop(kept);
            counts
        };
        let half = BYTES_MAX / 2;
        assert_eq!(sizes(&[half, half, 1]), [2, 1]);
        assert_eq!(sizes(&[half, half + 1]), [1, 1]);
        assert_eq!(sizes(&[BYTES_MAX * 3, 1]), [1, 1]);
        assert_eq!(
            sizes(&[1; 2 * REQUESTS_MAX + 1]),
            [REQUESTS_MAX, REQUESTS_MAX, 1]
        );
    }
}
