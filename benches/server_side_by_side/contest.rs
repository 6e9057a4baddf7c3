//! Sessions that contend for one lock: how it passes between them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures::future;
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

use super::loops::{BEGIN, Contender, nanos};

/// What was counted while all took part.
#[derive(Debug)]
pub(crate) struct Contest {
    pub(crate) length: Duration,
    /// Grants to another session than the grant before.
    pub(crate) handed_on: u64,
    /// Grants of each session.
    pub(crate) served: Vec<u64>,
    /// Grants from the first to the last, also those that were not counted.
    pub(crate) all: u64,
    /// Nanoseconds from each call of release to the next grant.
    pub(crate) gaps: Vec<u64>,
}

impl Contest {
    /// Numbers, in which peers answer too: nanoseconds, grants handed on, all grants, number of
    /// sessions, the grants of each, and gaps.
    pub(crate) fn to_figures(&self) -> Vec<u64> {
        let sessions = u64::try_from(self.served.len()).unwrap();
        let mut figures = vec![nanos(self.length), self.handed_on, self.all, sessions];
        figures.extend(&self.served);
        figures.extend(&self.gaps);
        figures
    }
}

/// The grants so far. A holder changes it, so nobody waits for it.
#[derive(Default)]
struct Course {
    is_counted: bool,
    last: Option<usize>,
    released: Option<Instant>,
    all: u64,
    handed_on: u64,
    served: Vec<u64>,
    gaps: Vec<u64>,
}

impl Course {
    fn granted(&mut self, to: usize, at: Instant) {
        let released = self.released.take();
        let before = self.last.replace(to);
        self.all += 1;
        if !self.is_counted {
            return;
        }
        self.served[to] += 1;
        self.handed_on += u64::from(before != Some(to));
        self.gaps.extend(released.map(|it| nanos(at - it)));
    }
}

/// Lets contenders, each on a task of its own, hold the lock for this time and then pause.
pub(crate) async fn contest<C: Contender>(
    contenders: Vec<C>,
    [hold, pause]: [Duration; 2],
    length: Duration,
) -> Contest {
    let course = Arc::new(Mutex::new(Course {
        served: vec![0; contenders.len()],
        ..Course::default()
    }));
    let over = Arc::new(AtomicBool::new(false));
    let inside = Arc::new(AtomicU64::new(0));
    let tasks = contenders.into_iter().enumerate();
    let tasks = tasks.map(|(index, mut contender)| {
        let (course, over, inside) = (Arc::clone(&course), Arc::clone(&over), Arc::clone(&inside));
        tokio::spawn(async move {
            while !over.load(Ordering::Relaxed) {
                let held = contender.take().await;
                let now = Instant::now();
                assert_eq!(
                    inside.fetch_add(1, Ordering::SeqCst),
                    0,
                    "two hold the lock"
                );
                course.lock().await.granted(index, now);
                rest(hold).await;
                inside.fetch_sub(1, Ordering::SeqCst);
                course.lock().await.released = Some(Instant::now());
                contender.give_back(held).await;
                rest(pause).await;
            }
        })
    });
    let tasks: Vec<_> = tasks.collect();
    sleep(BEGIN).await;
    course.lock().await.is_counted = true;
    let begun = Instant::now();
    sleep(length).await;
    let (length, served, gaps, handed_on) = {
        let mut course = course.lock().await;
        course.is_counted = false;
        let (served, gaps) = (course.served.clone(), std::mem::take(&mut course.gaps));
        (begun.elapsed(), served, gaps, course.handed_on)
    };
    over.store(true, Ordering::Relaxed);
    future::try_join_all(tasks).await.unwrap();
    let all = course.lock().await.all;
    Contest {
        length,
        handed_on,
        all,
        served,
        gaps,
    }
}

async fn rest(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}
