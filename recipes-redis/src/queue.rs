//! Requests that wait for the connection.
//!
//! A request is in the queue as soon as its method returns, so requests are sent in the order of the
//! calls. What waits together leaves in one script. While there is no connection, requests wait for
//! the next one.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use recipes_core::NodesError;
use redis::Value;
use tokio::sync::{Notify, oneshot};

/// One script does so much at most: others of the server wait as long.
const REQUESTS_MAX: usize = 128;
/// See [`REQUESTS_MAX`]. A single larger request goes alone.
const BYTES_MAX: usize = 1024 * 1024;

/// A request, word by word, and who waits for its answer.
pub(crate) struct Request {
    pub(crate) words: Vec<Vec<u8>>,
    pub(crate) answer: oneshot::Sender<Result<Value, NodesError>>,
}

impl Request {
    fn bytes(&self) -> usize {
        self.words.iter().map(Vec::len).sum()
    }
}

/// The answer to a request that is in the queue.
pub(crate) type Answer = oneshot::Receiver<Result<Value, NodesError>>;

#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

#[derive(Default)]
struct Waiting {
    requests: std::collections::VecDeque<Request>,
    is_over: bool,
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

    pub(crate) fn ask(&self, words: Vec<Vec<u8>>) -> Answer {
        let (answer, answered) = oneshot::channel();
        let mut waiting = self.lock();
        if waiting.is_over {
            drop(answer.send(Err(NodesError::SessionEnded)));
        } else {
            waiting.requests.push_back(Request { words, answer });
            drop(waiting);
            self.arrived.notify_one();
        }
        answered
    }

    /// Completes when something may be waiting. It may be dropped.
    pub(crate) async fn arrived(&self) {
        loop {
            if !self.lock().requests.is_empty() {
                return;
            }
            self.arrived.notified().await;
        }
    }

    /// Takes what leaves in the next script.
    pub(crate) fn take(&self) -> Vec<Request> {
        let mut waiting = self.lock();
        let mut bytes = 0;
        let mut count = 0;
        for request in waiting.requests.iter().take(REQUESTS_MAX) {
            bytes += request.bytes();
            if bytes > BYTES_MAX && count > 0 {
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
