//! One run: a contender holds, the subject comes through the proxy, and a waiter follows it.

mod trouble;

use std::fmt::Display;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures::future::{pending, poll_fn};
use lock_recipes::{
    ConnectError, Error, GuardState, LockGuard, ReleaseError, ReleaseOutcome, Session,
};
use recipes_core::SessionOptions;
use test_rig::{Cut, Direction, FaultProxy, Frame};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::arena::{Arena, check_order};
use crate::case::{Case, Dropped, First, Harm, Lifetime};
use crate::operator::Operator;
use crate::recipe::{Place, lock};
use crate::store::Servers;
use crate::words::Words;
use trouble::harm;
pub(crate) use trouble::transcript;

/// For all contenders except the subject. They are judges as well, so their sessions must not be
/// lost.
const STEADY_TIMEOUT: Duration = Duration::from_secs(40);
/// A run without a fault has set all watches long before.
const SETTLED_MAX: Duration = Duration::from_millis(300);
/// Within this time a live waiter is granted once no conflicting node is ahead (P5), and an
/// abandoned node is gone (P4). It covers the end of a session, a new one, and a busy machine.
const BOUND: Duration = Duration::from_secs(30);
/// How long a session may take to open, which is no promise, on a busy machine.
const OPEN_MAX: Duration = Duration::from_secs(60);
/// How long closing the subject's session may wait for its clean-up.
const CLOSE_MAX: Duration = Duration::from_secs(3);
const ASK_AGAIN: Duration = Duration::from_millis(2);

pub(crate) struct Stage {
    servers: Servers,
    before: Session,
    behind: Session,
    operator: Operator,
    runs: AtomicU64,
}

/// What a run has shown, apart from keeping the promises.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) frames: Vec<Frame>,
    pub(crate) has_struck: bool,
    /// Why the lock was lost while it was held.
    pub(crate) loss: Option<String>,
    /// The future was done before it was to be dropped.
    pub(crate) was_done: bool,
    /// The longest time from the end of the conflicting lock to the grant.
    pub(crate) longest_wait: Duration,
}

fn steady() -> SessionOptions {
    SessionOptions::new().session_timeout(STEADY_TIMEOUT)
}

fn failed<E: Display>(what: &str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}

impl Stage {
    pub(crate) async fn set(servers: Servers) -> Arc<Self> {
        let [address, ..] = servers.addresses();
        let steady = || servers.connect(&address, steady());
        let (before, behind) = (steady().await, steady().await);
        Arc::new(Self {
            before: before.expect("a session"),
            behind: behind.expect("a session"),
            operator: Operator::of(&servers).await,
            servers,
            runs: AtomicU64::new(0),
        })
    }

    pub(crate) fn store(&self) -> &'static str {
        self.servers.name()
    }

    pub(crate) fn words(&self) -> &'static Words {
        Words::of(&self.servers)
    }

    /// Runs a case in directories of its own. An error is a broken promise.
    pub(crate) async fn run(self: Arc<Self>, case: Case) -> Result<Shown, String> {
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        let directory = format!("/sweep/{number}");
        let [_, address, elsewhere] = self.servers.addresses();
        let proxy = self.servers.proxy(&address).await;
        let proxy = proxy.map_err(failed("no proxy"))?;
        let run = Run {
            before: case.recipe.before(&directory),
            subject: case.recipe.subject(&directory),
            behind: case.recipe.behind(&directory),
            arena: Arc::default(),
            stage: self,
            case: case.clone(),
        };
        let has_struck = AtomicBool::new(false);
        let played = tokio::select! {
            // Before the run, so that a fault that has struck is noted.
            biased;
            () = harm(&proxy, &case, &elsewhere, &has_struck) => Err("a harm does not end".to_owned()),
            played = run.play(&proxy) => played,
        };
        match played {
            Ok(shown) => Ok(Shown {
                has_struck: has_struck.into_inner(),
                frames: proxy.log(),
                ..shown
            }),
            Err(broken) => Err(format!("{broken}\n{}", transcript(&proxy.log()))),
        }
    }
}

struct Run {
    stage: Arc<Stage>,
    case: Case,
    before: Vec<Place>,
    subject: Vec<Place>,
    behind: Vec<Place>,
    arena: Arc<Arena>,
}

/// `None` if the future was dropped.
type Acquired = Result<Option<Arc<LockGuard>>, String>;

