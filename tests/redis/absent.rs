//! A holder that notices nothing.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use lock_recipes::FencingToken;
use tokio::time::Instant;

use super::{mutex, options};

/// A holder that notices nothing: its only thread stands still until it is told to go on. It says
/// until when it believes that it holds the lock.
pub(crate) struct Absent {
    pub(crate) until: Instant,
    pub(crate) token: FencingToken,
    go_on: mpsc::Sender<()>,
    thread: thread::JoinHandle<bool>,
}

impl Absent {
    pub(crate) fn holding(session_timeout: Duration, url: String) -> Self {
        let (said, told) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let opened = options(session_timeout).connect(&url).await;
                let session = opened.unwrap();
                let guard = mutex(&session).acquire().await.unwrap();
                let until = guard.valid_until().unwrap();
                said.send((until, guard.fencing_token())).unwrap();
                may_go_on.recv().unwrap();
                guard.is_valid()
            })
        });
        let (until, token) = told.recv().unwrap();
        Self {
            until,
            token,
            go_on,
            thread,
        }
    }

    /// Lets it go on. It must not believe in its lock any more.
    pub(crate) fn believes_after_all(self) -> bool {
        self.go_on.send(()).unwrap();
        self.thread.join().unwrap()
    }
}
