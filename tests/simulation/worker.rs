//! What a user of the locks does, in random order, and dropped at random moments.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use lock_recipes::{
    AcquireError, Error, FencingToken, LockGuard, LockKind, NodesError, Owner, ReleaseError,
    ReleaseOutcome, Session, SessionHealth, Step, WriteGuard,
};
use tokio::time::{Instant, sleep, timeout};

use crate::plan::{Plan, Store, below, pick};
use crate::world::World;

mod request;

pub(crate) use request::lock_of;
use request::{Cut, Wait, Want, ask, cut_short, options};

/// More than a session needs to learn that it is alone.
const SPREE: usize = 12;
/// How long tries wait for an ensemble that does not answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// The node to which holders of a lock write their token.
pub(crate) fn token_path(path: &str) -> String {
    format!("/tokens{path}")
}

/// What they write: a number with the same order as the token.
pub(crate) fn number(token: FencingToken) -> i128 {
    (i128::from(token.as_i64()) << 32) + i128::from(token.handoff())
}

/// A guard. A writer's guard can do more.
pub(crate) enum Held {
    Any(LockGuard),
    Write(WriteGuard),
}

impl Held {
    pub(crate) fn guard(&self) -> &LockGuard {
        match self {
            Self::Any(guard) => guard,
            Self::Write(guard) => guard,
        }
    }

    async fn release(self) -> Result<ReleaseOutcome, Error> {
        match self {
            Self::Any(guard) => guard.release().await,
            Self::Write(guard) => guard.release().await,
        }
    }
}

/// On whose behalf a lock is acquired: an owner that other workers may share, or no owner.
#[derive(Clone)]
struct Party {
    owner: Option<Owner>,
    number: u64,
}

pub(crate) async fn work(world: Arc<World>, number: usize) {
    let seed = world.plan.seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let random = Rng::with_seed(seed);
    let mut worker = Worker { world, random };
    for _ in 0..worker.world.plan.rounds {
        if worker.world.judge().has_failed() {
            return;
        }
        worker.round().await;
    }
}

struct Worker {
    world: Arc<World>,
    random: Rng,
}

impl Worker {
    async fn round(&mut self) {
        if self.random.bool() {
            sleep(below(&mut self.random, Duration::from_millis(200))).await;
        }
        let sessions = self.world.sessions();
        let index = self.random.usize(..sessions.len());
        let session = sessions[index].clone();
        drop(sessions);
        let want = self.want(index);
        let party = self.party(&want);
        if self.world.plan.has_sprees && self.random.u8(..4) == 0 {
            return Box::pin(self.spree(&session, &want)).await;
        }
        if let Some(held) = Box::pin(self.acquire(&session, &want, &party)).await {
            let held = self.note(held, &session, &party);
            Box::pin(self.hold(held, &session, &want, &party)).await;
        }
    }

    /// Acquires the same lock many times in a row, without an owner and in good order.
    async fn spree(&mut self, session: &Session, want: &Want) {
        for _ in 0..SPREE {
            let options = options(&self.world.plan);
            let Ok(Some(held)) = ask(session, want, &options, None, Wait::Forever).await else {
                return;
            };
            let party = Party {
                owner: None,
                number: self.world.next_party(),
            };
            let held = self.note(held, session, &party);
            tokio::task::yield_now().await;
            self.leave_by(held, &party, Some(Cut::Never)).await;
        }
    }

    /// What is wanted through the session of this index.
    fn want(&mut self, session: usize) -> Want {
        let plan = &self.world.plan;
        let kind = |path, writes| match (plan.reads_and_writes(path, session), writes) {
            (false, _) => LockKind::Mutex,
            (true, false) => LockKind::Read,
            (true, true) => LockKind::Write,
        };
        let paths = &plan.paths;
        if paths.len() > 1 && self.random.u8(..3) == 0 {
            let count = self.random.usize(2..=paths.len());
            let set = self.random.choose_multiple(paths.iter().copied(), count);
            return Want::Set(
                set.into_iter()
                    .map(|path| (path, kind(path, self.random.bool())))
                    .collect(),
            );
        }
        let path = pick(&mut self.random, paths);
        match kind(path, self.random.bool()) {
            LockKind::Read => Want::Read(path),
            LockKind::Write => Want::Write(path),
            _ => Want::Mutex(path),
        }
    }

