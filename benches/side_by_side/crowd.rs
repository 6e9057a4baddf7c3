//! Waiters that have a session each, and hold in turn as the bench lets them.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::loops::{Contender, nanos};

/// The timeout of the sessions of a crowd. So heartbeats are so rare that none is counted.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(600);

/// A holder, and all that wait for it.
pub(crate) struct Crowd {
    /// One permit for each holder that may release.
    release: Arc<Semaphore>,
    /// One permit for each grant that nobody has seen yet.
    granted: Arc<Semaphore>,
    contenders: Vec<JoinHandle<()>>,
}

impl Crowd {
    /// Returns when the first contender holds. The others are on their way.
    pub(crate) async fn gather<C: Contender>(contenders: Vec<C>) -> Self {
        let mut crowd = Self {
            release: Arc::new(Semaphore::new(0)),
            granted: Arc::new(Semaphore::new(0)),
            contenders: Vec::new(),
        };
        for (index, contender) in contenders.into_iter().enumerate() {
            crowd.contenders.push(crowd.spawn(contender));
            if index == 0 {
                crowd.granted().await;
            }
        }
        crowd
    }

    fn spawn(&self, mut contender: impl Contender) -> JoinHandle<()> {
        let (release, granted) = (Arc::clone(&self.release), Arc::clone(&self.granted));
        tokio::spawn(async move {
            let held = contender.take().await;
            granted.add_permits(1);
            release.acquire().await.unwrap().forget();
            contender.give_back(held).await;
        })
    }

    async fn granted(&self) {
        self.granted.acquire().await.unwrap().forget();
    }

    /// Lets the holder release, and returns when the next one holds.
    pub(crate) async fn release_one(&self) -> Vec<u64> {
        let begun = Instant::now();
        self.release.add_permits(1);
        self.granted().await;
        vec![1, nanos(begun.elapsed()), 1]
    }

    /// Lets all that are left give up, instead of one release after the other.
    pub(crate) fn disperse(self) {
        self.contenders.iter().for_each(JoinHandle::abort);
    }
}
