//! Deletes what an outage leaves: nodes of ended sessions, and nodes of creates of unknown outcome.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::join_all;
use tokio::sync::watch;
use tracing::debug;

use super::{Deleted, Doomed, Job, current_epoch, delete_all, while_serving};
use crate::log::CLEANUP;
use crate::names::node_name;
use crate::session::epoch::Epoch;
use crate::session::phase::Phase;
use crate::store::nodes::{Nodes, NodesError, commit};
use crate::store::retry::Backoff;

/// Directories in one listing request, and nodes in one transaction.
const TOGETHER_MAX: usize = 32;

/// Listing requests in flight at a time.
const LISTINGS_MAX: usize = 8;

/// Searches until all nodes are known to be gone or were refused. Returns the remaining jobs if the
/// epoch ends first.
pub(super) async fn sweep(mut jobs: Vec<Job>, mut phase: watch::Receiver<Phase>) -> Vec<Job> {
    let mut backoff = Backoff::default();
    let Some(epoch) = current_epoch(&mut phase).await else {
        jobs.iter_mut().for_each(Job::gone_with_session);
        return Vec::new();
    };
    while !jobs.is_empty() {
        match while_serving(&mut phase, &epoch, look(&epoch, &mut jobs)).await {
            None => break,
            Some(Ok(())) => {}
            Some(Err(error)) => {
                debug!(target: CLEANUP, %error, "clean-up will be tried again")
            }
        }
        if !jobs.is_empty() {
            backoff.wait().await;
        }
    }
    jobs
}

/// Searches once, and removes the jobs that are over.
async fn look(epoch: &Epoch, jobs: &mut Vec<Job>) -> Result<(), NodesError> {
    let nodes = epoch.nodes()?;
    let directories: BTreeSet<String> = jobs.iter().flat_map(directories_of).collect();
    let directories: Vec<&str> = directories.iter().map(String::as_str).collect();
    // A create of this session may be in flight, or the server may lag behind it, so commit first.
    // Creates of ended sessions go with their session.
    let is_open =
        |job: &Job| matches!(*job.target, Doomed::MadeWith(_)) && job.made_in == epoch.number;
    let any_open = jobs.iter().any(is_open);
    let first = directories.first().filter(|_| any_open);
    let mut committed = first.map(|first| commit(&*nodes, first));
    let mut listings = BTreeMap::new();
    for batch in directories.chunks(TOGETHER_MAX * LISTINGS_MAX) {
        let chunks = batch.chunks(TOGETHER_MAX);
        let listed: Vec<_> = chunks.clone().map(|some| nodes.list_all(some)).collect();
        // The first listings were sent right after the commit.
        if let Some(committed) = committed.take() {
            committed.await?;
        }
        for (some, listed) in chunks.zip(listed) {
            listings.extend(some.iter().copied().zip(listed.await?));
        }
    }
    let mut found: Vec<Result<Vec<String>, NodesError>> = Vec::new();
    for job in jobs.iter() {
        found.push(nodes_of(job, &listings)?);
    }
    drop(listings);
    let all = found.iter().flatten().flatten().cloned().collect();
    let refused = delete_each(&*nodes, all).await?;
    for (mut job, found) in std::mem::take(jobs).into_iter().zip(found) {
        let error = match &found {
            Ok(paths) => paths.iter().find_map(|path| refused.get(path)),
            Err(error) => Some(error),
        };
        // Those that were not listed, nobody has deleted in this search.
        match (error, &*job.target) {
            (Some(_), _) => {}
            (None, Doomed::Nodes(paths)) => paths.iter().for_each(|path| nodes.gone(path)),
            (None, Doomed::MadeWith(creates)) => {
                for (directory, uuid) in creates {
                    nodes.gone(&format!("{directory}/{}", node_name::protection(*uuid)));
                }
            }
        }
        job.answer(match error {
            Some(error) => Deleted::Refused(error.clone()),
            None if job.made_in == epoch.number => Deleted::ByUs,
            None => Deleted::WithSession,
        });
    }
    Ok(())
}

fn directories_of(job: &Job) -> Vec<String> {
    match &*job.target {
        Doomed::Nodes(paths) => paths.iter().map(|path| split(path).0.to_owned()).collect(),
        Doomed::MadeWith(creates) => creates.iter().map(|(it, _)| it.clone()).collect(),
    }
}

/// Splits a path into directory and name.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

type Listings<'a> = BTreeMap<&'a str, Result<Vec<String>, NodesError>>;

/// The listed nodes of a job. The inner error is a refusal, the outer one fails the search.
fn nodes_of(
    job: &Job,
    listings: &Listings<'_>,
) -> Result<Result<Vec<String>, NodesError>, NodesError> {
    let children = |directory: &str| match listings.get(directory) {
        Some(Ok(children)) => Ok(children.as_slice()),
        Some(Err(NodesError::NoNode)) | None => Ok([].as_slice()),
        Some(Err(error)) => Err(error.clone()),
    };
    let found = || match &*job.target {
        Doomed::MadeWith(creates) => {
            let mut found = Vec::new();
            for (directory, uuid) in creates {
                let protection = node_name::protection(*uuid);
                let ours = children(directory)?.iter();
                let ours = ours.filter(|name| name.starts_with(&protection));
                found.extend(ours.map(|name| format!("{directory}/{name}")));
            }
            Ok(found)
        }
        Doomed::Nodes(paths) => {
            let mut ours = Vec::new();
            for path in paths {
                let (directory, name) = split(path);
                match children(directory) {
                    Ok(children) if children.iter().all(|child| child != name) => {}
                    // A node whose directory may not be listed may still be deletable.
                    Ok(_) | Err(NodesError::NoAuth) => ours.push(path.clone()),
                    Err(error) => return Err(error),
                }
            }
            Ok(ours)
        }
    };
    match found() {
        Err(error) if error.is_lasting() => Ok(Err(error)),
        Err(error) => Err(error),
        Ok(found) => Ok(Ok(found)),
    }
}

/// Deletes nodes, in as few transactions as possible, which are in flight together. Returns those
/// that may not be deleted.
async fn delete_each(
    nodes: &dyn Nodes,
    paths: BTreeSet<String>,
) -> Result<BTreeMap<String, NodesError>, NodesError> {
    let paths: Vec<String> = paths.into_iter().collect();
    let deleted = paths.chunks(TOGETHER_MAX).map(|it| delete_some(nodes, it));
    let mut refused = BTreeMap::new();
    for of_some in join_all(deleted).await {
        refused.extend(of_some?);
    }
    Ok(refused)
}

/// Deletes nodes in one transaction. Returns those that may not be deleted.
async fn delete_some(
    nodes: &dyn Nodes,
    paths: &[String],
) -> Result<Vec<(String, NodesError)>, NodesError> {
    match delete_all(nodes, paths).await {
        Err(error) if error.is_lasting() => {}
        answer => return answer.map(|()| Vec::new()),
    }
    let mut refused = Vec::new();
    for path in paths {
        match nodes.delete(path).await {
            Ok(()) | Err(NodesError::NoNode) => {}
            Err(error) if error.is_lasting() => refused.push((path.clone(), error)),
            Err(error) => return Err(error),
        }
    }
    Ok(refused)
}
