//! Deletes lock nodes until they are gone, whoever gave up on them.
//!
//! The session owns the queue: a dropped future, a time-out, an error and a dropped guard all hand
//! their nodes over and are done. A node is pursued until the ensemble says that it is gone or
//! refuses to delete it, over reconnections and into the next session, because an ensemble that
//! was down may still list the nodes of a session that this process has given up.

use std::fmt;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tracing::{debug, warn};
use uuid::Uuid;

use crate::epoch::Epoch;
use crate::meter::PendingCleanup;
use crate::node_name;
use crate::nodes::{NodeOp, Nodes, NodesError, Reply};
use crate::retry::Backoff;
use crate::session::Phase;

/// How the deletion of a node ended.
#[derive(Clone, Debug)]
pub(crate) enum Deleted {
    /// We deleted it, or a deletion of ours whose reply was lost did.
    ByUs,
    /// It was gone before we tried.
    BySomebody,
    /// It goes, or went, with its session.
    WithSession,
    /// The ensemble refuses.
    Refused(NodesError),
}

/// What to delete.
#[derive(Debug)]
pub(crate) enum Target {
    /// These nodes, in one transaction where possible.
    Nodes(Vec<String>),
    /// The node that a create of unknown outcome may have made.
    MadeWith { directory: String, uuid: Uuid },
}

struct Job {
    target: Target,
    /// The epoch of the nodes.
    made_in: u64,
    /// A delete that was sent already.
    sent: Option<Reply<'static, ()>>,
    done: Option<oneshot::Sender<Deleted>>,
    _pending: PendingCleanup,
}

/// A session's clean-up queue.
#[derive(Clone)]
pub(crate) struct Cleanup {
    jobs: mpsc::UnboundedSender<Job>,
    pending: Arc<watch::Sender<usize>>,
}

impl fmt::Debug for Cleanup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cleanup")
            .field("pending", &*self.pending.borrow())
            .finish()
    }
}

impl Cleanup {
    /// Starts the queue of a session on the current runtime; ends with the last handle.
    pub(crate) fn start(phase: watch::Receiver<Phase>) -> Self {
        let (jobs, queue) = mpsc::unbounded_channel();
        let pending = Arc::new(watch::Sender::new(0));
        tokio::spawn(work(queue, phase, Arc::clone(&pending)));
        Self { jobs, pending }
    }

    /// Hands nodes over; what is returned tells the end of it and can be dropped.
    pub(crate) fn delete(&self, target: Target, epoch: &Epoch) -> oneshot::Receiver<Deleted> {
        let (done, outcome) = oneshot::channel();
        self.push(Job {
            target,
            made_in: epoch.number,
            sent: None,
            done: Some(done),
            _pending: PendingCleanup::new(),
        });
        outcome
    }

    /// The deletion of a node, not sent yet.
    pub(crate) fn deletion(&self, path: &str, epoch: &Epoch) -> Deletion {
        Deletion {
            path: path.to_owned(),
            made_in: epoch.number,
            reply: None,
            cleanup: self.clone(),
            is_over: false,
        }
    }

    /// Completes when the queue is empty.
    pub(crate) async fn drained(&self) {
        // The sender is ours, so waiting does not fail.
        drop(
            self.pending
                .subscribe()
                .wait_for(|pending| *pending == 0)
                .await,
        );
    }

    fn push(&self, job: Job) {
        self.pending.send_modify(|pending| *pending += 1);
        if self.jobs.send(job).is_err() {
            // The runtime is gone, and the session with it.
            self.pending.send_modify(|pending| *pending -= 1);
        }
    }
}

/// The deletion of one node; pursued in the background if it is dropped before it is known to be
/// over.
pub(crate) struct Deletion {
    path: String,
    made_in: u64,
    reply: Option<Reply<'static, ()>>,
    cleanup: Cleanup,
    is_over: bool,
}

impl Deletion {
    /// Sends the delete now.
    pub(crate) fn send(&mut self, epoch: &Epoch) {
        self.reply = epoch.nodes().ok().map(|nodes| nodes.delete(&self.path));
    }

    /// Notes that the node was deleted otherwise.
    pub(crate) fn done(&mut self) {
        self.is_over = true;
    }

    /// Waits for the end of it, `None` if it is not known at the deadline.
    pub(crate) async fn finish(mut self, deadline: Instant) -> Option<Deleted> {
        let Some(reply) = self.reply.as_mut() else {
            self.is_over = true;
            return Some(Deleted::WithSession);
        };
        let answer = tokio::time::timeout_at(deadline, reply).await.ok()?;
        self.reply = None;
        let ended = match answer {
            Ok(()) => Deleted::ByUs,
            Err(NodesError::NoNode) => Deleted::BySomebody,
            Err(error) if error.is_lasting() => Deleted::Refused(error),
            Err(NodesError::SessionEnded) => {
                // An ensemble that has not ended it too may list the node for a while.
                self.hand_over(None);
                return Some(Deleted::WithSession);
            }
            Err(_) => return self.pursue(deadline).await,
        };
        self.is_over = true;
        Some(ended)
    }

