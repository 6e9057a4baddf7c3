//! Scans the locks at an interval while the live page has viewers: one scan for all of them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use recipes_core::internal::{human, scan_with_strangers};
use recipes_core::{Scan, Session};
use tokio::sync::{Notify, OnceCell, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::args::{ServeArguments, StoreArguments};
use crate::commands::serve::snapshot::Snapshot;
use crate::commands::show::now;
use crate::exit::{Failure, code, warn};
use crate::output::json::unix_ms;
use crate::session::{self, Purpose};

/// The pause between two requests that show whether the store answers. Together with [`ANSWER_MAX`]
/// less than the three seconds within which the page shows an outage.
const PROBE_PAUSE: Duration = Duration::from_secs(1);
/// A store that is up answers within this time.
const ANSWER_MAX: Duration = Duration::from_millis(1500);

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
    session: OnceCell<Session>,
    viewers: Viewers,
    /// The store answers again after it has been silent.
    answers_again: Notify,
}

impl<'a> Watcher<'a> {
    pub(crate) fn new(store: &'a StoreArguments, arguments: &'a ServeArguments) -> Self {
        let (latest, _) = watch::channel(None);
        let arrived = Arc::default();
        Self {
            store,
            root: &arguments.root,
            every: arguments.every,
            session: OnceCell::new(),
            viewers: Viewers { latest, arrived },
            answers_again: Notify::new(),
        }
    }

    pub(crate) fn viewers(&self) -> Viewers {
        self.viewers.clone()
    }

    /// Scans until an error occurs that no further scan can fix.
    pub(crate) async fn run(&self) -> Failure {
        tokio::select! {
            failure = self.scan_again_and_again() => failure,
            never = self.report_silence() => match never {},
        }
    }

    async fn scan_again_and_again(&self) -> Failure {
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
            tokio::select! {
                () = sleep(pause(self.every, since.elapsed())) => {}
                () = self.answers_again.notified() => {}
            }
        }
    }

    /// Publishes that the store is silent, within three seconds. A scan notices it only when the
    /// store's time to answer is over, and there may be a long pause before the next scan.
    async fn report_silence(&self) -> Infallible {
        let mut is_silent = false;
        loop {
            sleep(PROBE_PAUSE).await;
            if self.viewers.latest.receiver_count() == 0 {
                continue;
            }
            let silence = match self.session.get() {
                Some(session) => silence_of(session, self.root).await,
                // The scan is still connecting. It reports by itself when that has failed.
                None => Some(format!(
                    "no server of {:?} has answered yet",
                    self.store.connect.as_deref().unwrap_or_default()
                )),
            };
            if silence.is_none() && is_silent {
                self.answers_again.notify_one();
            }
            is_silent = silence.is_some();
            if let Some(text) = silence {
                self.publish_trouble(&Failure::new(code::NO_CONNECTION, text));
            }
        }
    }

    /// Unless a trouble is published already, which may say more.
    fn publish_trouble(&self, failure: &Failure) {
        // The last viewer may have left meanwhile, and the next one must not take it for news.
        if self.viewers.latest.receiver_count() == 0 {
            return;
        }
        self.viewers.latest.send_if_modified(|latest| {
            let is_known = latest.as_ref().is_some_and(|it| it.is_in_trouble());
            if !is_known {
                let next = Snapshot::in_trouble(latest.as_deref(), self.root, failure);
                *latest = Some(Arc::new(next));
            }
            !is_known
        });
    }

    pub(crate) async fn close(self) {
        if let Some(session) = self.session.into_inner() {
            session.close().await;
        }
    }

    /// Publishes a new snapshot, or the previous one with the reason why it is not newer.
    async fn look(&self) -> Result<(), Failure> {
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

    async fn scan(&self) -> Result<Scan, Failure> {
        let session = self.connect().await?;
        Ok(scan_with_strangers(session, self.root).await?)
    }

    async fn connect(&self) -> Result<&Session, Failure> {
        let connecting = || session::connect(self.store, Purpose::Reads);
        self.session.get_or_try_init(connecting).await
    }
}

/// What is wrong with a store that does not answer; a refusal is an answer.
async fn silence_of(session: &Session, root: &str) -> Option<String> {
    let in_vain = || format!("no answer within {}", human(ANSWER_MAX));
    match timeout(ANSWER_MAX, session.read(root)).await {
        Ok(Err(error)) if error.is_transient() => Some(in_vain()),
        Ok(_) => None,
        Err(_) => Some(in_vain()),
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

    use clap::Parser as _;
    use test_rig::MemoryEnsemble;
    use tokio::time::{Instant, sleep};

    use super::{Latest, Watcher, pause};
    use crate::args::{Arguments, Task};

    fn is_in_trouble(latest: &Latest) -> Option<bool> {
        latest.as_ref().map(|it| it.is_in_trouble())
    }

    /// The clock is paused, so a busy machine makes no difference.
    #[tokio::test(start_paused = true)]
    async fn outage_is_published_within_three_seconds_however_seldom_the_scans_are() {
        let line = ["lockctl", "serve", "--every=1h", "/locks"];
        let arguments = Arguments::try_parse_from(line).unwrap();
        let Task::Serve(asked) = &arguments.command else {
            panic!("{arguments:?}");
        };
        let ensemble = MemoryEnsemble::new();
        ensemble.create("/locks", b"").unwrap();
        let watcher = Watcher::new(&arguments.store, asked);
        watcher.session.set(ensemble.session()).unwrap();
        let mut viewer = watcher.viewers().join();
        let outages = async {
            for phase_ms in [0, 1, 400, 999, 1000, 1700] {
                let is_well = |it: &Latest| is_in_trouble(it) == Some(false);
                drop(viewer.wait_for(is_well).await.unwrap());
                sleep(Duration::from_millis(phase_ms)).await;
                ensemble.stop();
                let since = Instant::now();
                let is_told = |it: &Latest| is_in_trouble(it) == Some(true);
                drop(viewer.wait_for(is_told).await.unwrap());
                let told_after = since.elapsed();
                assert!(told_after < Duration::from_secs(3), "{told_after:?}");
                ensemble.restart();
            }
        };
        tokio::select! {
            failure = watcher.run() => panic!("{failure}"),
            () = outages => {}
        }
    }

    #[test]
    fn looks_that_take_long_are_as_far_apart() {
        let [short, long] = [2, 7].map(Duration::from_secs);
        assert_eq!((pause(long, short), pause(short, long)), (long, long));
    }
}
