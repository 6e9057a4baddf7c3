//! The loops in which contenders acquire and release.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::future;
use tokio::time::Instant;

/// Contenders that share the work are counted after this time, when all have begun.
pub(crate) const BEGIN: Duration = Duration::from_millis(200);

/// Takes what it contends for, and returns it.
pub(crate) trait Contender: Send + 'static {
    type Held: Send;

    fn take(&mut self) -> impl Future<Output = Self::Held> + Send;
    fn give_back(&mut self, held: Self::Held) -> impl Future<Output = ()> + Send;
}

/// Runs the cycles of one contender, alone, on a task of its own.
pub(crate) async fn cycles(mut contender: impl Contender, length: Duration) -> Vec<u64> {
    let cycles = async move {
        let (mut samples, start) = (Vec::new(), Instant::now());
        while start.elapsed() < length {
            let begun = Instant::now();
            let held = contender.take().await;
            let taken = Instant::now();
            contender.give_back(held).await;
            samples.extend([nanos(taken - begun), nanos(taken.elapsed())]);
        }
        samples
    };
    tokio::spawn(cycles).await.unwrap()
}

/// Runs attempts one after the other, on a task of its own.
pub(crate) async fn each<F>(
    mut attempt: impl FnMut() -> F + Send + 'static,
    length: Duration,
) -> Vec<u64>
where
    F: Future<Output = ()> + Send,
{
    let attempts = async move {
        let (mut samples, start) = (Vec::new(), Instant::now());
        while start.elapsed() < length {
            let begun = Instant::now();
            attempt().await;
            samples.push(nanos(begun.elapsed()));
        }
        samples
    };
    tokio::spawn(attempts).await.unwrap()
}

/// Runs contenders side by side, each on a task of its own.
pub(crate) async fn together<C: Contender>(contenders: Vec<C>, length: Duration) -> Vec<u64> {
    let shared = Arc::new((AtomicBool::new(false), AtomicU64::new(0)));
    let tasks = contenders.into_iter().map(|mut contender| {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let (over, done) = &*shared;
            while !over.load(Ordering::Relaxed) {
                let held = contender.take().await;
                contender.give_back(held).await;
                done.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let (over, done) = &*shared;
    tokio::time::sleep(BEGIN).await;
    let (before, begun) = (done.load(Ordering::Relaxed), Instant::now());
    tokio::time::sleep(length).await;
    let (counted, length) = (done.load(Ordering::Relaxed) - before, begun.elapsed());
    over.store(true, Ordering::Relaxed);
    future::try_join_all(tasks).await.unwrap();
    vec![counted, nanos(length), done.load(Ordering::Relaxed)]
}

pub(crate) fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap()
}
