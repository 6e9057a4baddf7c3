//! The sides that are compared: what each can do, and those whose clients run in this process.

use std::time::Duration;

use futures::future::{LocalBoxFuture, try_join_all};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::contest::contest;
use super::counts;
use super::loops::{Contender, cycles, each, nanos, together};
use super::work::{HOLD, PAUSE, Place, Work};

const RANDOM_SEED: u64 = 7;

/// One of the locks that are compared.
pub(crate) trait Side {
    /// The heading of its column.
    fn name(&self) -> &'static str;

    /// Whether it takes part in this work.
    fn does(&self, work: Work) -> bool;

    /// After this it is as fast as it gets.
    fn warm_up(&self) -> Duration {
        counts::LENGTH
    }

    /// Does the work and returns its figures.
    ///
    /// Panics if it fails, because work that was not done cannot be compared.
    fn perform<'a>(&'a mut self, work: Work, place: &'a Place) -> LocalBoxFuture<'a, Vec<u64>>;

    /// Ends its sessions.
    fn close(self: Box<Self>) -> LocalBoxFuture<'static, ()>;
}

/// A lock as one client sees it.
pub(crate) trait Lock: Contender + Clone {
    /// Tries once, and returns whether another client has it.
    fn is_refused(&self) -> impl Future<Output = bool> + Send;
}

/// A task that reads and writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskOf {
    pub(crate) client: usize,
    /// Among the tasks of all clients.
    pub(crate) number: usize,
    /// Whether its client's readers share a node.
    pub(crate) shares: bool,
}

/// How one side's clients in this process come to their locks. They stay connected for all
/// measurements.
pub(crate) trait Locks: 'static {
    type Lock: Lock;

    fn does(&self, work: Work) -> bool;

    /// The lock with this name, as the client with this number sees it.
    async fn lock(&mut self, client: usize, name: &str, place: &Place) -> Self::Lock;

    /// The client that takes this one of the locks that are taken in parallel.
    fn client_in_parallel(&self, _lock: usize) -> usize {
        0
    }

    /// The locks for reading and for writing, as a task of a client sees them.
    async fn pair(&mut self, _task: TaskOf, _place: &Place) -> [Self::Lock; 2] {
        unreachable!("it does not take part in this")
    }

    /// Several locks that are taken together.
    async fn set(&mut self, _members: usize, _place: &Place) -> Self::Lock {
        unreachable!("it does not take part in this")
    }

    /// How many hold this lock or wait for it.
    async fn contenders(&mut self, _place: &Place) -> usize {
        unreachable!("it does not take part in this")
    }

    /// The figures of round trips that do nothing else.
    async fn round_trips(&mut self, _place: &Place) -> Vec<u64> {
        unreachable!("it does not take part in this")
    }

    async fn close(self);
}

/// A side whose clients run in this process.
pub(crate) struct InProcess<L: Locks> {
    name: &'static str,
    locks: L,
    held: Option<(L::Lock, <L::Lock as Contender>::Held)>,
    waiters: Vec<JoinHandle<()>>,
}

impl<L: Locks> InProcess<L> {
    pub(crate) fn boxed(name: &'static str, locks: L) -> Box<dyn Side> {
        Box::new(Self {
            name,
            locks,
            held: None,
            waiters: Vec::new(),
        })
    }

