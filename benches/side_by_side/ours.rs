//! The side of this library.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use lock_recipes::{
    DistributedLock, InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphore,
    LockGuard, LockOptions, Member, MultiLock, SemaphorePermit, Session, ZooKeeper,
};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::crowd::{self, Crowd};
use super::loops::{Contender, cycles, each, nanos, together};
use super::work::{Place, SHARED, Work};

const SESSION_TIMEOUT: Duration = Duration::from_secs(40);
/// How many contenders join at a time. Each requests a listing, and a server keeps in memory what
/// its clients have not read.
const AT_ONCE: usize = 200;
/// The interval between two reads of the queue's length.
const ASK_AGAIN: Duration = Duration::from_millis(5);
const RANDOM_SEED: u64 = 7;

type Lock = Arc<dyn DistributedLock>;

#[derive(Default)]
pub(crate) struct Ours {
    /// Sessions by the server that they are connected to. They stay open for all measurements.
    sessions: HashMap<String, Vec<Session>>,
    held: Option<LockGuard>,
    waiters: Vec<JoinHandle<()>>,
    crowd: Option<Crowd>,
    crowd_sessions: Vec<Session>,
}

impl Ours {
    pub(crate) async fn perform(&mut self, work: Work, place: &Place) -> Vec<u64> {
        let length = place.length;
        match work {
            Work::Uncontended => {
                let lock = mutex(&self.sessions(&place.at, 1).await[0], &place.path);
                cycles(OneLock(lock), length).await
            }
            Work::Set { members } => {
                let session = &self.sessions(&place.at, 1).await[0];
                cycles(OneLock(set(session, &place.path, members)), length).await
            }
            Work::Permit { permits } => self.permit(place, permits).await,
            Work::Contended { sessions } => {
                let sessions = self.sessions(&place.at, sessions).await;
                let locks = sessions.iter();
                let locks = locks.map(|it| OneLock(mutex(it, &place.path)));
                together(locks.collect(), length).await
            }
            Work::Local {
                contenders,
                handoffs,
            } => {
                let session = &self.sessions(&place.at, 1).await[0];
                let options = LockOptions::new().local_handoffs(handoffs);
                let lock = InterProcessMutex::with_options(session, &place.path, &options);
                let lock: Lock = Arc::new(lock.unwrap());
                let locks = (0..contenders).map(|_| OneLock(Arc::clone(&lock)));
                together(locks.collect(), length).await
            }
            Work::Parallel { locks } => {
                let session = &self.sessions(&place.at, 1).await[0];
                let path = |index| format!("{}/{index}", place.path);
                let locks = (0..locks).map(|index| OneLock(mutex(session, &path(index))));
                together(locks.collect(), length).await
            }
            Work::ReadWrite {
                sessions,
                tasks,
                write_percent,
                shares,
            } => {
                let sessions = self.sessions(&place.at, sessions).await;
                let shared = if shares { SHARED } else { Duration::ZERO };
                let tasks = read_write(sessions, tasks, &place.path, shared, write_percent);
                together(tasks, length).await
            }
            Work::Try => self.tries(place).await,
            Work::Hold => {
                // The holder uses another session than the one that tries.
                let lock = mutex(&self.sessions(&place.at, 2).await[1], &place.path);
                self.held = Some(lock.acquire().await.unwrap());
                Vec::new()
            }
            Work::Free => {
                self.held.take().unwrap().release().await.unwrap();
                Vec::new()
            }
            Work::Queue {
                sessions, waiters, ..
            } => {
                self.queue(place, sessions, waiters).await;
                Vec::new()
            }
            Work::Drain => self.drain().await,
            Work::Crowd { .. } | Work::Release | Work::Disperse => self.in_crowd(work, place).await,
            Work::Read => unreachable!("not compared: {work:?}"),
        }
    }

    async fn in_crowd(&mut self, work: Work, place: &Place) -> Vec<u64> {
        match work {
            Work::Crowd { waiters } => self.gather(place, waiters + 1).await,
            Work::Release => return self.crowd.as_ref().unwrap().release_one().await,
            _ => {
                self.crowd.take().unwrap().disperse();
                for session in self.crowd_sessions.drain(..) {
                    session.close().await;
                }
            }
        }
        Vec::new()
    }

    async fn gather(&mut self, place: &Place, contenders: usize) {
        for _ in 0..contenders {
            let options = ZooKeeper::builder().session_timeout(crowd::SESSION_TIMEOUT);
            let session = options.connect(&place.at).await.unwrap();
            self.crowd_sessions.push(session);
        }
        let locks = self.crowd_sessions.iter();
        let locks = locks.map(|session| OneLock(mutex(session, &place.path)));
        self.crowd = Some(Crowd::gather(locks.collect()).await);
    }

