//! One world from its beginning to its end.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once};
use std::time::Duration;

use futures::future::join_all;
use lock_recipes::{DistributedLock, Owner, Session};
use recipes_testing::{Checkpoint, Faults, MemoryEnsemble, Request};
use tokio::runtime::RngSeed;
use tokio::time::timeout;

use crate::judge::Judge;
use crate::plan::{Plan, Store};
use crate::{trouble, worker};

/// How long faults happen. Progress of the workers is not checked meanwhile.
const TROUBLED: Duration = Duration::from_secs(20);
/// How long the workers may take after the last fault: some rounds of waiting for each other.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long the clean-up may take after the last guard.
const TIDY: Duration = Duration::from_secs(30);
/// A clean-up that was tried in vain may take this long. Then no request may come for as long.
const QUIET: Duration = Duration::from_secs(10);

/// Owners that several workers act for.
pub(crate) const OWNERS: usize = 3;

thread_local! {
    static JUDGE: RefCell<Option<Arc<Mutex<Judge>>>> = const { RefCell::new(None) };
    static PANICKED: Cell<bool> = const { Cell::new(false) };
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) requests: Vec<(Duration, Request)>,
    pub(crate) story: Vec<String>,
    pub(crate) grants: usize,
    pub(crate) failure: Option<String>,
}

pub(crate) struct World {
    pub(crate) plan: Plan,
    pub(crate) ensemble: MemoryEnsemble,
    /// The store before anybody came.
    pub(crate) dawn: Checkpoint,
    /// The last number that the store gave out before it forgot.
    last_number: AtomicI64,
    pub(crate) owners: Vec<Owner>,
    judge: Arc<Mutex<Judge>>,
    sessions: Mutex<Vec<Session>>,
    /// Lock objects that are kept, if the plan has sprees.
    kept: Mutex<Vec<Box<dyn DistributedLock>>>,
    /// ZooKeeper sessions that their clients gave up while the ensemble had them alive.
    given_up: Mutex<BTreeSet<i64>>,
    is_calm: AtomicBool,
    next_party: AtomicU64,
}

