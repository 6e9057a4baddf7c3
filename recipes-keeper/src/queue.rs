//! Requests that wait for the connection.
//!
//! A request is in the queue as soon as its method returns, so requests are sent in the order of the
//! calls. What waits together leaves in one call. While there is no connection, requests wait for
//! the next one.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use recipes_core::NodesError;
use tokio::sync::{Notify, oneshot};

use crate::asked::Asked;
use crate::wire::Value;

/// One call does so much at most: others of the server wait as long.
const REQUESTS_MAX: usize = 128;
/// See [`REQUESTS_MAX`]. A single larger request goes alone.
const BYTES_MAX: usize = 1024 * 1024;

/// A request, and who waits for its answer.
pub(crate) struct Request {
    pub(crate) asked: Asked,
    pub(crate) answer: oneshot::Sender<Result<Value, NodesError>>,
}

/// The answer to a request that is in the queue.
pub(crate) type Answer = oneshot::Receiver<Result<Value, NodesError>>;

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
}

impl Waiting {
    pub(crate) fn ask(&mut self, asked: Asked) -> Answer {
        let (answer, answered) = oneshot::channel();
        if self.is_over {
            drop(answer.send(Err(NodesError::SessionEnded)));
        } else {
            self.requests.push_back(Request { asked, answer });
        }
        answered
    }

    fn may_leave(&self) -> bool {
        self.held == 0 && !self.requests.is_empty()
    }
}

/// Requests that are asked for while it lives leave together.
pub(crate) struct Together<'a>(&'a Queue);

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

    /// Decides what is asked, and asks it, with nobody in between.
    pub(crate) fn with<T>(&self, ask: impl FnOnce(&mut Waiting) -> T) -> T {
        let (asked, may_leave) = {
            let mut waiting = self.lock();
            (ask(&mut waiting), waiting.may_leave())
        };
        if may_leave {
            self.arrived.notify_one();
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

    /// Completes when something may leave. It may be dropped.
    pub(crate) async fn arrived(&self) {
        loop {
            if self.lock().may_leave() {
                return;
            }
            self.arrived.notified().await;
        }
    }

    /// Takes what leaves in the next call, with so many listings at most.
    pub(crate) fn take(&self, listings_max: usize) -> Vec<Request> {
        let mut waiting = self.lock();
        // After an outage, most of what asks only may be for callers who are gone.
        waiting
            .requests
            .retain(|request| !request.answer.is_closed() || request.asked.changes());
        let (mut bytes, mut listings, mut count) = (0, 0, 0);
        for request in waiting.requests.iter().take(REQUESTS_MAX) {
            bytes += request.asked.bytes();
            listings += usize::from(request.asked.lists());
            if (bytes > BYTES_MAX || listings > listings_max) && count > 0 {
                break;
            }
            count += 1;
        }
        waiting.requests.drain(..count).collect()
    }

    /// Refuses what waits, and all that comes.
    pub(crate) fn end(&self) {
        let requests = {
            let mut waiting = self.lock();
            waiting.is_over = true;
            std::mem::take(&mut waiting.requests)
        };
        for request in requests {
            drop(request.answer.send(Err(NodesError::SessionEnded)));
        }
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
        drop(queue.ask(multi(NodeOp::Check {
            path: path(),
            version,
        })));
        let delete = multi(NodeOp::Delete {
            path: path(),
            version,
        });
        drop(queue.ask(delete.clone()));
        drop(queue.ask(Asked::Unwatch(path())));
        let kept = queue.ask(Asked::Read(path()));
        let first: Vec<_> = queue.take(1).into_iter().map(|it| it.asked).collect();
        let unwatch = Asked::Unwatch(path());
        assert_eq!(first, [delete, unwatch, Asked::Read(path())]);
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
}