    /// Sets have no owner: an owner that holds a lock and waits for a set may wait in a circle with
    /// others.
    fn party(&mut self, want: &Want) -> Party {
        if !matches!(want, Want::Set(_)) && self.random.u8(..3) == 0 {
            let index = self.random.usize(..self.world.owners.len());
            let owner = Some(self.world.owners[index].clone());
            return Party {
                owner,
                number: index as u64,
            };
        }
        let number = self.world.next_party();
        let owner = self.random.bool().then(Owner::new);
        Party { owner, number }
    }

    fn wait(&mut self) -> Wait {
        match self.random.u8(..8) {
            0 | 1 => Wait::Try,
            2 => Wait::AtMost(Duration::ZERO),
            3 | 4 => Wait::AtMost(below(&mut self.random, Duration::from_secs(4))),
            _ => Wait::Forever,
        }
    }

    fn cut(&mut self) -> Cut {
        if self.random.u8(..100) >= self.world.plan.cut_percent {
            return Cut::Never;
        }
        match self.random.u8(..3) {
            0 => Cut::After(below(&mut self.random, Duration::from_secs(1))),
            _ => Cut::Polls(self.random.u32(1..16)),
        }
    }

    /// How long a try waits at most until it is known whether a holder is dead: three quarters of its
    /// timeout, and until the next beat.
    fn doubt(&self) -> Duration {
        let timeout = self.world.plan.session_timeout.unwrap_or_default();
        match self.world.plan.store {
            Store::OnRedis => timeout * 3 / 4 + timeout / 12,
            Store::Ensemble => Duration::ZERO,
        }
    }

    async fn acquire(&mut self, session: &Session, want: &Want, party: &Party) -> Option<Held> {
        let (wait, cut, in_scope) = (self.wait(), self.cut(), self.random.bool());
        let started = Instant::now();
        let options = options(&self.world.plan);
        let asked = ask(session, want, &options, party.owner.as_ref(), wait);
        let asked = match &party.owner {
            // There are two ways to name the owner.
            Some(owner) if in_scope => cut_short(owner.scope(asked), cut).await,
            _ => cut_short(asked, cut).await,
        };
        let number = party.number;
        let is_granted = asked.as_ref().map(|it| it.as_ref().map(Option::is_some));
        self.world
            .judge()
            .tell(|| format!("{number} {want:?} {wait:?} {cut:?}: {is_granted:?}"));
        let waited = match wait {
            Wait::Forever => Duration::MAX,
            Wait::AtMost(Duration::ZERO) | Wait::Try => CONNECT_TIMEOUT + self.doubt(),
            Wait::AtMost(waited) => waited,
        };
        // Timers have a resolution of a millisecond.
        if started.elapsed().saturating_sub(Duration::from_millis(4)) > waited {
            self.world
                .judge()
                .fail(format!("{wait:?} took {:?}", started.elapsed()));
        }
        match asked? {
            Ok(held) => held,
            Err(error) => {
                let is_owned = party.owner.is_some();
                let is_fair = match &error {
                    Error::Acquire(AcquireError::TimedOut { .. }) => !matches!(wait, Wait::Forever),
                    Error::Acquire(AcquireError::SessionClosed { .. }) => {
                        session.health() == SessionHealth::Closed
                    }
                    Error::Acquire(AcquireError::Lost(_)) => is_owned,
                    Error::Acquire(AcquireError::Refused {
                        step: Step::CreateParents,
                        source: NodesError::NoNode,
                        ..
                    }) => self.world.plan.reaps_always(),
                    Error::Acquire(AcquireError::RecipeDiffers { .. }) => self.world.plan.mixes,
                    Error::Acquire(AcquireError::WouldDeadlock { .. }) => {
                        is_owned && matches!(want, Want::Write(_))
                    }
                    _ => false,
                };
                if !is_fair {
                    self.world
                        .judge()
                        .fail(format!("{want:?} {wait:?}: {error:?}"));
                }
                None
            }
        }
    }

    fn note(&self, held: Held, session: &Session, party: &Party) -> Arc<Held> {
        let held = Arc::new(held);
        self.world.judge().granted(&held, session, party.number);
        held
    }

    async fn hold(&mut self, held: Arc<Held>, session: &Session, want: &Want, party: &Party) {
        let mut held = held;
        for _ in 0..self.random.u8(..4) {
            match self.random.u8(..8) {
                0..=2 => {
                    let pause = below(&mut self.random, self.world.plan.hold_max);
                    // The worker goes on if it is notified of a loss.
                    drop(timeout(pause, held.guard().lost()).await);
                }
                3 => tokio::task::yield_now().await,
                4 => self.transact(&held, want).await,
                5 => self.enter_again(&held, session, want, party).await,
                6 => {
                    let pause = below(&mut self.random, self.world.plan.hold_max);
                    let verified = cut_short(held.guard().verify(), Cut::After(pause)).await;
                    self.world.judge().tell(|| format!("verified {verified:?}"));
                }
                _ => match self.read_too(held, session, party).await {
                    Some(kept) => held = kept,
                    None => return,
                },
            }
        }
        self.leave(held, party).await;
    }

