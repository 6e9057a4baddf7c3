//! Many acquires that are given up much sooner than the store answers. What they leave must not
//! become more than they are.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_recipes::{AcquireError, Error, InterProcessMutex, Owner, Session};
use test_rig::{TestEnsemble, on_ensembles_of_their_own};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const PATH: &str = "/locks/orders";
/// As a collection of garbage, or a slow disk.
const HALT: Duration = Duration::from_secs(4);

/// What is left of a storm is gone after this time, on a machine that has nothing else to do.
const GONE_AFTER: Duration = Duration::from_secs(5);

/// Contenders of one session that go on trying for a lock that is held.
#[derive(Clone, Copy, Debug)]
struct Storm {
    tasks: usize,
    timeout: Duration,
    halt: Duration,
    /// How long they go on after the halt.
    goes_on: Duration,
}

impl Storm {
    /// Lets them try, next to a [`neighbour`](crate::neighbour) that holds. Returns the most nodes that
    /// were in the queue at a time, and after which time all were gone.
    async fn rage(self, ensemble: &TestEnsemble, is_alone: bool) -> (usize, Duration) {
        let holding = crate::neighbour(ensemble, is_alone).await;
        let session = ensemble.session().await;
        let observing = ensemble.session().await;
        let held = mutex(&holding).acquire().await.unwrap();
        let goes_on = Arc::new(AtomicBool::new(true));
        let mut contenders = JoinSet::new();
        for number in 0..self.tasks {
            let (lock, goes_on) = (mutex(&session), Arc::clone(&goes_on));
            contenders.spawn(async move {
                while goes_on.load(Ordering::Relaxed) {
                    let acquire = lock.acquire().timeout(self.timeout);
                    // Half of them are different requests of a service each time.
                    let acquire = match number % 2 {
                        0 => acquire,
                        _ => acquire.owner(&Owner::new()),
                    };
                    let late = acquire.await.unwrap_err();
                    assert!(
                        matches!(late, Error::Acquire(AcquireError::TimedOut { .. })),
                        "{late}"
                    );
                }
            });
        }
        sleep(self.timeout * 5).await;
        ensemble.pause();
        sleep(self.halt).await;
        ensemble.resume();
        let (resumed, mut most) = (Instant::now(), 0);
        while resumed.elapsed() < self.goes_on {
            let directory = observing.read(PATH).await.unwrap();
            most = most.max(directory.unwrap().1.children);
            sleep(Duration::from_millis(20)).await;
        }
        goes_on.store(false, Ordering::Relaxed);
        while let Some(ended) = contenders.join_next().await {
            ended.unwrap();
        }
        let stopped = Instant::now();
        ensemble.await_children(PATH, 1).await;
        assert!(held.is_valid(), "a neighbour has lost its lock");
        (usize::try_from(most).unwrap(), stopped.elapsed())
    }
}

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

on_ensembles_of_their_own!(queue_is_as_long_as_its_contenders_are_many);

/// One storm, or with `IMPATIENT_STORMS` all of them, which takes minutes.
async fn queue_is_as_long_as_its_contenders_are_many(ensemble: TestEnsemble) {
    let is_long = env::var_os("IMPATIENT_STORMS").is_some();
    for storm in storms(is_long) {
        let (most, gone_after) = storm.rage(&ensemble, is_long).await;
        println!("{storm:?}: at most {most} nodes, all gone after {gone_after:?}");
        // The holder has one more.
        assert!(most <= 2 * storm.tasks + 1, "{most} nodes: {storm:?}");
        assert!(!is_long || gone_after < GONE_AFTER, "{gone_after:?}");
    }
}

fn storms(is_long: bool) -> Vec<Storm> {
    let one = Storm {
        tasks: 100,
        timeout: Duration::from_millis(200),
        halt: HALT,
        goes_on: Duration::from_secs(3),
    };
    if !is_long {
        return vec![one];
    }
    let mut all = Vec::new();
    for tasks in [48, 100, 150] {
        for timeout in [200, 20].map(Duration::from_millis) {
            for halt in [HALT, Duration::ZERO] {
                let goes_on = Duration::from_secs(8);
                all.push(Storm {
                    tasks,
                    timeout,
                    halt,
                    goes_on,
                });
            }
        }
    }
    all
}
