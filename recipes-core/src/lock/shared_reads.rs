//! The readers of one session that share nodes.
//!
//! Each group of readers makes one attempt, which all of them poll, and then holds one node, with a lease
//! for each. So a reader that gives up leaves the others alone. A spare lease keeps the node until the
//! group is closed, whether or not anybody reads; then the last reader takes the node away.
//! [`read_groups`](crate::rules::read_groups) decides who joins whom.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use tokio::sync::oneshot;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep_until};

use crate::error::AcquireError;
use crate::lock::held_node::HeldNode;
use crate::lock::lease::Lease;
use crate::lock::local_queue::AttemptFuture;
use crate::lock::target::Target;
use crate::rules::acquire::Outcome;
use crate::rules::delay::Progress;
use crate::rules::read_groups::ReadGroups;
use crate::sync::{Mutex, lock};

/// The attempt of a group. Its lease, there is one, keeps the node until every reader that waited has one of
/// its own.
type GroupAttempt = BoxFuture<'static, Result<Outcome<Arc<Vec<Lease>>>, AcquireError>>;

/// How far an attempt has come.
type SharedProgress = Arc<Mutex<Progress>>;

/// A group that readers can join, for as long as there is anybody in it.
#[derive(Debug)]
enum Group {
    Waits(WeakShared<GroupAttempt>, SharedProgress),
    Holds(
        Weak<HeldNode>,
        #[expect(dead_code, reason = "dropped")] Spare,
    ),
}

/// The lease of nobody, which keeps the node of a group until this is dropped.
///
/// It belongs to a task, which ends with its runtime. Here it would keep itself: it holds the lock's path.
#[derive(Debug)]
struct Spare(Weak<SpareLease>);

/// With what wakes the task.
type SpareLease = Mutex<Option<(Lease, oneshot::Sender<()>)>>;

impl Spare {
    /// Keeps a node until then, or until it can no longer be granted.
    fn keep(lease: Lease, until: Instant) -> Self {
        let (lost, requested) = (lease.lost(), lease.revocation_requested());
        let (open, closed) = oneshot::channel();
        let lease = Arc::new(Mutex::new(Some((lease, open))));
        let spare = Self(Arc::downgrade(&lease));
        tokio::spawn(async move {
            tokio::select! {
                _ = closed => {}
                _ = lost => {}
                () = requested => {}
                () = sleep_until(until) => {}
            }
            drop(lease);
        });
        spare
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        // At once, so that the node is deleted before a writer of the session makes its own.
        let lease = self.0.upgrade().and_then(|it| lock(&it).take());
        drop(lease);
    }
}

/// What a reader does.
enum Joined {
    /// It waits with its group.
    Waits(Shared<GroupAttempt>, SharedProgress),
    /// It has a lease on the node of the group with this number, if the node can still be granted.
    Holds(u64, Lease),
}

/// The readers of one lock in one session.
pub(crate) struct SharedReads {
    groups: Mutex<ReadGroups<Group>>,
}

impl fmt::Debug for SharedReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReads").finish_non_exhaustive()
    }
}

impl SharedReads {
    /// A node is kept, and takes readers in, for so long after its grant.
    pub(crate) fn new(open_for: Duration) -> Self {
        Self {
            groups: Mutex::new(ReadGroups::new(open_for)),
        }
    }

