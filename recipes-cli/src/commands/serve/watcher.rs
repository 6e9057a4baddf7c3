//! Scans the locks at an interval while the live page has viewers: one scan for all of them.

use std::sync::Arc;
use std::time::Duration;

use recipes_core::{Scan, Session};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};

use crate::args::{ServeArguments, StoreArguments};
use crate::commands::serve::snapshot::Snapshot;
use crate::commands::show::now;
use crate::exit::{Failure, code, warn};
use crate::output::json::unix_ms;
use crate::session;

/// The latest snapshot; `None` while there is no viewer.
pub(crate) type Latest = Option<Arc<Snapshot>>;

#[derive(Clone, Debug)]
pub(crate) struct Viewers {
    latest: watch::Sender<Latest>,
    arrived: Arc<Notify>,
}

impl Viewers {
    /// Adds a viewer, which counts until the receiver is dropped.
    pub(crate) fn join(&self) -> watch::Receiver<Latest> {
        let mut receiver = self.latest.subscribe();
        // The present snapshot is news to this viewer.
        receiver.mark_changed();
        self.arrived.notify_one();
        receiver
    }
}

/// Scans the store for the viewers.
#[derive(Debug)]
pub(crate) struct Watcher<'a> {
    store: &'a StoreArguments,
    root: &'a str,
    every: Duration,
    session: Option<Session>,
    viewers: Viewers,
}

impl<'a> Watcher<'a> {
    pub(crate) fn new(store: &'a StoreArguments, arguments: &'a ServeArguments) -> Self {
        let (latest, _) = watch::channel(None);
        let arrived = Arc::default();
        Self {
            store,
            root: &arguments.root,
            every: arguments.every,
            session: None,
            viewers: Viewers { latest, arrived },
        }
    }

    pub(crate) fn viewers(&self) -> Viewers {
        self.viewers.clone()
    }

    /// Scans until an error occurs that no further scan can fix.
    pub(crate) async fn run(&mut self) -> Failure {
        // Before the first viewer, so that a wrong connect string is reported on the command line.
        if let Err(failure) = self.connect().await {
            if is_final(&failure) {
                return failure;
            }
            warn(&format!("{failure}; the page is there and goes on asking"));
        }
        loop {
            while self.viewers.latest.receiver_count() == 0 {
                // The next viewer must not take a snapshot for new that may be hours old.
                self.viewers.latest.send_replace(None);
                self.viewers.arrived.notified().await;
            }
            let since = Instant::now();
            if let Err(failure) = self.look().await {
                return failure;
            }
            sleep(pause(self.every, since.elapsed())).await;
        }
    }

    pub(crate) async fn close(self) {
        if let Some(session) = self.session {
            session.close().await;
        }
    }

    /// Publishes a new snapshot, or the previous one with the reason why it is not newer.
    async fn look(&mut self) -> Result<(), Failure> {
        let previous = self.viewers.latest.borrow().clone();
        let next = match self.scan().await {
            Ok(scan) => {
                let (root, seen_ms) = (self.root.to_owned(), unix_ms(now()));
                // A large graph keeps a thread busy for a while.
                let made = tokio::task::spawn_blocking(move || {
                    Snapshot::of(&scan, root, seen_ms, previous.as_deref())
                });
                made.await
                    .map_err(std::io::Error::other)
                    .and_then(|made| made.map_err(std::io::Error::from))
                    .map_err(|error| Failure::system("show what was seen", &error))?
            }
            Err(failure) if is_final(&failure) => return Err(failure),
            Err(failure) => Snapshot::in_trouble(previous.as_deref(), self.root, &failure),
        };
        self.viewers.latest.send_replace(Some(Arc::new(next)));
        Ok(())
    }

    async fn scan(&mut self) -> Result<Scan, Failure> {
        let root = self.root;
        Ok(recipes_core::scan(self.connect().await?, root).await?)
    }

    async fn connect(&mut self) -> Result<&Session, Failure> {
        let session = match self.session.take() {
            Some(session) => session,
            None => session::connect(self.store, "lockctl").await?,
        };
        Ok(self.session.insert(session))
    }
}

/// Scans that take long are made less often, so they take at most half of the time.
fn pause(every: Duration, took: Duration) -> Duration {
    every.max(took)
}

fn is_final(failure: &Failure) -> bool {
    failure.code == code::USAGE
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::pause;

    #[test]
    fn looks_that_take_long_are_as_far_apart() {
        let [short, long] = [2, 7].map(Duration::from_secs);
        assert_eq!((pause(long, short), pause(short, long)), (long, long));
    }
}
