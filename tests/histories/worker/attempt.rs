//! One attempt: how long it waits, and what it does with what it is granted.

use std::time::Duration;

use fastrand::Rng;
use lock_recipes::{
    Acquire, Error, LockGuard, LockKind, ReadGuard, ReleaseOutcome, TryAcquire, WriteGuard,
};
use test_rig::history::{AttemptId, Step, monotonic_now};
use tokio::time::{sleep, timeout};

use super::Worker;
use crate::orders::register;

/// How often a holder checks whether it still holds the lock.
const LOOK_EVERY: Duration = Duration::from_millis(3);

/// How long a contender waits.
pub(super) enum Patience {
    Endless,
    Until(Duration),
    /// The future is dropped after this time.
    Dropped(Duration),
    Try,
}

impl Patience {
    pub(super) fn random(random: &mut Rng) -> Self {
        let within = Duration::from_millis(random.u64(..200));
        match random.u64(..10) {
            0 => Self::Try,
            1 => Self::Dropped(within),
            2 | 3 => Self::Until(within),
            _ => Self::Endless,
        }
    }

    /// Waits for a grant. `None` if a try was refused, or the acquire was dropped.
    pub(super) async fn wait<G>(
        self,
        acquire: Acquire<G>,
        try_acquire: TryAcquire<G>,
    ) -> Result<Option<G>, Error> {
        match self {
            Self::Endless => acquire.await.map(Some),
            Self::Until(within) => acquire.timeout(within).await.map(Some),
            Self::Dropped(within) => match timeout(within, acquire).await {
                Ok(outcome) => outcome.map(Some),
                Err(_) => Ok(None),
            },
            Self::Try => try_acquire.await,
        }
    }
}

/// The locks that one attempt wants, and the ids under which it is recorded.
pub(super) struct Attempt<'a> {
    pub(super) worker: &'a Worker,
    pub(super) members: Vec<(AttemptId, LockKind, String)>,
}

impl Attempt<'_> {
    /// Records how the acquire ended, and holds what was granted for a while.
    pub(super) async fn play<G: Into<LockGuard>>(
        &self,
        outcome: Result<Option<G>, Error>,
        random: &mut Rng,
    ) {
        let outcome = outcome.map(|granted| granted.map(Into::into));
        if let Some(guard) = self.outcome::<_, LockGuard>(outcome) {
            let is_held = self.hold(&guard, random).await;
            self.let_go(guard, is_held, random).await;
        }
    }

    pub(super) fn step(&self, at: u64, step: &Step) {
        for (id, ..) in &self.members {
            self.worker.note(at, *id, step.clone());
        }
    }

    /// Records a step that claims that the guard is valid, or else that it is lost.
    pub(super) fn step_if_valid(&self, guard: &LockGuard, step: &Step) -> bool {
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
    pub(super) fn outcome<G, L>(&self, outcome: Result<G, Error>) -> Option<L>
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
        // Several permits have one path.
        let mut left = self.members.clone();
        for member in granted.members() {
            let own = left.iter().position(|(.., path)| *path == member.path);
            let (id, ..) = left.remove(own.unwrap());
            let token = member.fencing_token.as_i64();
            let node = member.node_path;
            self.worker.note(at, id, Step::Granted { token, node });
        }
        Some(guard)
    }

    /// Holds for a while and checks the guard. True if it was valid until the end.
    pub(super) async fn hold(&self, guard: &LockGuard, random: &mut Rng) -> bool {
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
            if !matches!(own.1, LockKind::Read | LockKind::Permit) {
                let token = member.fencing_token.to_string();
                transaction = transaction.set(register(&member.path), token);
            }
        }
        // The log of the servers shows whether the commit was right.
        transaction.commit().await.ok();
    }

    pub(super) async fn let_go(&self, guard: LockGuard, is_held: bool, random: &mut Rng) {
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

pub(super) trait AsGuard {
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