impl Run {
    async fn play(&self, proxy: &FaultProxy) -> Result<Shown, String> {
        let stage = &*self.stage;
        let held = lock(&stage.before, &self.before).acquire().await;
        let held = Arc::new(held.map_err(failed("before"))?);
        self.arena.enter("before", &self.before, &held)?;

        let options = SessionOptions::new()
            .session_timeout(self.case.lifetime.session_timeout())
            .connect_timeout(CLOSE_MAX);
        let begun = Instant::now();
        let session = loop {
            let address = proxy.connect_string();
            match stage.servers.connect(&address, options.clone()).await {
                Ok(session) => break session,
                Err(Error::Connect(ConnectError::TimedOut { .. }))
                    if begun.elapsed() < OPEN_MAX => {}
                Err(error) => return Err(failed("P5: no session")(error)),
            }
        };
        let acquiring = self.send_subject(&session);

        self.await_subject(&acquiring).await?;
        // The subject settles, unless the fault prevents it. Then it is caught half-way.
        let words = stage.words();
        settled(proxy, words.watching, &acquiring).await;
        if self.case.first == Some(First::Waiting) {
            proxy.cut_all(Cut::Reset);
            settled(proxy, words.watching_again, &acquiring).await;
        }
        let waiter = self.send_waiter();
        self.await_waiter(&waiter).await?;
        self.arena.leave("before");
        release(held, usize::MAX).await?;

        let shown = self.play_subject(acquiring).await?;
        let free = Instant::now();
        let waited = timeout(BOUND, waiter).await;
        let granted = waited.map_err(failed("P5: behind waits for ever"))?;
        let granted = granted.map_err(failed("behind"))??;
        self.await_empty().await?;
        let epoch = session.epoch();
        let is_kept = epoch == 1 && shown.loss.is_none();
        if self.case.lifetime == Lifetime::Long && !is_kept {
            return Err(format!(
                "lost for nothing: a session that outlives the run, epoch {epoch}, {:?}",
                shown.loss
            ));
        }
        let closed = timeout(2 * CLOSE_MAX, session.close()).await;
        closed.map_err(failed("session does not close"))?;
        let behind_waited = granted.saturating_duration_since(free);
        Ok(Shown {
            longest_wait: shown.longest_wait.max(behind_waited),
            ..shown
        })
    }

    fn polls(&self, of: Dropped) -> usize {
        match self.case.dropped {
            Some((dropped, polls)) if dropped == of => polls,
            _ => usize::MAX,
        }
    }

    /// Starts at the moment at which no conflicting node is ahead of the subject.
    async fn play_subject(&self, acquiring: JoinHandle<Acquired>) -> Result<Shown, String> {
        let free = Instant::now();
        let acquired = timeout(BOUND, acquiring).await;
        let acquired = acquired.map_err(failed("P5: subject waits for ever"))?;
        let acquired = acquired.map_err(failed("subject"))??;
        let mut shown = Shown {
            frames: Vec::new(),
            has_struck: false,
            loss: None,
            was_done: acquired.is_some(),
            longest_wait: free.elapsed(),
        };
        let Some(guard) = acquired else {
            return Ok(shown);
        };
        shown.loss = hold(&guard, self.case.lifetime.hold()).await;
        if shown.loss.is_some() && guard.is_valid() {
            return Err("P6: lost and valid".to_owned());
        }
        self.arena.leave("subject");
        let nodes: Vec<_> = guard.members().into_iter().map(|it| it.node_path).collect();
        let released = release(guard, self.polls(Dropped::Release)).await?;
        if self
            .case
            .dropped
            .is_some_and(|(it, _)| it == Dropped::Release)
        {
            shown.was_done = released.is_some();
        }
        if released == Some(true) {
            for node in nodes {
                // The operator's server may lag behind the subject's.
                self.stage.operator.sync(&node).await?;
                if self.stage.operator.node(&node).await?.is_some() {
                    return Err(format!("P7: released, and {node} is there"));
                }
            }
        }
        Ok(shown)
    }

    /// Starts the subject. It is judged when it is granted, however early that is.
    fn send_subject(&self, session: &Session) -> JoinHandle<Acquired> {
        let (arena, stage) = (Arc::clone(&self.arena), Arc::clone(&self.stage));
        let (places, polls) = (self.subject.clone(), self.polls(Dropped::Acquire));
        let contender = lock(session, &places);
        tokio::spawn(async move {
            let Some(acquired) = polled(contender.acquire(), polls).await else {
                return Ok(None);
            };
            let guard = Arc::new(acquired.map_err(failed("subject"))?);
            arena.enter("subject", &places, &guard)?;
            check_order(&stage.operator, "subject", &places, &guard).await?;
            Ok(Some(guard))
        })
    }

