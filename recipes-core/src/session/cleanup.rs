//! Deletes the nodes that attempts and guards leave behind, until they are gone.
//!
//! The session owns the queue. A dropped future, a timeout, an error and a dropped guard all hand
//! their nodes over and are done. The queue pursues a node until the store reports that it is
//! gone, or refuses to delete it. It does so through reconnects and into the next session, because
//! a store that was down may still list nodes of a session that this process has given up.
//!
//! An outage can leave many nodes of ended sessions and many creates of unknown outcome. `sweep`
//! searches for all of them together.
//!
//! A node is deleted in one of three ways:
//!
//! | way | when |
//! |---|---|
//! | its own request, sent at once | its guard or its attempt is dropped; it is the only awaited release; the answer to an abandoned create (`abandoned`) names it |
//! | a shared transaction (`batch`) | its set is released, or another awaited release has no answer yet |
//! | pursued, after a search where it is not known by name or its session is over (`sweep`) | an earlier request has no answer, or none could be sent |
//!
//! Write transactions are the store's bottleneck, so awaited releases share them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tracing::debug;
use uuid::Uuid;

use crate::log::CLEANUP;
use crate::session::create_in_flight::{CreateInFlight, Purpose};
use crate::session::epoch::Epoch;
use crate::session::free_uuids::FreeUuids;
use crate::session::phase::Phase;
use crate::store::nodes::{NodeOp, Nodes, NodesError};
use crate::store::retry::Backoff;
use crate::telemetry::PendingCleanup;

mod abandoned;
mod batch;
mod deletion;
mod job;
mod pending;
mod sweep;

use abandoned::{Abandoned, Parked};
use batch::Batch;
pub(crate) use deletion::Deletion;
use job::{Job, Tried};
use pending::Pending;
pub(crate) use pending::Remaining;
use sweep::sweep;

/// While this many batches of releases are in flight, only full ones are sent. A lower limit makes
/// batches larger, a higher one sends releases sooner.
const BATCHES_MAX: usize = 3;

/// Capacity that the lists of jobs keep after a burst.
const KEPT_MAX: usize = 32;

/// How the deletion of a node ended.
#[derive(Clone, Debug)]
pub(crate) enum Deleted {
    /// We deleted it, or a deletion of ours whose reply was lost did.
    ByUs,
    /// It was gone before we tried.
    BySomebody,
    /// It goes, or went, with its session.
    WithSession,
    /// The store refused.
    Refused(NodesError),
}

impl Deleted {
    /// Frees the uuids of nodes that are gone, as the store has said.
    fn free(&self, uuids: &FreeUuids, paths: &[String]) {
        if matches!(self, Self::ByUs | Self::BySomebody) {
            paths.iter().for_each(|path| uuids.is_gone(path));
        }
    }

    /// Interprets the answer to the first delete of a node; an error if it is not definite.
    fn definitely(answer: Result<(), NodesError>) -> Result<Self, NodesError> {
        match answer {
            Ok(()) => Ok(Self::ByUs),
            Err(NodesError::NoNode) => Ok(Self::BySomebody),
            Err(error) if error.is_lasting() => Ok(Self::Refused(error)),
            Err(error) => Err(error),
        }
    }
}

/// What to delete.
#[derive(Debug)]
pub(crate) enum Doomed {
    /// These nodes, in one transaction where possible.
    Nodes(Vec<String>),
    /// The nodes that creates of unknown outcome with these uuids may have made in these
    /// directories.
    MadeWith(Vec<(String, Uuid)>),
}

impl Doomed {
    /// The paths of the nodes, or of their directories if their names are not known.
    fn places(&self) -> Vec<&String> {
        match self {
            Self::Nodes(paths) => paths.iter().collect(),
            Self::MadeWith(creates) => creates.iter().map(|(directory, _)| directory).collect(),
        }
    }
}

/// A session's clean-up queue.
#[derive(Clone)]
pub(crate) struct Cleanup {
    /// Those that come together can share a transaction.
    jobs: mpsc::UnboundedSender<Vec<Job>>,
    pending: Pending,
    abandoned: Abandoned,
    /// Held by the one release that has a request of its own.
    alone: Arc<Semaphore>,
}

impl fmt::Debug for Cleanup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cleanup")
            .field("pending", &self.pending.count())
            .finish()
    }
}

impl Cleanup {
    /// Starts the queue of a session on the current runtime. It ends with the last handle.
    pub(crate) fn start(phase: watch::Receiver<Phase>) -> Self {
        let (jobs, queue) = mpsc::unbounded_channel();
        let abandoned = Abandoned::default();
        tokio::spawn(work(queue, phase, abandoned.clone()));
        Self {
            jobs,
            pending: Pending::default(),
            abandoned,
            alone: Arc::new(Semaphore::new(1)),
        }
    }

