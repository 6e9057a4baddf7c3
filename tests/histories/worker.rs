//! A process of contenders: takes locks of all kinds, permits and terms at random, and records what it
//! sees.

mod attempt;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fastrand::Rng;
use futures::future::join_all;
use lock_recipes::{
    DistributedLock, ElectionLayout, Error, InterProcessMutex, InterProcessReadWriteLock,
    InterProcessSemaphore, LeaderElection, LockKind, Member, MultiLock, ReadGuard, Session,
    SessionOptions, WriteGuard,
};
use test_rig::history::{AttemptId, Journal, Step, monotonic_now};
use tokio::task::spawn_blocking;

use crate::orders::{ELECTION, LEASES, LOCKS, Orders, PERMITS, SEMAPHORE, path};
use crate::stage::PATIENCE;
use crate::talk::{listen, say};

use attempt::{Attempt, Patience};

/// Servers grant 400 ms or more, but a busy machine needs more to keep any session.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(1);
/// Contenders of one process, which share its session.
const TASKS: u64 = 6;
/// The message of a worker that has finished its scenes.
pub(crate) const OVER: &str = "over";

/// The session timeout of contenders there. A database takes most of a second to start again, and a cluster to elect,
/// and a holder that is halted meanwhile must not have lost its lock by then.
pub(crate) fn session_timeout(address: &str) -> Duration {
    match address.split_once("://") {
        Some(("postgres" | "mysql", _)) => 2 * SESSION_TIMEOUT,
        Some(("etcd", members)) if members.contains(',') => 2 * SESSION_TIMEOUT,
        _ => SESSION_TIMEOUT,
    }
}

/// Plays the scenes, and again for each new order.
pub(crate) async fn work(mut orders: Orders) {
    // A server that is down or paused now answers later.
    let session = loop {
        match connect(&orders.address).await {
            Ok(session) => break session,
            Err(error) => {
                let late = orders.scenes.length() + PATIENCE;
                assert!(elapsed(&orders) < late, "{error}");
            }
        }
    };
    loop {
        play(orders, &session).await;
        say(OVER);
        // On a thread of its own, so that heartbeats go on.
        let next = spawn_blocking(listen).await.unwrap();
        match next.parse() {
            Ok(next) => orders = next,
            Err(()) => break session.close().await,
        }
    }
}

async fn connect(address: &str) -> Result<Session, Error> {
    let options = SessionOptions::new().session_timeout(session_timeout(address));
    lock_recipes::connect_with(address, options).await
}

async fn play(orders: Orders, session: &Session) {
    let worker = Arc::new(Worker {
        journal: Journal::open(&orders.journal).unwrap(),
        session: session.clone(),
        orders,
        attempts: AtomicU32::new(0),
    });
    let tasks = (0..TASKS).map(|task| {
        let random = Rng::with_seed(worker.orders.seed.wrapping_add(task << 32));
        tokio::spawn(contend(Arc::clone(&worker), random))
    });
    join_all(tasks).await.into_iter().for_each(Result::unwrap);
}

fn elapsed(orders: &Orders) -> Duration {
    Duration::from_nanos(monotonic_now().saturating_sub(orders.start))
}

struct Worker {
    orders: Orders,
    session: Session,
    journal: Journal,
    attempts: AtomicU32,
}

async fn contend(worker: Arc<Worker>, mut random: Rng) {
    loop {
        let scene =
            elapsed(&worker.orders).as_millis() / u128::from(worker.orders.scenes.length_ms);
        let scene = u64::try_from(scene).unwrap();
        if scene >= worker.orders.scenes.count {
            return;
        }
        let side_by_side = worker.orders.scenes.side_by_side;
        let history = scene * side_by_side + random.u64(..side_by_side);
        let [a, b, s] = LOCKS.map(|lock| path(history, lock));
        let mutex = |path: &str| vec![(LockKind::Mutex, path.to_owned())];
        match random.u64(..14) {
            0 | 1 => worker.take(mutex(&a), &mut random).await,
            2 => worker.take(mutex(&b), &mut random).await,
            3..=5 => worker.take(vec![(LockKind::Read, s)], &mut random).await,
            6 => worker.take(vec![(LockKind::Write, s)], &mut random).await,
            7 => worker.write_and_downgrade(&s, &mut random).await,
            8 => {
                worker
                    .take([mutex(&b), mutex(&a)].concat(), &mut random)
                    .await
            }
            9 => {
                let shared = [(LockKind::Mutex, a), (LockKind::Read, s)];
                worker.take(shared.to_vec(), &mut random).await;
            }
            10 | 11 => worker.take_permits(history, &mut random).await,
            _ => worker.campaign(history, &mut random).await,
        }
    }
}

