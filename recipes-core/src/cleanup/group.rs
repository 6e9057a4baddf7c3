//! Deletions that share a transaction.

use std::collections::VecDeque;

use tokio::sync::watch;

use super::{Deleted, Job, Sent, Tried, delete_together};
use crate::nodes::NodesError;
use crate::session::Phase;

/// Nodes of one transaction, and bytes of their paths, with what a path costs besides: far from
/// the megabyte that a server takes in one request.
const NODES_MAX: usize = 32;
const BYTES_MAX: usize = 16 * 1024;

/// Jobs of one epoch.
pub(super) struct Group(Vec<Job>);

impl Group {
    /// Takes the next ones, as many as fit.
    pub(super) fn take(waiting: &mut VecDeque<Job>) -> Option<Self> {
        let made_in = waiting.front()?.made_in;
        let mut bytes = 0;
        let fits = |job: &&Job| {
            bytes += job.paths().iter().map(String::len).sum::<usize>();
            job.made_in == made_in && bytes <= BYTES_MAX
        };
        let count = waiting.iter().take(NODES_MAX).take_while(fits).count();
        Some(Self(waiting.drain(..count.max(1)).collect()))
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
        let paths = jobs.iter().flat_map(Job::paths).cloned();
        let answer = tokio::select! {
            biased;
            _ = phase.wait_for(|phase| !phase.serves(&epoch)) => Err(NodesError::SessionEnded),
            answer = delete_together(&*nodes, paths) => answer,
        };
        match answer {
            Ok(()) => {
                jobs.iter_mut().for_each(|job| job.tell(Deleted::ByUs));
                return Vec::new();
            }
            Err(NodesError::SessionEnded) => return gone_with_session(jobs),
            // Which one it is, and what becomes of the others, is seen by asking one by one.
            Err(error) if error.is_lasting() => {
                for job in &mut jobs {
                    if let Some(path) = job.paths().first() {
                        let reply = nodes.delete(path);
                        job.tried = Tried::Sent(Sent {
                            reply,
                            _alone: None,
                        });
                    }
                }
            }
            Err(_) => jobs.iter_mut().for_each(|job| job.tried = Tried::Something),
        }
        jobs
    }
}

/// Says so. An ensemble that has not ended the session too may list the nodes for a while.
fn gone_with_session(mut jobs: Vec<Job>) -> Vec<Job> {
    for job in &mut jobs {
        job.tell(Deleted::WithSession);
        job.tried = Tried::Something;
    }
    jobs
}