    /// Hands nodes over. The receiver gets the outcome and can be dropped.
    pub(crate) fn delete(&self, target: Doomed, epoch: &Epoch) -> oneshot::Receiver<Deleted> {
        let (job, outcome) = self.job(
            target,
            (epoch.number, epoch.free_uuids.clone()),
            Tried::Perhaps,
        );
        self.push(vec![job]);
        outcome
    }

    /// Hands over a create that is in flight. Once it is answered, its nodes are deleted, unless
    /// another contender has adopted it.
    pub(crate) fn abandon(&self, create: CreateInFlight, epoch: &Epoch) {
        let creates = create.nodes.iter();
        let creates = creates.map(|it| (it.purpose.directory.to_string(), it.uuid));
        let doomed = Doomed::MadeWith(creates.collect());
        let parked = self.abandoned.park(epoch.number, create);
        let (job, _) = self.job(
            doomed,
            (epoch.number, epoch.free_uuids.clone()),
            Tried::Creating(parked),
        );
        self.push(vec![job]);
    }

    /// Takes an abandoned create of this epoch whose nodes are for these purposes.
    pub(crate) fn adopt(&self, purposes: &[Purpose], epoch: &Epoch) -> Option<CreateInFlight> {
        self.abandoned.adopt(epoch.number, purposes)
    }

    /// The deletion of a node, not sent yet.
    pub(crate) fn deletion(&self, path: &str, epoch: &Epoch) -> Deletion {
        Deletion::new(self.clone(), path, epoch)
    }

    /// Whether this is a handle of the same queue.
    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.alone, &other.alone)
    }

    /// Completes when the queue is empty.
    pub(crate) async fn drained(&self) {
        self.pending.over().await;
    }

    /// The nodes of an epoch that are not deleted yet.
    pub(crate) fn remaining(&self, epoch: &Epoch) -> Option<Remaining> {
        self.pending.remaining(epoch.number)
    }

    fn job(
        &self,
        target: Doomed,
        (made_in, free): (u64, FreeUuids),
        tried: Tried,
    ) -> (Job, oneshot::Receiver<Deleted>) {
        let (done, outcome) = oneshot::channel();
        let target = Arc::new(target);
        let job = Job {
            _pending: self.pending.list(&target, made_in),
            target,
            made_in,
            tried,
            done: Some(done),
            free,
            gauge: None,
        };
        (job, outcome)
    }

    fn push(&self, jobs: Vec<Job>) {
        // If the queue is gone, so are the runtime and the session.
        drop(self.jobs.send(jobs));
    }
}

async fn work(
    mut queue: mpsc::UnboundedReceiver<Vec<Job>>,
    phase: watch::Receiver<Phase>,
    abandoned: Abandoned,
) {
    let (mut arrived, mut waiting, mut strays) = (Vec::new(), VecDeque::new(), Vec::new());
    let (mut batches, mut running) = (FuturesUnordered::new(), FuturesUnordered::new());
    let mut sweeping = FuturesUnordered::new();
    let mut is_open = true;
    while is_open || !batches.is_empty() || !running.is_empty() || !sweeping.is_empty() {
        tokio::select! {
            biased;
            count = queue.recv_many(&mut arrived, usize::MAX), if is_open => is_open = count > 0,
            Some(left) = batches.next(), if !batches.is_empty() => arrived.push(left),
            Some(stray) = running.next(), if !running.is_empty() => strays.extend(stray),
            Some(left) = sweeping.next(), if !sweeping.is_empty() => strays.extend(left),
        }
        for job in arrived.drain(..).flatten() {
            match job.tried {
                Tried::Nothing => waiting.push_back(job),
                _ => running.push(pursue(job, phase.clone(), &abandoned)),
            }
        }
        while let Some(batch) = Batch::take(&mut waiting, batches.len() >= BATCHES_MAX) {
            batches.push(batch.delete(phase.clone()));
        }
        // One at a time. Jobs that arrive meanwhile share the next sweep.
        if sweeping.is_empty() && !strays.is_empty() {
            sweeping.push(sweep(std::mem::take(&mut strays), phase.clone()));
        }
        // Frees the memory that thousands of jobs needed for a moment.
        arrived.shrink_to(KEPT_MAX);
        waiting.shrink_to(KEPT_MAX);
    }
}