impl Worker {
    fn note(&self, at: u64, id: AttemptId, step: Step) {
        self.journal.step(at, id, step).unwrap();
    }

    fn invoke(&self, wants: Vec<(LockKind, String)>, party: Option<u64>) -> Attempt<'_> {
        let (worker, number) = (
            self.orders.worker,
            self.attempts.fetch_add(1, Ordering::Relaxed),
        );
        let party = party.unwrap_or_else(|| (u64::from(worker) << 32) | u64::from(number));
        let at = monotonic_now();
        let members = (0..).zip(wants).map(|(member, (kind, path))| {
            let id = AttemptId {
                worker,
                number,
                member,
            };
            let invoked = Step::Invoked {
                kind,
                permits: match kind {
                    LockKind::Permit => PERMITS,
                    _ => 1,
                },
                party,
                path: path.clone(),
            };
            self.note(at, id, invoked);
            (id, kind, path)
        });
        let members = members.collect();
        Attempt {
            worker: self,
            members,
        }
    }

    fn lock(&self, wants: &[(LockKind, String)]) -> Box<dyn DistributedLock> {
        if let [(kind, path)] = wants {
            let shared = || InterProcessReadWriteLock::new(&self.session, path).unwrap();
            return match kind {
                LockKind::Mutex => Box::new(InterProcessMutex::new(&self.session, path).unwrap()),
                LockKind::Read => Box::new(shared().read_lock()),
                LockKind::Write => Box::new(shared().write_lock()),
                LockKind::Permit | LockKind::Latch => unreachable!("not taken as a lock"),
            };
        }
        let members = wants.iter();
        let members = members.map(|(kind, path)| Member::new(path.clone(), *kind));
        Box::new(MultiLock::new(&self.session, members).unwrap())
    }

    async fn take(&self, wants: Vec<(LockKind, String)>, random: &mut Rng) {
        let lock = self.lock(&wants);
        let attempt = self.invoke(wants, None);
        let patience = Patience::random(random);
        let outcome = patience.wait(lock.acquire(), lock.try_acquire()).await;
        attempt.play(outcome, random).await;
    }

    /// Takes one permit, or several at once.
    async fn take_permits(&self, history: u64, random: &mut Rng) {
        let count = *random.choice(&[1, 1, 2, 3]).unwrap();
        let permits = usize::try_from(PERMITS).unwrap();
        let semaphore =
            InterProcessSemaphore::new(&self.session, &path(history, SEMAPHORE), permits).unwrap();
        // Each permit is a member of the attempt.
        let wants = vec![(LockKind::Permit, path(history, LEASES)); count];
        let attempt = self.invoke(wants, None);
        let acquire = semaphore.acquire_many(count).unwrap();
        let try_acquire = semaphore.try_acquire_many(count).unwrap();
        let patience = Patience::random(random);
        let outcome = patience.wait(acquire, try_acquire).await;
        attempt.play(outcome, random).await;
    }

    /// Campaigns for a term.
    async fn campaign(&self, history: u64, random: &mut Rng) {
        let (layout, kind) = match history % 2 {
            0 => (ElectionLayout::LeaderSelector, LockKind::Mutex),
            _ => (ElectionLayout::LeaderLatch, LockKind::Latch),
        };
        let path = path(history, ELECTION);
        let id = self.orders.worker.to_string();
        let election = LeaderElection::with_layout(&self.session, &path, &id, layout).unwrap();
        let attempt = self.invoke(vec![(kind, path)], None);
        let patience = Patience::random(random);
        let outcome = patience.wait(election.campaign(), election.try_campaign());
        attempt.play(outcome.await, random).await;
    }

    async fn write_and_downgrade(&self, path: &str, random: &mut Rng) {
        let lock = InterProcessReadWriteLock::new(&self.session, path).unwrap();
        let writing = self.invoke(vec![(LockKind::Write, path.to_owned())], None);
        let party = (u64::from(self.orders.worker) << 32) | u64::from(writing.members[0].0.number);
        let writer: Option<WriteGuard> = writing.outcome(lock.write().await);
        let Some(writer) = writer else {
            return;
        };
        if !writing.hold(&writer, random).await {
            return writing.let_go(writer.into(), false, random).await;
        }
        let reading = self.invoke(vec![(LockKind::Read, path.to_owned())], Some(party));
        let held = writing.step_if_valid(&writer, &Step::Releasing);
        let reader: Result<ReadGuard, _> = writer.downgrade().await;
        writing.step(monotonic_now(), &Step::LetGo);
        if let Some(reader) = reading.outcome(reader) {
            let is_held = held && reading.hold(&reader, random).await;
            reading.let_go(reader.into(), is_held, random).await;
        }
    }
}