impl World {
    pub(crate) fn judge(&self) -> MutexGuard<'_, Judge> {
        lock(&self.judge)
    }

    pub(crate) fn sessions(&self) -> Vec<Session> {
        lock(&self.sessions).clone()
    }

    /// Replaces a session by a new one. Returns the old one.
    pub(crate) fn replace(&self, index: usize) -> Session {
        let fresh = self.ensemble.session();
        self.keep_locks(index, &fresh);
        std::mem::replace(&mut lock(&self.sessions)[index], fresh)
    }

    fn keep_locks(&self, index: usize, session: &Session) {
        let paths = self.plan.paths.iter().filter(|_| self.plan.has_sprees);
        let locks = paths.map(|path| worker::lock_of(session, index, path, &self.plan));
        lock(&self.kept).extend(locks);
    }

    /// A number for an owner that is not shared.
    pub(crate) fn next_party(&self) -> u64 {
        self.next_party.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether several workers act for this owner.
    pub(crate) fn is_shared(&self, party: u64) -> bool {
        party < self.owners.len() as u64
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::Relaxed)
    }

    pub(crate) fn note_given_up(&self, session: i64) {
        lock(&self.given_up).insert(session);
    }

    /// The store is down, and will have what it had at the checkpoint.
    pub(crate) fn forget(&self, checkpoint: Checkpoint) {
        let session = |node: &String| self.ensemble.stat(node).map(|it| it.ephemeral_owner);
        let nodes = self.leftovers();
        let before = nodes.iter().cloned();
        let before = before.filter_map(|node| Some((session(&node)?, node)));
        let before = before.map(|(session, node)| (node, session)).collect();
        self.judge().stopped();
        // The clock of the next server is right. One that is behind may give out numbers again.
        let behind = self.ensemble.clock_is_behind_by();
        self.ensemble.set_clock_forward(behind);
        let number = self.ensemble.zxid();
        self.last_number.fetch_max(number, Ordering::Relaxed);
        let untold = self.judge().untold();
        self.ensemble.forget(checkpoint);
        // An operator looks again: of a deletion that is forgotten, and that the node's client has not
        // heard of, nobody knows. Those that have heard of one delete their nodes themselves.
        for node in untold {
            drop(self.ensemble.delete(&node));
        }
        self.judge().forgot(before);
    }

    /// Whether the numbers of a store that has forgotten have not caught up with those before, which
    /// they do with the first that follows the clock.
    pub(crate) fn may_repeat_numbers(&self) -> bool {
        self.ensemble.zxid() < self.last_number.load(Ordering::Relaxed)
    }

    fn calm_down(&self) {
        self.is_calm.store(true, Ordering::Relaxed);
        self.judge().tell(|| "calm".to_owned());
        self.ensemble.set_faults(Faults::default());
        self.ensemble.keep_replies();
        self.ensemble.resume();
        self.judge().went_on();
        self.ensemble.restart();
        self.judge().restarted();
        self.ensemble.retire_deposed();
        self.judge().leaders_changed("retired");
        // On Redis also clients that have not learned yet that their session has ended.
        let mut sessions = self.ensemble.sessions();
        sessions.extend(self.sessions().iter().filter_map(Session::session_id));
        for session in sessions {
            self.ensemble.reconnect(session);
            self.judge().reconnected(session);
        }
        // A session that is open again deletes the nodes of the ZooKeeper session that it gave up.
        // A client that was closed could not reach the ensemble.
        let given_up = std::mem::take(&mut *lock(&self.given_up));
        let any_closed = self.plan.troubles.contains(&crate::plan::Trouble::Close);
        for session in given_up.into_iter().filter(|_| any_closed) {
            self.ensemble.expire(session);
        }
    }

    fn leftovers(&self) -> Vec<String> {
        let nodes = |path: &&'static str| {
            let names = self.ensemble.children(path).into_iter();
            names
                .map(|name| format!("{path}/{name}"))
                .collect::<Vec<_>>()
        };
        self.plan.paths.iter().flat_map(nodes).collect()
    }

    /// After all others were closed: nobody keeps one alive.
    async fn expect_no_session_but(&self, last: &Session) {
        // One that was closed while it could not be reached lasts for its timeout.
        let gone = async {
            let is_other = |it: &i64| Some(*it) != last.session_id();
            while self.ensemble.sessions().iter().any(is_other) {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        if timeout(PATIENCE, gone).await.is_err() {
            let sessions = self.ensemble.sessions();
            self.judge().fail(format!("still alive: {sessions:x?}"));
        }
    }

    /// After the last guard: no node, no watch, no request.
    async fn expect_nothing_left(&self) {
        let gone = async {
            while !self.leftovers().is_empty() || self.ensemble.watch_count() > 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        if timeout(TIDY, gone).await.is_err() {
            let (nodes, watches) = (self.leftovers(), self.ensemble.watch_count());
            self.judge()
                .fail(format!("left behind: {nodes:?}, {watches} watches"));
        }
        // A clean-up that was tried in vain tries once more.
        tokio::time::sleep(QUIET).await;
        self.judge().drain();
        let before = self.judge().request_count();
        tokio::time::sleep(QUIET).await;
        self.judge().drain();
        let after = self.judge().request_count();
        if after > before {
            self.judge()
                .fail(format!("{} requests for nothing", after - before));
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs one world. `tells` keeps its story.
pub(crate) fn run(seed: u64, store: Store, tells: bool) -> Run {
    note_panics();
    PANICKED.set(false);
    let plan = Plan::new(seed, store);
    // A step of virtual time ends when no task has anything to do. Then everything is judged.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .rng_seed(RngSeed::from_bytes(&seed.to_le_bytes()))
        .on_thread_park(|| {
            JUDGE.with_borrow(|judge| judge.as_ref().map(|judge| lock(judge).step()));
        })
        .build()
        .unwrap();
    let judge = Arc::new(Mutex::new({
        let _inside = runtime.enter();
        Judge::new(&plan, plan.ensemble(), tells)
    }));
    JUDGE.set(Some(Arc::clone(&judge)));
    let lived = panic::catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(Box::pin(live(plan, Arc::clone(&judge))));
    }));
    let dropped = panic::catch_unwind(AssertUnwindSafe(|| drop(runtime)));
    JUDGE.set(None);
    let mut judge = lock(&judge);
    for payload in [lived.err(), dropped.err()].into_iter().flatten() {
        judge.fail(format!("panic: {}", message(&*payload)));
    }
    if PANICKED.get() {
        judge.fail("panic in a task".to_owned());
    }
    judge.verdict()
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|it| (*it).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}

/// The tasks of a session have no handle that would show a panic.
fn note_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            PANICKED.set(true);
            before(info);
        }));
    });
}

async fn live(plan: Plan, judge: Arc<Mutex<Judge>>) {
    let ensemble = lock(&judge).ensemble();
    for path in &plan.paths {
        ensemble.create(&worker::token_path(path), b"0").unwrap();
    }
    let dawn = ensemble.checkpoint();
    let sessions = (0..plan.sessions).map(|_| ensemble.session()).collect();
    let world = Arc::new(World {
        owners: (0..OWNERS).map(|_| Owner::new()).collect(),
        ensemble,
        dawn,
        last_number: AtomicI64::default(),
        judge,
        sessions: Mutex::new(sessions),
        kept: Mutex::default(),
        given_up: Mutex::default(),
        is_calm: AtomicBool::new(false),
        next_party: AtomicU64::new(OWNERS as u64),
        plan,
    });
    let sessions = world.sessions();
    let indexed = sessions.iter().enumerate();
    indexed.for_each(|(index, it)| world.keep_locks(index, it));
    let troubles = tokio::spawn(trouble::make(Arc::clone(&world)));
    let workers: Vec<_> = (0..world.plan.workers)
        .map(|number| tokio::spawn(worker::work(Arc::clone(&world), number)))
        .collect();
    let mut workers = Box::pin(join_all(workers));
    let mut done = timeout(TROUBLED, &mut workers).await.ok();
    world.calm_down();
    troubles.abort();
    if done.is_none() {
        done = timeout(PATIENCE, &mut workers).await.ok();
    }
    let Some(done) = done else {
        let tree = world.ensemble.tree();
        world.judge().fail(format!("workers hang\n{tree}"));
        return;
    };
    for error in done.into_iter().filter_map(Result::err) {
        world.judge().fail(format!("worker: {error}"));
    }
    lock(&world.kept).clear();
    world.expect_nothing_left().await;
    let mut sessions = world.sessions();
    let last = sessions.pop();
    join_all(sessions.iter().map(Session::close)).await;
    if let Some(last) = last {
        world.expect_no_session_but(&last).await;
        last.close().await;
    }
}
