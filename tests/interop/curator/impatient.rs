//! Curator in the storm of `tests/scale/impatient.rs`, next to which ours is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{PATH, Stage};

const TASKS: usize = 100;
const TIMEOUT: Duration = Duration::from_millis(200);
const HALT: Duration = Duration::from_secs(4);
const GOES_ON: Duration = Duration::from_secs(3);

/// Each of its threads waits for the answer to its delete, so its queue is as long as its threads are many.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a figure to compare with, on a machine that has nothing else to do"]
async fn queue_of_curator_is_as_long_as_its_threads_are_many() {
    let stage = Stage::set_up().await;
    let held = stage.mutex().acquire().await.unwrap();
    let observing = stage.operator().await;
    let (curator, goes_on) = (Arc::new(stage.curator), Arc::new(AtomicBool::new(true)));
    let mut contenders = JoinSet::new();
    for number in 0..TASKS {
        let (curator, goes_on) = (Arc::clone(&curator), Arc::clone(&goes_on));
        contenders.spawn(async move {
            let thread = format!("t{number}");
            while goes_on.load(Ordering::Relaxed) {
                // It may also report that its connection was lost.
                let got = curator.acquire(&thread, "m", Some(TIMEOUT)).await;
                assert!(!got.unwrap_or(false), "granted what we hold");
            }
        });
    }
    sleep(TIMEOUT * 5).await;
    stage.ensemble.pause();
    sleep(HALT).await;
    stage.ensemble.resume();
    let (resumed, mut most) = (Instant::now(), 0);
    while resumed.elapsed() < GOES_ON {
        let (_, stat) = observing.get_data(PATH).await.unwrap();
        most = most.max(stat.num_children);
        sleep(Duration::from_millis(20)).await;
    }
    goes_on.store(false, Ordering::Relaxed);
    contenders.join_all().await;
    let stopped = Instant::now();
    stage.ensemble.await_children(PATH, 1).await;
    println!(
        "Curator, {TASKS} threads of {TIMEOUT:?}, a halt of {HALT:?}: at most {most} nodes, all gone after {:?}",
        stopped.elapsed()
    );
    assert!(held.is_valid(), "a neighbour has lost its lock");
    assert!(usize::try_from(most).unwrap() <= 2 * TASKS + 1, "{most}");
}