    /// Starts a waiter that follows the subject. Returns when it was granted.
    fn send_waiter(&self) -> JoinHandle<Result<Instant, String>> {
        let (arena, stage) = (Arc::clone(&self.arena), Arc::clone(&self.stage));
        let places = self.behind.clone();
        tokio::spawn(async move {
            let acquired = lock(&stage.behind, &places).acquire().await;
            let granted = Instant::now();
            let guard = Arc::new(acquired.map_err(failed("behind"))?);
            arena.enter("behind", &places, &guard)?;
            check_order(&stage.operator, "behind", &places, &guard).await?;
            arena.leave("behind");
            release(guard, usize::MAX).await?;
            Ok(granted)
        })
    }

    /// The sessions that have nodes in the directories.
    async fn owners(&self) -> Result<Vec<i64>, String> {
        let mut owners = Vec::new();
        for directory in self.subject.iter().flat_map(Place::directories) {
            for name in self.stage.operator.names(&directory).await? {
                let node = format!("{directory}/{name}");
                let node = self.stage.operator.node(&node).await?;
                owners.extend(node.map(|it| it.owner));
            }
        }
        Ok(owners)
    }

    async fn until(&self, what: &str, is_so: impl Fn(&[i64]) -> bool) -> Result<(), String> {
        let until = async {
            while !is_so(&self.owners().await?) {
                sleep(ASK_AGAIN).await;
            }
            Ok(())
        };
        match timeout(BOUND, until).await {
            Ok(done) => done,
            Err(_) => Err(format!("{what}; nodes of {:?}", self.owners().await)),
        }
    }

    /// Waits until the subject has a node, or was dropped.
    async fn await_subject(&self, acquiring: &JoinHandle<Acquired>) -> Result<(), String> {
        let others = [&self.stage.before, &self.stage.behind].map(Session::session_id);
        let is_subjects = |owner: &i64| !others.contains(&Some(*owner));
        self.until("P5: subject does not queue", |owners| {
            acquiring.is_finished() || owners.iter().any(is_subjects)
        })
        .await
    }

    /// Waits until the waiter has a node, or was granted at once.
    async fn await_waiter(
        &self,
        waiter: &JoinHandle<Result<Instant, String>>,
    ) -> Result<(), String> {
        let session = self.stage.behind.session_id();
        self.until("P5: behind does not queue", |owners| {
            waiter.is_finished() || owners.iter().any(|owner| Some(*owner) == session)
        })
        .await
    }

    async fn await_empty(&self) -> Result<(), String> {
        self.until("P4: nodes are left", |owners| owners.is_empty())
            .await
    }
}

/// Waits until so many of these answers have come, unless the subject is done or caught half-way.
async fn settled(
    proxy: &FaultProxy,
    (name, enough): (&str, usize),
    acquiring: &JoinHandle<Acquired>,
) {
    let answers = || proxy.on(Direction::FromServer).named(name).count();
    let settled = async {
        while answers() < enough && !acquiring.is_finished() {
            sleep(ASK_AGAIN).await;
        }
    };
    drop(timeout(SETTLED_MAX, settled).await);
}

/// Holds for a while, and longer while it is unknown whether the lock is held, so that it can be
/// taken away. Returns why it was lost, if it was.
async fn hold(guard: &LockGuard, time: Duration) -> Option<String> {
    // The loop ends, because a guard does not stay suspended for ever.
    loop {
        if let Ok(loss) = timeout(time, guard.lost()).await {
            return Some(loss.to_string());
        }
        if guard.state() == GuardState::Held {
            return None;
        }
    }
}

/// Polls a future when it is woken, this many times. Then drops it.
async fn polled<T>(future: impl Future<Output = T>, polls: usize) -> Option<T> {
    let (mut future, mut left) = (pin!(future), polls);
    poll_fn(|cx| {
        if left > 0 {
            left -= 1;
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(output));
            }
        }
        match left {
            0 => Poll::Ready(None),
            _ => Poll::Pending,
        }
    })
    .await
}

/// Releases within this many polls. `true` if the node is certainly gone, `None` if dropped before.
async fn release(guard: Arc<LockGuard>, polls: usize) -> Result<Option<bool>, String> {
    let guard = Arc::into_inner(guard).ok_or("guard is shared")?;
    let released = timeout(BOUND, polled(guard.release(), polls)).await;
    match released.map_err(failed("P7: release hangs"))? {
        None => Ok(None),
        Some(Ok(ReleaseOutcome::Released)) => Ok(Some(true)),
        Some(Ok(_) | Err(Error::Release(ReleaseError::Lost(_)))) => Ok(Some(false)),
        Some(Err(error)) => Err(format!("P7: {error}")),
    }
}