    async fn work(&mut self, work: Work, place: &Place) -> Vec<u64> {
        let (length, name, locks) = (place.length, &place.lock, &mut self.locks);
        match work {
            Work::RoundTrip => locks.round_trips(place).await,
            Work::Uncontended => cycles(locks.lock(0, name, place).await, length).await,
            Work::Set { members } => cycles(locks.set(members, place).await, length).await,
            Work::Hold => {
                // The holder is another client than the one that tries.
                let mut lock = locks.lock(1, name, place).await;
                let held = lock.take().await;
                self.held = Some((lock, held));
                Vec::new()
            }
            Work::Try => {
                let lock = locks.lock(0, name, place).await;
                let attempt = move || {
                    let lock = lock.clone();
                    async move {
                        let refused = lock.is_refused().await;
                        assert!(refused, "granted what another session holds");
                    }
                };
                each(attempt, length).await
            }
            Work::Free => {
                let (mut lock, held) = self.held.take().unwrap();
                lock.give_back(held).await;
                Vec::new()
            }
            Work::Saturated { sessions } => {
                let contenders = self.one_each(sessions, place).await;
                let none = [Duration::ZERO; 2];
                contest(contenders, none, length).await.to_figures()
            }
            Work::Paced { sessions } => {
                let contenders = self.one_each(sessions, place).await;
                contest(contenders, [HOLD, PAUSE], length)
                    .await
                    .to_figures()
            }
            Work::Queue { sessions, waiters } => self.queue(sessions, waiters, place).await,
            Work::Drain { .. } => self.drain().await,
            Work::Parallel { locks: count } => {
                let mut apart = Vec::new();
                for lock in 0..count {
                    let client = locks.client_in_parallel(lock);
                    apart.push(locks.lock(client, &format!("{name}/{lock}"), place).await);
                }
                together(apart, length).await
            }
            Work::ReadWrite {
                sessions,
                tasks,
                write_percent,
                shares,
            } => {
                let mut contenders = Vec::new();
                for (number, seed) in (0..sessions * tasks).zip(RANDOM_SEED..) {
                    let client = number / tasks;
                    let task = TaskOf {
                        client,
                        number,
                        shares,
                    };
                    let locks = locks.pair(task, place).await;
                    contenders.push(ReadWrite::new(locks, write_percent, seed));
                }
                together(contenders, length).await
            }
        }
    }

    async fn queue(&mut self, sessions: usize, waiters: usize, place: &Place) -> Vec<u64> {
        let mut lock = self.locks.lock(0, &place.lock, place).await;
        let held = lock.take().await;
        self.held = Some((lock, held));
        for waiter in 0..waiters {
            let client = waiter % sessions;
            let mut lock = self.locks.lock(client, &place.lock, place).await;
            self.waiters.push(tokio::spawn(async move {
                let held = lock.take().await;
                lock.give_back(held).await;
            }));
        }
        while self.locks.contenders(place).await <= waiters {
            sleep(Duration::from_millis(10)).await;
        }
        Vec::new()
    }

    async fn drain(&mut self) -> Vec<u64> {
        let (mut lock, held) = self.held.take().unwrap();
        let begun = Instant::now();
        lock.give_back(held).await;
        let served = try_join_all(self.waiters.drain(..)).await.unwrap();
        let served = u64::try_from(served.len()).unwrap();
        vec![served, nanos(begun.elapsed()), served]
    }

    async fn one_each(&mut self, clients: usize, place: &Place) -> Vec<L::Lock> {
        let mut locks = Vec::new();
        for client in 0..clients {
            locks.push(self.locks.lock(client, &place.lock, place).await);
        }
        locks
    }
}

impl<L: Locks> Side for InProcess<L> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn does(&self, work: Work) -> bool {
        self.locks.does(work)
    }

    fn perform<'a>(&'a mut self, work: Work, place: &'a Place) -> LocalBoxFuture<'a, Vec<u64>> {
        Box::pin(self.work(work, place))
    }

    fn close(self: Box<Self>) -> LocalBoxFuture<'static, ()> {
        Box::pin(self.locks.close())
    }
}

struct ReadWrite<L> {
    /// The locks for reading and for writing.
    locks: [L; 2],
    write_percent: u8,
    random: fastrand::Rng,
}

impl<L> ReadWrite<L> {
    fn new(locks: [L; 2], write_percent: u8, seed: u64) -> Self {
        Self {
            locks,
            write_percent,
            random: fastrand::Rng::with_seed(seed),
        }
    }
}

impl<L: Lock> Contender for ReadWrite<L> {
    type Held = (usize, L::Held);

    async fn take(&mut self) -> Self::Held {
        let writes = self.random.u8(..100) < self.write_percent;
        let which = usize::from(writes);
        (which, self.locks[which].take().await)
    }

    async fn give_back(&mut self, (which, held): Self::Held) {
        self.locks[which].give_back(held).await;
    }
}
