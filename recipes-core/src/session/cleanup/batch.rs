//! Deletions that share a transaction.

use std::collections::VecDeque;

use tokio::sync::watch;

use super::{Deleted, Job, Tried, delete_together};
use crate::session::phase::Phase;
use crate::store::nodes::NodesError;

/// Most nodes in one transaction, and most bytes of their paths. Even with the overhead of each
/// path, this is far below the megabyte that a server accepts in one request.
const NODES_MAX: usize = 32;
const BYTES_MAX: usize = 16 * 1024;

/// Jobs of one epoch that share a transaction.
pub(super) struct Batch(Vec<Job>);

impl Batch {
    /// Takes the next jobs, as many as fit. `None` if there are none, or if only a full batch may
    /// be sent and this one is not full.
    pub(super) fn take(waiting: &mut VecDeque<Job>, only_full: bool) -> Option<Self> {
        let made_in = waiting.front()?.made_in;
        let mut bytes = 0;
        let fits = |job: &&Job| {
            bytes += job.paths().iter().map(String::len).sum::<usize>();
            job.made_in == made_in && bytes <= BYTES_MAX
        };
        let count = waiting.iter().take(NODES_MAX).take_while(fits).count();
        let is_full = count == NODES_MAX || count < waiting.len();
        (is_full || !only_full).then(|| Self(waiting.drain(..count.max(1)).collect()))
    }

    /// Tries once; returns the jobs that are not over.
    pub(super) async fn delete(self, mut phase: watch::Receiver<Phase>) -> Vec<Job> {
        let Self(mut jobs) = self;
        let made_in = jobs.first().map(|job| job.made_in);
        let epoch = phase.borrow().epoch();
        let epoch = epoch.filter(|epoch| Some(epoch.number) == made_in);
        let nodes = epoch.as_ref().and_then(|epoch| epoch.nodes().ok());
        let Some((epoch, nodes)) = epoch.zip(nodes) else {
            return gone_with_session(jobs);
        };
        let paths: Vec<_> = jobs.iter().flat_map(Job::paths).cloned().collect();
        let deleted = async {
            match &*paths {
                [only] => nodes.delete(only).await,
                _ => delete_together(&*nodes, paths).await,
            }
        };
        let answer = tokio::select! {
            biased;
            answer = deleted => answer,
            _ = phase.wait_for(|phase| !phase.serves(&epoch)) => Err(NodesError::SessionEnded),
        };
        let is_one = jobs.len() == 1;
        match Deleted::definitely(answer) {
            Ok(deleted) if is_one || matches!(deleted, Deleted::ByUs) => {
                jobs.iter_mut().for_each(|job| job.answer(deleted.clone()));
                return Vec::new();
            }
            // Nothing was deleted. Single deletes show why, and delete the other nodes.
            Ok(_) => {
                for job in &mut jobs {
                    if let Some(path) = job.paths().first() {
                        job.tried = Tried::Sent(nodes.delete(path));
                    }
                }
            }
            Err(NodesError::SessionEnded) => return gone_with_session(jobs),
            Err(_) => jobs.iter_mut().for_each(|job| job.tried = Tried::Perhaps),
        }
        jobs
    }
}

fn gone_with_session(mut jobs: Vec<Job>) -> Vec<Job> {
    jobs.iter_mut().for_each(Job::gone_with_session);
    jobs
}