    async fn permit(&mut self, place: &Place, permits: usize) -> Vec<u64> {
        let session = &self.sessions(&place.at, 1).await[0];
        let semaphore = InterProcessSemaphore::new(session, &place.path, permits);
        cycles(OnePermit(semaphore.unwrap()), place.length).await
    }

    async fn tries(&mut self, place: &Place) -> Vec<u64> {
        let lock = mutex(&self.sessions(&place.at, 1).await[0], &place.path);
        let attempt = move || {
            let lock = Arc::clone(&lock);
            async move {
                let granted = lock.try_acquire().await.unwrap();
                assert!(granted.is_none(), "granted what another session holds");
            }
        };
        each(attempt, place.length).await
    }

    async fn queue(&mut self, place: &Place, sessions: usize, waiters: usize) {
        let sessions = self.sessions(&place.at, sessions).await.to_vec();
        let locks: Vec<_> = sessions.iter().map(|it| mutex(it, &place.path)).collect();
        self.held = Some(locks[0].acquire().await.unwrap());
        for (index, lock) in (0..waiters).zip(locks.iter().cycle()) {
            let lock = Arc::clone(lock);
            self.waiters.push(tokio::spawn(async move {
                let held = lock.acquire().await.unwrap();
                held.release().await.unwrap();
            }));
            if (index + 1) % AT_ONCE == 0 {
                while length(&sessions[0], &place.path).await < index + 2 {
                    tokio::time::sleep(ASK_AGAIN).await;
                }
            }
        }
    }

    async fn drain(&mut self) -> Vec<u64> {
        let begun = Instant::now();
        self.held.take().unwrap().release().await.unwrap();
        let waiters = std::mem::take(&mut self.waiters);
        let count = u64::try_from(waiters.len()).unwrap();
        for waiter in waiters {
            waiter.await.unwrap();
        }
        vec![count, nanos(begun.elapsed()), count]
    }

    /// Returns this many sessions with that server.
    async fn sessions(&mut self, at: &str, count: usize) -> &[Session] {
        let sessions = self.sessions.entry(at.to_owned()).or_default();
        while sessions.len() < count {
            let options = ZooKeeper::builder().session_timeout(SESSION_TIMEOUT);
            sessions.push(options.connect(at).await.unwrap());
        }
        &sessions[..count]
    }

    pub(crate) async fn close(self) {
        for session in self.sessions.into_values().flatten() {
            session.close().await;
        }
    }
}

fn mutex(session: &Session, path: &str) -> Lock {
    Arc::new(InterProcessMutex::new(session, path).unwrap())
}

fn set(session: &Session, path: &str, members: usize) -> Lock {
    let members = (0..members).map(|member| Member::mutex(format!("{path}/{member}")));
    Arc::new(MultiLock::new(session, members).unwrap())
}

/// The number of contenders, including the holder.
async fn length(session: &Session, path: &str) -> usize {
    let directory = session.read(path).await.unwrap();
    usize::try_from(directory.unwrap().1.children).unwrap()
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

struct OnePermit(InterProcessSemaphore);

impl Contender for OnePermit {
    type Held = SemaphorePermit;

    async fn take(&mut self) -> SemaphorePermit {
        self.0.acquire().await.unwrap()
    }

    async fn give_back(&mut self, held: SemaphorePermit) {
        held.release().await.unwrap();
    }
}

/// So many tasks of each session, whose readers share a node for so long.
fn read_write(
    sessions: &[Session],
    tasks: usize,
    path: &str,
    shared: Duration,
    write_percent: u8,
) -> Vec<ReadWrite> {
    let options = LockOptions::new().shared_reads(shared);
    let tasks = sessions.iter().flat_map(|it| (0..tasks).map(move |_| it));
    let both = tasks.zip(RANDOM_SEED..);
    both.map(|(session, seed)| ReadWrite::new(session, path, &options, write_percent, seed))
        .collect()
}

struct ReadWrite {
    /// The locks for reading and for writing.
    locks: [Lock; 2],
    write_percent: u8,
    random: fastrand::Rng,
}

impl ReadWrite {
    fn new(
        session: &Session,
        path: &str,
        options: &LockOptions,
        write_percent: u8,
        seed: u64,
    ) -> Self {
        let lock = InterProcessReadWriteLock::with_options(session, path, options).unwrap();
        Self {
            locks: [Arc::new(lock.read_lock()), Arc::new(lock.write_lock())],
            write_percent,
            random: fastrand::Rng::with_seed(seed),
        }
    }
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
