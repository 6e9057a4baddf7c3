//! The side of this library.

use std::sync::Arc;
use std::time::Duration;

use lock_recipes::{
    DistributedLock, InterProcessMutex, InterProcessReadWriteLock, LockGuard, Member, MultiLock,
    Redis, Session,
};

use super::contest::contest;
use super::loops::{Contender, cycles, each, together};
use super::work::{HOLD, PAUSE, Place, Work};

/// So heartbeats are so rare that hardly any is counted.
const SESSION_TIMEOUT: Duration = Duration::from_secs(600);
const RANDOM_SEED: u64 = 7;

type Lock = Arc<dyn DistributedLock>;

#[derive(Default)]
pub(crate) struct Ours {
    /// They stay open for all measurements.
    sessions: Vec<Session>,
    held: Option<LockGuard>,
}

impl Ours {
    pub(crate) async fn perform(&mut self, work: Work, place: &Place) -> Vec<u64> {
        let length = place.length;
        let path = format!("/bench/{}", place.lock);
        match work {
            Work::Uncontended => {
                let lock = mutex(&self.sessions(1, place).await[0], &path);
                cycles(OneLock(lock), length).await
            }
            Work::Set { members } => {
                let session = &self.sessions(1, place).await[0];
                let members = (0..members).map(|member| Member::mutex(format!("{path}/{member}")));
                let set = MultiLock::new(session, members).unwrap();
                cycles(OneLock(Arc::new(set)), length).await
            }
            Work::Hold => {
                // The holder uses another session than the one that tries.
                let lock = mutex(&self.sessions(2, place).await[1], &path);
                self.held = Some(lock.acquire().await.unwrap());
                Vec::new()
            }
            Work::Try => {
                let lock = mutex(&self.sessions(1, place).await[0], &path);
                let attempt = move || {
                    let lock = Arc::clone(&lock);
                    async move {
                        let granted = lock.try_acquire().await.unwrap();
                        assert!(granted.is_none(), "granted what another session holds");
                    }
                };
                each(attempt, length).await
            }
            Work::Free => {
                self.held.take().unwrap().release().await.unwrap();
                Vec::new()
            }
            Work::Saturated { sessions } => {
                let locks = one_each(self.sessions(sessions, place).await, &path);
                let none = [Duration::ZERO; 2];
                contest(locks, none, length).await.to_figures()
            }
            Work::Paced { sessions } => {
                let locks = one_each(self.sessions(sessions, place).await, &path);
                contest(locks, [HOLD, PAUSE], length).await.to_figures()
            }
            Work::Parallel { locks } => {
                let session = &self.sessions(1, place).await[0];
                let locks = (0..locks).map(|it| OneLock(mutex(session, &format!("{path}/{it}"))));
                together(locks.collect(), length).await
            }
            Work::RoundTrip => unreachable!("not compared: {work:?}"),
            Work::ReadWrite {
                sessions,
                write_percent,
            } => {
                let sessions = self.sessions(sessions, place).await;
                let both = sessions.iter().zip(RANDOM_SEED..).map(|(session, seed)| {
                    let lock = InterProcessReadWriteLock::new(session, &path).unwrap();
                    ReadWrite {
                        locks: [Arc::new(lock.read_lock()), Arc::new(lock.write_lock())],
                        write_percent,
                        random: fastrand::Rng::with_seed(seed),
                    }
                });
                together(both.collect(), length).await
            }
        }
    }

    async fn sessions(&mut self, count: usize, place: &Place) -> &[Session] {
        while self.sessions.len() < count {
            let options = Redis::builder().new_server();
            let options = options.session_timeout(SESSION_TIMEOUT);
            self.sessions
                .push(options.connect(&place.url).await.unwrap());
        }
        &self.sessions[..count]
    }

    pub(crate) async fn close(self) {
        for session in self.sessions {
            session.close().await;
        }
    }
}

fn mutex(session: &Session, path: &str) -> Lock {
    Arc::new(InterProcessMutex::new(session, path).unwrap())
}

fn one_each(sessions: &[Session], path: &str) -> Vec<OneLock> {
    let locks = sessions.iter().map(|it| OneLock(mutex(it, path)));
    locks.collect()
}

struct OneLock(Lock);

impl Contender for OneLock {
    type Held = LockGuard;

    async fn take(&mut self) -> LockGuard {
        self.0.acquire().await.unwrap()
    }

    async fn give_back(&mut self, held: LockGuard) {
        held.release().await.unwrap();
    }
}

struct ReadWrite {
    /// The locks for reading and for writing.
    locks: [Lock; 2],
    write_percent: u8,
    random: fastrand::Rng,
}

impl Contender for ReadWrite {
    type Held = LockGuard;

    async fn take(&mut self) -> LockGuard {
        let writes = self.random.u8(..100) < self.write_percent;
        self.locks[usize::from(writes)].acquire().await.unwrap()
    }

    async fn give_back(&mut self, held: LockGuard) {
        held.release().await.unwrap();
    }
}