    /// Acquires the lock for a reader. `begin` begins an attempt that waits, whose progress is noted
    /// where it says. `follow` gets the progress of the group that the reader waits with.
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        target: Target,
        begin: impl Fn(Target, SharedProgress) -> AttemptFuture,
        follow: impl Fn(SharedProgress),
    ) -> Result<Outcome<Vec<Lease>>, AcquireError> {
        loop {
            let lease = match self.join(&target, &begin) {
                Joined::Waits(attempt, progress) => {
                    follow(progress);
                    match attempt.await? {
                        Outcome::Granted(of_group) => of_group
                            .first()
                            .and_then(|it| Lease::join(it.node(), it.lock())),
                        Outcome::Busy => return Ok(Outcome::Busy),
                        Outcome::Stale => return Ok(Outcome::Stale),
                    }
                }
                Joined::Holds(number, lease) => self.vouched(number, lease).await,
            };
            if let Some(lease) = lease {
                return Ok(Outcome::Granted(vec![lease]));
            }
        }
    }

    /// A lease on a node that is held, for a try. `None` if there is none to join.
    pub(crate) async fn try_join(&self, target: &Target) -> Option<Lease> {
        let (number, lease) = self.held(target)?;
        self.vouched(number, lease).await
    }

    /// Notes that a writer of the session waits, for as long as the result lives.
    pub(crate) fn writer(self: &Arc<Self>) -> WriterWaits {
        lock(&self.groups).writer_came();
        WriterWaits(Arc::clone(self))
    }

    fn join(
        self: &Arc<Self>,
        target: &Target,
        begin: &impl Fn(Target, SharedProgress) -> AttemptFuture,
    ) -> Joined {
        if let Some((number, lease)) = self.held(target) {
            return Joined::Holds(number, lease);
        }
        let mut groups = lock(&self.groups);
        if let Some((_, Group::Waits(attempt, progress))) = groups.open(Instant::now()) {
            if let Some(attempt) = attempt.upgrade() {
                return Joined::Waits(attempt, Arc::clone(progress));
            }
        }
        let number = groups.number();
        let progress = SharedProgress::default();
        let attempt = begin(target.clone(), Arc::clone(&progress));
        let attempt = Arc::clone(self).attempt(number, attempt).boxed().shared();
        if let Some(others) = attempt.downgrade() {
            groups.begin(number, Group::Waits(others, Arc::clone(&progress)));
        }
        Joined::Waits(attempt, progress)
    }

    /// A lease on the node of the open group, and the number of the group.
    fn held(&self, target: &Target) -> Option<(u64, Lease)> {
        let mut groups = lock(&self.groups);
        match groups.open(Instant::now())? {
            (number, Group::Holds(node, _)) => {
                let lease = Lease::join(&node.upgrade()?, &target.lock)?;
                Some((number, lease))
            }
            (_, Group::Waits(..)) => None,
        }
    }

    async fn attempt(
        self: Arc<Self>,
        number: u64,
        attempt: AttemptFuture,
    ) -> Result<Outcome<Arc<Vec<Lease>>>, AcquireError> {
        let outcome = attempt.await;
        let granted = match &outcome {
            Ok(Outcome::Granted(leases)) => leases.first(),
            _ => None,
        };
        let spare = granted.and_then(|lease| Lease::join(lease.node(), lease.lock()));
        let mut groups = lock(&self.groups);
        match spare {
            Some(spare) => groups.granted(number, Instant::now(), |until| {
                let node = Arc::downgrade(spare.node());
                Group::Holds(node, Spare::keep(spare, until))
            }),
            // Those who waited with it have the answer. It is none for those who come later.
            None => groups.close(number),
        }
        drop(groups);
        Ok(outcome?.map(Arc::new))
    }

    /// The lease if its node can be granted to a reader that comes now. If not, nobody else joins it.
    async fn vouched(&self, number: u64, lease: Lease) -> Option<Lease> {
        // A task that does nothing but read would never wait, and never let another one run.
        consume_budget().await;
        let is_good = lease.vouch().await;
        let mut groups = lock(&self.groups);
        // A writer may have come meanwhile.
        if is_good && groups.is_open(number, Instant::now()) {
            return Some(lease);
        }
        groups.close(number);
        // Dropped after the lock: it may be the last lease on the node.
        drop(groups);
        None
    }
}

/// A writer of the session waits; dropping it says that it no longer does.
#[must_use]
pub(crate) struct WriterWaits(Arc<SharedReads>);

impl Drop for WriterWaits {
    fn drop(&mut self) {
        lock(&self.0.groups).writer_left();
    }
}
