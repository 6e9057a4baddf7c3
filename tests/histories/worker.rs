//! A process of contenders: takes locks of all kinds at random and records what it sees.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fastrand::Rng;
use futures::future::join_all;
use lock_recipes::{
    AcquireError, ConnectError, DistributedLock, InterProcessMutex, InterProcessReadWriteLock,
    LockGuard, LockKind, Member, MultiLock, ReadGuard, ReleaseOutcome, Session, SessionOptions,
    WriteGuard,
};
use recipes_testing::history::{AttemptId, Journal, Step, monotonic_now};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use crate::orders::{LOCKS, Orders, path, register};
use crate::talk::{listen, say};

/// Servers grant 400 ms or more, but a busy machine needs more to keep any session.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(1);
/// Contenders of one process, which share its session.
const TASKS: u64 = 6;
/// The message of a worker that has finished its scenes.
pub(crate) const OVER: &str = "over";
/// How often a holder checks whether it still holds the lock.
const LOOK_EVERY: Duration = Duration::from_millis(3);

/// The session timeout of contenders there. A database takes most of a second to start again, and a holder
/// that is halted meanwhile must not have lost its lock by then.
pub(crate) fn session_timeout(address: &str) -> Duration {
    match address.split_once("://") {
        Some(("postgres" | "mysql", _)) => 2 * SESSION_TIMEOUT,
        _ => SESSION_TIMEOUT,
    }
}

/// Plays the scenes, and again for each new order.
pub(crate) async fn work(mut orders: Orders) {
    // A server that is down or paused now answers later.
    let session = loop {
        match connect(&orders.address).await {
            Ok(session) => break session,
            Err(error) => assert!(elapsed(&orders) < orders.scenes.length(), "{error}"),
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

async fn connect(address: &str) -> Result<Session, ConnectError> {
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

/// How long a contender waits.
enum Patience {
    Endless,
    Until(Duration),
    /// The future is dropped after this time.
    Dropped(Duration),
    Try,
}

impl Patience {
    fn random(random: &mut Rng) -> Self {
        let within = Duration::from_millis(random.u64(..200));
        match random.u64(..10) {
            0 => Self::Try,
            1 => Self::Dropped(within),
            2 | 3 => Self::Until(within),
            _ => Self::Endless,
        }
    }
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
        match random.u64(..10) {
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
            _ => {
                let shared = [(LockKind::Mutex, a), (LockKind::Read, s)];
                worker.take(shared.to_vec(), &mut random).await;
            }
        }
    }
}

/// The locks that one attempt wants, and the ids under which it is recorded.
struct Attempt<'a> {
    worker: &'a Worker,
    members: Vec<(AttemptId, LockKind, String)>,
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
            };
        }
        let members = wants.iter().map(|(kind, path)| match kind {
            LockKind::Mutex => Member::mutex(path),
            LockKind::Read => Member::read(path),
            LockKind::Write => Member::write(path),
        });
        Box::new(MultiLock::new(&self.session, members).unwrap())
    }

    async fn take(&self, wants: Vec<(LockKind, String)>, random: &mut Rng) {
        let lock = self.lock(&wants);
        let attempt = self.invoke(wants, None);
        let outcome = match Patience::random(random) {
            Patience::Endless => lock.acquire().await.map(Some),
            Patience::Until(within) => lock.acquire().timeout(within).await.map(Some),
            Patience::Dropped(within) => match timeout(within, lock.acquire()).await {
                Ok(outcome) => outcome.map(Some),
                Err(_) => Ok(None),
            },
            Patience::Try => lock.try_acquire().await,
        };
        if let Some(guard) = attempt.outcome(outcome) {
            let is_held = attempt.hold(&guard, random).await;
            attempt.let_go(guard, is_held, random).await;
        }
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
        let reader = reader.map_err(|error| error.source);
        if let Some(reader) = reading.outcome(reader) {
            let is_held = held && reading.hold(&reader, random).await;
            reading.let_go(reader.into(), is_held, random).await;
        }
    }
}

impl Attempt<'_> {
    fn step(&self, at: u64, step: &Step) {
        for (id, ..) in &self.members {
            self.worker.note(at, *id, step.clone());
        }
    }

    /// Records a step that claims that the guard is valid, or else that it is lost.
    fn step_if_valid(&self, guard: &LockGuard, step: &Step) -> bool {
        let at = monotonic_now();
        let is_valid = guard.is_valid();
        if is_valid {
            self.step(at, step);
        } else {
            self.step(monotonic_now(), &Step::Lost);
        }
        is_valid
    }

    /// Records how the acquire ended. A guard is recorded if it is valid.
    fn outcome<G, L>(&self, outcome: Result<G, AcquireError>) -> Option<L>
    where
        G: Into<Option<L>>,
        L: AsGuard,
    {
        let at = monotonic_now();
        let Ok(Some(guard)) = outcome.map(Into::into) else {
            self.step(at, &Step::Ended);
            return None;
        };
        let granted = guard.as_guard();
        if !granted.is_valid() {
            self.step(monotonic_now(), &Step::Lost);
            return Some(guard);
        }
        for member in granted.members() {
            let mut members = self.members.iter();
            let (id, ..) = members.find(|(.., path)| *path == member.path).unwrap();
            let token = member.fencing_token.as_i64();
            let node = member.node_path;
            self.worker.note(at, *id, Step::Granted { token, node });
        }
        Some(guard)
    }

    /// Holds for a while and checks the guard. True if it was valid until the end.
    async fn hold(&self, guard: &LockGuard, random: &mut Rng) -> bool {
        if !guard.is_valid() {
            return false;
        }
        let write = self.write(guard);
        let stay = async {
            write.await;
            for _ in 0..random.u64(..5) {
                sleep(LOOK_EVERY).await;
                if !self.step_if_valid(guard, &Step::Valid) {
                    return false;
                }
            }
            true
        };
        tokio::select! {
            biased;
            _ = guard.lost() => {
                self.step(monotonic_now(), &Step::Lost);
                false
            }
            is_held = stay => is_held,
        }
    }

    /// Writes its tokens under the exclusive locks, if they are still held then.
    async fn write(&self, guard: &LockGuard) {
        let mut transaction = guard.transaction();
        for member in guard.members() {
            let is_own = |it: &&(AttemptId, LockKind, String)| it.2 == member.path;
            let own = self.members.iter().find(is_own).unwrap();
            if own.1 != LockKind::Read {
                let token = member.fencing_token.to_string();
                transaction = transaction.set(register(&member.path), token);
            }
        }
        // The log of the servers shows whether the commit was right.
        transaction.commit().await.ok();
    }

    async fn let_go(&self, guard: LockGuard, is_held: bool, random: &mut Rng) {
        if is_held {
            self.step_if_valid(&guard, &Step::Releasing);
        }
        if random.u64(..5) == 0 {
            drop(guard);
            return self.step(monotonic_now(), &Step::LetGo);
        }
        let end = match guard.release().await {
            Ok(ReleaseOutcome::Released) if is_held => Step::Released,
            _ => Step::LetGo,
        };
        self.step(monotonic_now(), &end);
    }
}

trait AsGuard {
    fn as_guard(&self) -> &LockGuard;
}

impl AsGuard for LockGuard {
    fn as_guard(&self) -> &LockGuard {
        self
    }
}

impl AsGuard for WriteGuard {
    fn as_guard(&self) -> &LockGuard {
        self
    }
}

impl AsGuard for ReadGuard {
    fn as_guard(&self) -> &LockGuard {
        self
    }
}
