//! A service with fifty locks at work, whose server does not run for twenty seconds. Its log alone
//! must explain the outage, and no finished job may be reported as failed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use lock_recipes::{
    Error, InterProcessMutex, LockFactory, ReleaseError, Session, SessionHealth, ZooKeeper,
};
use tokio::time::sleep;
use tracing::{info, warn};

use crate::log::logging;

/// Workers with a lock each, and two more that share the lock of the first.
const LOCKS: usize = 50;
/// Jobs that last longer than the outage, with a lock each.
const LONG_JOBS: usize = 5;
const OUTAGE: Duration = Duration::from_secs(20);
const JOB: Duration = Duration::from_millis(100);
const WAIT: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Tally {
    finished: AtomicUsize,
    /// Finished under the lock, and then reported as failed though the lock was not lost.
    undone: AtomicUsize,
    /// Not finished, because the lock was lost meanwhile.
    interrupted: AtomicUsize,
    busy: AtomicUsize,
    down: AtomicUsize,
}

impl Tally {
    fn add(counter: &AtomicUsize) {
        counter.fetch_add(1, Ordering::SeqCst);
    }
}

/// One job of a worker, as a service would write it.
async fn job(lock: &InterProcessMutex, tally: &Tally) {
    let guard = match lock.acquire().timeout(WAIT).await {
        Ok(guard) => guard,
        Err(error) if error.is_busy() => {
            info!(target: "service", %error, "busy");
            return Tally::add(&tally.busy);
        }
        Err(error) if error.is_transient() => {
            warn!(target: "service", %error, "store is down");
            return Tally::add(&tally.down);
        }
        Err(error) => panic!("{error}"),
    };
    if guard.run(sleep(JOB)).await.is_err() {
        warn!(target: "service", lock = guard.path(), "job interrupted");
        return Tally::add(&tally.interrupted);
    }
    match guard.release().await {
        Ok(_) => Tally::add(&tally.finished),
        // It was lost between the end of the job and the release.
        Err(Error::Release(ReleaseError::Lost(_))) => Tally::add(&tally.interrupted),
        Err(error) => {
            warn!(target: "service", %error, "finished job undone");
            Tally::add(&tally.undone);
        }
    }
}

/// A job that is at work when the outage begins, and is interrupted by it.
async fn long_job(lock: InterProcessMutex, tally: &Tally) {
    let guard = lock.acquire().await.unwrap();
    let lost = guard.lost().await;
    warn!(target: "service", %lost, "long job interrupted");
    Tally::add(&tally.interrupted);
}

async fn becomes(session: &Session, is: impl Fn(SessionHealth) -> bool) {
    let mut watcher = session.watch_health();
    while !is(session.health()) {
        watcher.changed().await;
    }
}

fn count(text: &str, part: &str) -> usize {
    text.lines().filter(|line| line.contains(part)).count()
}

/// The log of the time without a server, and of the time after it.
fn assert_explained(during: &str, after: &str) {
    // When it began, with what is at stake.
    assert_eq!(
        count(during, "lock_recipes::session: connection lost"),
        1,
        "{during}"
    );
    assert!(during.contains("lost_in_ms="), "{during}");
    // What was lost, each lock by its name.
    for number in 0..LONG_JOBS {
        let lost = format!("lock_recipes::lock: lock lost lock=/locks/orders/long%20{number} ");
        assert_eq!(count(during, &lost), 1, "{during}");
    }
    // What failed because the store was down, and nothing that only looks like contention.
    assert!(count(during, "store is down") >= LOCKS, "{during}");
    for line in during.lines().filter(|line| line.contains("store is down")) {
        assert!(!line.contains("held by"), "{line}");
    }
    // When it ended.
    let back = count(after, "connection is back") + count(after, "store session open");
    assert!(back >= 1, "{after}");
}

/// On one thread, which logs to the test.
#[tokio::test]
async fn outage_under_a_service_explains_itself_on_a_real_server() {
    let (log, _logging) = logging();
    let ensemble = test_rig::own::on_a_real_server().await;
    let session = ensemble.session_with(ZooKeeper::builder()).await;
    let factory = LockFactory::new(&session, "/locks/orders").unwrap();
    let (tally, stop) = (Tally::default(), AtomicBool::new(false));
    let workers = (0..LOCKS + 2).map(|number| {
        let lock = factory.mutex(&format!("order {}", number % LOCKS)).unwrap();
        let (tally, stop) = (&tally, &stop);
        async move {
            while !stop.load(Ordering::SeqCst) {
                job(&lock, tally).await;
                // A service has other work as well.
                sleep(Duration::from_millis(10)).await;
            }
        }
    });
    let workers = join_all(workers);
    let long_jobs = (0..LONG_JOBS).map(|number| {
        let lock = factory.mutex(&format!("long {number}")).unwrap();
        long_job(lock, &tally)
    });
    let long_jobs = join_all(long_jobs);
    // A job that holds the first lock for longer than the others wait.
    let busy_before = async {
        let first = factory.mutex("order 0").unwrap();
        let held = first.acquire().await.unwrap();
        while tally.busy.load(Ordering::SeqCst) == 0 {
            sleep(JOB).await;
        }
        held.release().await.unwrap();
    };
    let outage = async {
        busy_before.await;
        let busy = tally.busy.load(Ordering::SeqCst);
        while tally.finished.load(Ordering::SeqCst) <= LOCKS {
            sleep(JOB).await;
        }
        let before = log.text().len();
        ensemble.stop().await;
        becomes(&session, |health| health != SessionHealth::Connected).await;
        sleep(OUTAGE).await;
        let during = log.text()[before..].to_owned();
        ensemble.start_again().await;
        becomes(&session, |health| health == SessionHealth::Connected).await;
        let finished = tally.finished.load(Ordering::SeqCst);
        while tally.finished.load(Ordering::SeqCst) < finished + 2 * LOCKS {
            sleep(JOB).await;
        }
        stop.store(true, Ordering::SeqCst);
        (busy, during)
    };
    let ((busy, during), ..) = tokio::join!(outage, workers, long_jobs);
    let text = log.text();
    println!(
        "{} finished, {} interrupted, {} busy ({busy} before the outage), {} without the store",
        tally.finished.load(Ordering::SeqCst),
        tally.interrupted.load(Ordering::SeqCst),
        tally.busy.load(Ordering::SeqCst),
        tally.down.load(Ordering::SeqCst),
    );

    // No finished job is reported as failed.
    assert_eq!(tally.undone.load(Ordering::SeqCst), 0, "{during}");
    let after = &text[text.find(&during).unwrap() + during.len()..];
    assert_explained(&during, after);
    session.close().await;
}