    /// Waits until the clean-up has seen to it, `None` if it has not by the deadline. The node may
    /// have been deleted by a request of ours already.
    pub(crate) async fn pursue(mut self, deadline: Instant) -> Option<Deleted> {
        let (done, outcome) = oneshot::channel();
        self.hand_over(Some(done));
        let outcome = tokio::time::timeout_at(deadline, outcome).await.ok()?;
        Some(outcome.unwrap_or(Deleted::WithSession))
    }

    fn hand_over(&mut self, done: Option<oneshot::Sender<Deleted>>) {
        self.is_over = true;
        let target = Target::Nodes(vec![std::mem::take(&mut self.path)]);
        self.cleanup.push(Job {
            target,
            made_in: self.made_in,
            sent: self.reply.take(),
            done,
            _pending: PendingCleanup::new(),
        });
    }
}

impl Drop for Deletion {
    fn drop(&mut self) {
        if !self.is_over {
            self.hand_over(None);
        }
    }
}

async fn work(
    mut queue: mpsc::UnboundedReceiver<Job>,
    phase: watch::Receiver<Phase>,
    pending: Arc<watch::Sender<usize>>,
) {
    let mut running = FuturesUnordered::new();
    let mut is_open = true;
    while is_open || !running.is_empty() {
        tokio::select! {
            biased;
            job = queue.recv(), if is_open => match job {
                Some(job) => running.push(pursue(job, phase.clone())),
                None => is_open = false,
            },
            Some(()) = running.next(), if !running.is_empty() => {
                pending.send_modify(|pending| *pending -= 1);
            }
        }
    }
}

async fn pursue(mut job: Job, phase: watch::Receiver<Phase>) {
    let deleted = match job.sent.take() {
        Some(reply) => match reply.await {
            Ok(()) => Some(Deleted::ByUs),
            Err(NodesError::NoNode) => Some(Deleted::BySomebody),
            Err(error) if error.is_lasting() => Some(Deleted::Refused(error)),
            Err(_) => None,
        },
        None => None,
    };
    let deleted = match deleted {
        Some(deleted) => deleted,
        None => insist(&job.target, job.made_in, phase).await,
    };
    match &deleted {
        Deleted::Refused(error) => warn!(target = ?job.target, %error, "node cannot be deleted"),
        deleted => debug!(target = ?job.target, ?deleted, "node cleaned up"),
    }
    if let Some(done) = job.done.take() {
        // Nobody may be waiting any more.
        drop(done.send(deleted));
    }
}

/// Tries until it is known that the nodes are gone; ends with the session at the latest.
async fn insist(target: &Target, made_in: u64, mut phase: watch::Receiver<Phase>) -> Deleted {
    let mut backoff = Backoff::default();
    loop {
        let epoch = match phase
            .wait_for(|phase| !matches!(phase, Phase::Connecting))
            .await
        {
            Ok(phase) => phase.epoch(),
            Err(_) => None,
        };
        let Some(epoch) = epoch else {
            return Deleted::WithSession;
        };
        let mut over = phase.clone();
        let attempt = async {
            let nodes = epoch.nodes()?;
            match target {
                Target::Nodes(paths) => delete_all(&*nodes, paths).await,
                Target::MadeWith { directory, uuid } => {
                    find_and_delete(&*nodes, directory, *uuid).await
                }
            }
        };
        tokio::select! {
            biased;
            // Not when the link ends: a session that is being closed is still good for this.
            _ = over.wait_for(|phase| !phase.serves(&epoch)) => {}
            answer = attempt => match answer {
                Ok(()) if epoch.number == made_in => return Deleted::ByUs,
                Ok(()) => return Deleted::WithSession,
                Err(error) if error.is_lasting() => return Deleted::Refused(error),
                Err(error) => debug!(?target, %error, "clean-up will be tried again"),
            },
        }
        backoff.wait().await;
    }
}

/// Deletes in one transaction, one by one if that is refused.
async fn delete_all(nodes: &dyn Nodes, paths: &[String]) -> Result<(), NodesError> {
    if paths.len() > 1 {
        let delete = |path: &String| NodeOp::Delete {
            path: path.clone(),
            version: None,
        };
        let operations: Vec<_> = paths.iter().map(delete).collect();
        match nodes.multi(operations).await {
            Ok(_) => return Ok(()),
            Err(error) if error.source.is_lasting() => {}
            Err(error) => return Err(error.source),
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

/// The server may lag behind the create whose reply was lost, so `sync` before looking.
async fn find_and_delete(nodes: &dyn Nodes, directory: &str, uuid: Uuid) -> Result<(), NodesError> {
    let (synced, children) = (nodes.sync(directory), nodes.list(directory));
    synced.await?;
    let children = match children.await {
        Err(NodesError::NoNode) => return Ok(()),
        children => children?,
    };
    let protection = node_name::protection(uuid);
    let ours = children.iter().filter(|name| name.starts_with(&protection));
    let paths: Vec<_> = ours.map(|name| format!("{directory}/{name}")).collect();
    delete_all(nodes, &paths).await
}