    /// Writes the token in a transaction that only the holder can commit.
    async fn transact(&mut self, held: &Arc<Held>, want: &Want) {
        if matches!(want, Want::Read(_)) {
            return;
        }
        let members = held.guard().members();
        let mut transaction = held.guard().transaction();
        let writes = members
            .iter()
            .filter(|member| !member.node_path.contains("__READ__"));
        let writes: Vec<_> = writes.collect();
        for member in &writes {
            let token = number(member.fencing_token).to_string();
            transaction = transaction.set(token_path(&member.path), token);
        }
        let cut = self.cut();
        let committed = cut_short(transaction.commit(), cut).await;
        let mut judge = self.world.judge();
        judge.check_tokens();
        if let Some(Ok(_)) = committed {
            for member in &writes {
                let token = number(member.fencing_token);
                judge.committed(&member.path, &member.node_path, token);
            }
        }
        drop(judge);
    }

    /// Acquires again as the same owner, which waits for no other.
    async fn enter_again(
        &mut self,
        held: &Arc<Held>,
        session: &Session,
        want: &Want,
        party: &Party,
    ) {
        let again = if party.owner.is_some() && self.random.bool() {
            self.acquire(session, want, party).await
        } else {
            held.guard().reenter().ok().map(Held::Any)
        };
        let Some(again) = again else { return };
        let again = self.note(again, session, party);
        sleep(below(&mut self.random, Duration::from_millis(20))).await;
        self.leave(again, party).await;
    }

    /// Reads as the owner of a writer. Returns what is held then.
    async fn read_too(
        &mut self,
        held: Arc<Held>,
        session: &Session,
        party: &Party,
    ) -> Option<Arc<Held>> {
        let cut = self.cut();
        let Held::Write(writer) = &*held else {
            return Some(held);
        };
        if self.random.bool() {
            let Some(Ok(reader)) = cut_short(writer.read(), cut).await else {
                return Some(held);
            };
            let reader = self.note(Held::Any(reader.into()), session, party);
            let (first, second) = match self.random.bool() {
                true => (held, reader),
                false => (reader, held),
            };
            self.leave(first, party).await;
            return Some(second);
        }
        let writer = match Arc::into_inner(held)? {
            Held::Write(writer) => writer,
            other @ Held::Any(_) => return Some(Arc::new(other)),
        };
        let held = match cut_short(writer.downgrade(), cut).await? {
            Ok(reader) => Held::Any(reader.into()),
            Err(_) => return None,
        };
        Some(self.note(held, session, party))
    }

    async fn leave(&mut self, held: Arc<Held>, party: &Party) {
        let is_released = self.random.u8(..3) > 0;
        let release = is_released.then(|| self.cut());
        self.leave_by(held, party, release).await;
    }

    /// Gives up a guard by a release, which may be cut short, or by dropping it.
    async fn leave_by(&mut self, held: Arc<Held>, party: &Party, release: Option<Cut>) {
        let guard = held.guard();
        // Another acquire of the same owner may have a share of the node before it has its guard.
        // And the node may be handed to another owner of the process, or shared with one.
        let Plan {
            local_handoffs,
            shared_reads,
            ..
        } = self.world.plan;
        let is_alone =
            !self.world.is_shared(party.number) && local_handoffs == 0 && shared_reads.is_zero();
        let is_last = guard.hold_count() == 1 && is_alone;
        let nodes: Vec<_> = guard.members().into_iter().map(|it| it.node_path).collect();
        self.world.judge().leaving(&held);
        self.world.judge().tell(|| format!("leaving {nodes:?}"));
        // The judge has only weak references.
        let Some(held) = Arc::into_inner(held) else {
            return;
        };
        let Some(cut) = release else {
            return;
        };
        match cut_short(held.release(), cut).await {
            Some(Ok(ReleaseOutcome::Released)) if is_last => {
                nodes
                    .iter()
                    .for_each(|node| self.world.judge().released(node));
            }
            Some(Err(error @ Error::Release(ReleaseError::Refused { .. }))) => {
                self.world.judge().fail(format!("release: {error:?}"));
            }
            _ => {}
        }
    }
}