/// Deletes nodes that are known by name, while their session lives. Returns the job if its nodes
/// must be searched for.
async fn pursue(
    mut job: Job,
    mut phase: watch::Receiver<Phase>,
    abandoned: &Abandoned,
) -> Option<Job> {
    job.gauge.get_or_insert_with(PendingCleanup::new);
    match std::mem::replace(&mut job.tried, Tried::Perhaps) {
        Tried::Sent(reply) => match Deleted::definitely(reply.await) {
            Ok(deleted) => {
                job.answer(deleted);
                return None;
            }
            Err(NodesError::SessionEnded) => job.gone_with_session(),
            Err(_) => {}
        },
        Tried::Creating(parked) => match created(job.made_in, &parked, &mut phase, abandoned).await
        {
            AbandonedMade::Nodes(paths) => job.target = Arc::new(Doomed::Nodes(paths)),
            AbandonedMade::Nothing => {
                job.answer(Deleted::BySomebody);
                return None;
            }
            // Its node is not to be deleted.
            AbandonedMade::Adopted => return None,
            AbandonedMade::Perhaps => {}
        },
        Tried::Nothing | Tried::Perhaps => {}
    }
    let mut backoff = Backoff::default();
    loop {
        let epoch = current_epoch(&mut phase).await;
        let epoch = epoch.filter(|epoch| epoch.number == job.made_in);
        let (Some(epoch), Doomed::Nodes(paths)) = (epoch, &*job.target) else {
            return Some(job);
        };
        let attempt = async {
            let nodes = epoch.nodes()?;
            delete_all(&*nodes, paths).await
        };
        let answer = while_serving(&mut phase, &epoch, attempt).await;
        match answer {
            None => {}
            Some(Ok(())) => {
                job.answer(Deleted::ByUs);
                return None;
            }
            Some(Err(error)) if error.is_lasting() => {
                job.answer(Deleted::Refused(error));
                return None;
            }
            Some(Err(error)) => {
                debug!(target: CLEANUP, node = ?job.target, %error, "clean-up will be tried again");
            }
        }
        backoff.wait().await;
    }
}

/// What has become of an abandoned create.
enum AbandonedMade {
    Nodes(Vec<String>),
    Nothing,
    Adopted,
    /// Its outcome is unknown, or its session is over.
    Perhaps,
}

/// Waits for the answer to an abandoned create, while its session lives.
async fn created(
    made_in: u64,
    parked: &Arc<Parked>,
    phase: &mut watch::Receiver<Phase>,
    abandoned: &Abandoned,
) -> AbandonedMade {
    let epoch = current_epoch(phase).await;
    let answer = match epoch.filter(|epoch| epoch.number == made_in) {
        Some(epoch) => while_serving(phase, &epoch, abandoned.answer(parked)).await,
        None => None,
    };
    let Some(answer) = answer else {
        abandoned.forget(parked);
        return AbandonedMade::Perhaps;
    };
    match answer.map(|answer| answer.created) {
        None => AbandonedMade::Adopted,
        Some(Ok(created)) => AbandonedMade::Nodes(created.into_iter().map(|it| it.path).collect()),
        Some(Err(error)) if error.source.is_unanswered() => AbandonedMade::Perhaps,
        Some(Err(_)) => AbandonedMade::Nothing,
    }
}

/// The epoch in which nodes can be deleted, once it is open; `None` if there will be none.
async fn current_epoch(phase: &mut watch::Receiver<Phase>) -> Option<Arc<Epoch>> {
    let settled = phase.wait_for(|phase| !matches!(phase, Phase::Connecting));
    settled.await.ok()?.epoch()
}

/// Runs requests of an epoch; `None` if the epoch is over first. The end of the link does not
/// count, because a session that is being closed can still delete nodes.
async fn while_serving<T>(
    phase: &mut watch::Receiver<Phase>,
    epoch: &Epoch,
    requests: impl Future<Output = T>,
) -> Option<T> {
    tokio::select! {
        biased;
        _ = phase.wait_for(|phase| !phase.serves(epoch)) => None,
        answer = requests => Some(answer),
    }
}

/// Deletes all in one transaction. A lasting error is a refusal: nothing was deleted.
fn delete_together(
    nodes: &dyn Nodes,
    paths: impl IntoIterator<Item = String>,
) -> impl Future<Output = Result<(), NodesError>> + Send {
    let paths = paths.into_iter();
    let deletes = paths.map(|path| NodeOp::Delete {
        path,
        version: None,
    });
    let deleted = nodes.multi(deletes.collect());
    async move { deleted.await.map(drop).map_err(|error| error.source) }
}

/// Deletes all in one transaction, or one by one if that is refused.
async fn delete_all(nodes: &dyn Nodes, paths: &[String]) -> Result<(), NodesError> {
    if paths.len() > 1 {
        match delete_together(nodes, paths.iter().cloned()).await {
            Err(error) if error.is_lasting() => {}
            answer => return answer,
        }
    }
    let mut refused = Ok(());
    for path in paths {
        match nodes.delete(path).await {
            Ok(()) | Err(NodesError::NoNode) => {}
            Err(error) if error.is_lasting() => refused = Err(error),
            Err(error) => return Err(error),
        }
    }
    refused
}

#[cfg(test)]
mod tests;
