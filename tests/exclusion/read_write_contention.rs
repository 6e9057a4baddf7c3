//! Readers and writers under contention, judged outside the lock's code.

use std::sync::{Arc, Mutex};

use futures::future::join_all;
use lock_recipes::{FencingToken, InterProcessReadWriteLock, LockGuard};
use test_rig::{TestEnsemble, on_every_ensemble};

const PATH: &str = "/locks/settings";
/// Of all tasks, times `CONTENTION`.
const OPERATIONS: usize = 480;
const SESSIONS: u32 = 8;
const TASKS: u32 = 16;

fn operations() -> u32 {
    let operations = OPERATIONS * test_rig::asked_for("CONTENTION", 1);
    operations.try_into().unwrap()
}

/// Judges visits independently of the lock.
#[derive(Debug, Default)]
struct Judge {
    readers: usize,
    writers: usize,
    readers_max: usize,
    /// Token, and whether it wrote, in the order of admission. The token is the number of the
    /// node's creation. Unlike the sequence it goes on rising if the server reaps the directory in a
    /// moment without contenders.
    admitted: Vec<(FencingToken, bool)>,
}

impl Judge {
    fn enter(&mut self, guard: &LockGuard, writes: bool) {
        let token = guard.members()[0].fencing_token;
        self.admitted.push((token, writes));
        if writes {
            self.writers += 1;
        } else {
            self.readers += 1;
        }
        self.readers_max = self.readers_max.max(self.readers);
        assert!(
            self.writers == 0 || (self.writers, self.readers) == (1, 0),
            "{self:?}"
        );
    }

    fn leave(&mut self, writes: bool) {
        if writes {
            self.writers -= 1;
        } else {
            self.readers -= 1;
        }
    }

    /// Writers come exactly in their place. Readers between two writers come in any order.
    fn check_order(&self) {
        for (place, (token, _)) in self.admitted.iter().enumerate().filter(|(_, it)| it.1) {
            let (before, after) = self.admitted.split_at(place);
            assert!(before.iter().all(|(it, _)| it < token), "overtook {token}");
            assert!(
                after[1..].iter().all(|(it, _)| it > token),
                "{token} overtook"
            );
        }
    }
}

async fn contend(lock: InterProcessReadWriteLock, judge: Arc<Mutex<Judge>>, task: u32) {
    for round in 0..operations() / TASKS {
        let writes = (round * TASKS + task) % 10 == 0;
        let guard: LockGuard = if writes {
            lock.write().await.unwrap().into()
        } else {
            lock.read().await.unwrap().into()
        };
        judge.lock().unwrap().enter(&guard, writes);
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        judge.lock().unwrap().leave(writes);
        guard.release().await.unwrap();
    }
}

on_every_ensemble!(eight_sessions_with_one_write_in_ten);

/// Curator `testBasic`.
async fn eight_sessions_with_one_write_in_ten(ensemble: TestEnsemble) {
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(ensemble.session().await);
    }
    let judge = Arc::new(Mutex::new(Judge::default()));
    let tasks = (0..TASKS).map(|task| {
        let session = &sessions[usize::try_from(task % SESSIONS).unwrap()];
        let lock = InterProcessReadWriteLock::new(session, PATH).unwrap();
        tokio::spawn(contend(lock, Arc::clone(&judge), task))
    });
    join_all(tasks).await.into_iter().for_each(Result::unwrap);
    {
        let judge = judge.lock().unwrap();
        assert_eq!(judge.admitted.len(), usize::try_from(operations()).unwrap());
        assert!(judge.readers_max > 1, "never two readers");
        judge.check_order();
    }
    assert!(ensemble.children(PATH).await.is_empty());
}
