//! The requests of an attempt, each ending in an event for the state machine.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::{self, join_all};
use uuid::Uuid;

use crate::attempt::ask::Ask;
use crate::attempt::creation::share_directory;
use crate::error::Step;
use crate::lock::lock_path::LockPath;
use crate::lock::revocation;
use crate::lock::target::{Permits, Target};
use crate::names::node_name::{self, LockKind};
use crate::rules::acquire::{Event, Found};
use crate::rules::mixed;
use crate::session::own_watch::OwnWatch;
use crate::store::nodes::{Listing, NewNode, NodeEvent, NodeMode, Nodes, NodesError, commit};
use crate::store::retry::persist;

/// A request that the store refuses, or that ended with the session.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) path: Arc<str>,
    pub(crate) step: Step,
    /// The node or directory where the step was to be taken.
    pub(crate) node: String,
    pub(crate) source: NodesError,
}

/// Attributes an error to a step in the directory of a lock.
pub(crate) fn at(lock: &LockPath, step: Step) -> impl Fn(NodesError) -> Refused {
    on(lock, step, &lock.path)
}

/// Attributes an error to a step on a node, or in a directory.
fn on(lock: &LockPath, step: Step, node: &str) -> impl Fn(NodesError) -> Refused {
    move |source| Refused {
        path: Arc::clone(&lock.path),
        step,
        node: node.to_owned(),
        source,
    }
}

/// Lists every directory once; one that does not exist is empty.
pub(crate) async fn probe(nodes: &dyn Nodes, targets: &[Target]) -> Result<Event, Refused> {
    let listings = targets.chunk_by(share_directory).map(async |together| {
        let mut listings = vec![Vec::new(); together.len()];
        if let ([first, ..], [listing, ..]) = (together, listings.as_mut_slice()) {
            *listing = list(nodes, &first.lock).await?;
        }
        Ok(listings)
    });
    let listings: Result<Vec<_>, _> = join_all(listings).await.into_iter().collect();
    Ok(Event::Probed(listings?.concat()))
}

pub(crate) async fn list(nodes: &dyn Nodes, lock: &LockPath) -> Result<Vec<String>, Refused> {
    match persist(|| nodes.list(&lock.path)).await {
        Err(NodesError::NoNode) => Ok(Vec::new()),
        listing => listing.map_err(at(lock, Step::List)),
    }
}

/// Lists the directory for a contender that has this node there, if it has one.
pub(crate) async fn list_again(
    nodes: &dyn Nodes,
    lock: &LockPath,
    own: Option<String>,
) -> Result<Vec<String>, Refused> {
    let Some(own) = own else {
        return list(nodes, lock).await;
    };
    match persist(|| nodes.list_again(&lock.path, &own)).await {
        Err(NodesError::NoNode) => Ok(Vec::new()),
        listing => listing.map_err(at(lock, Step::List)),
    }
}

/// Creates the directories of these locks, and missing parents.
pub(crate) async fn make_parents(nodes: &dyn Nodes, targets: &[&Target]) -> Result<Event, Refused> {
    let is_of_leases = |it: &&&Target| it.kind == LockKind::Permit;
    let (leases, others): (Vec<_>, Vec<_>) = targets.iter().partition(is_of_leases);
    for target in leases {
        let is_new = make_directory(nodes, target).await?;
        // Before the directory of the mutex exists, without which nobody gets a permit.
        let Some((node, found)) = beside_a_semaphore(nodes, target).await? else {
            continue;
        };
        if is_new {
            // It would refuse the others. Where it cannot be deleted, their error names it.
            drop(persist(|| nodes.delete(&target.lock.path)).await);
        }
        return Ok(Event::BesideOthers(node, found));
    }
    for target in others {
        make_directory(nodes, target).await?;
    }
    Ok(Event::ParentsMade)
}

/// A contender's node on the path of the semaphore of which this is a lease, if there is one.
async fn beside_a_semaphore(
    nodes: &dyn Nodes,
    lease: &Target,
) -> Result<Option<(String, LockKind)>, Refused> {
    let Some((path, mixed::LEASES)) = lease.lock.path.rsplit_once('/') else {
        return Ok(None);
    };
    found_beside(lease, path, persist(|| nodes.list(path)).await)
}

/// As [`beside_a_semaphore`], for the leases among these, if the store keeps no directories: nobody has made that of
/// the leases, and looked. The request is sent at once.
pub(crate) fn look_beside<'a>(
    nodes: &'a dyn Nodes,
    asks: &[Ask<'a>],
) -> Option<impl Future<Output = Result<Option<Event>, Refused>> + Send + use<'a>> {
    let is_lease = |it: &&Ask<'a>| it.target.kind == LockKind::Permit;
    let lease = asks.iter().find(is_lease)?.target;
    if lease.lock.session.core().store.traits().keeps_directories {
        return None;
    }
    let (path, _) = lease.lock.path.rsplit_once('/')?;
    let sent = nodes.list(path);
    Some(async move {
        let found = match sent.await {
            Err(error) if error.is_transient() => beside_a_semaphore(nodes, lease).await?,
            listing => found_beside(lease, path, listing)?,
        };
        Ok(found.map(|(node, found)| Event::BesideOthers(node, found)))
    })
}

fn found_beside(
    lease: &Target,
    path: &str,
    listing: Listing,
) -> Result<Option<(String, LockKind)>, Refused> {
    match listing {
        Ok(children) => {
            let found = mixed::node_beside_a_semaphore(&children);
            Ok(found.map(|(name, kind)| (format!("{path}/{name}"), kind)))
        }
        // Parents that exist need not be readable.
        Err(NodesError::NoNode | NodesError::NoAuth) => Ok(None),
        Err(error) => Err(on(&lease.lock, Step::List, path)(error)),
    }
}

/// Goes up from the directory until one can be created, then down again. So parents that exist need
/// not be readable. Returns whether the directory is new.
async fn make_directory(nodes: &dyn Nodes, target: &Target) -> Result<bool, Refused> {
    let refused = |directory: &str, source| {
        let parent = match directory.rsplit_once('/') {
            Some((parent, _)) if !parent.is_empty() => parent,
            _ => "/",
        };
        on(&target.lock, Step::CreateParents, parent)(source)
    };
    let options = &target.lock.session.core().options;
    let mut mode = options.parent_mode.node_mode();
    let path: &str = &target.lock.path;
    let mut missing = vec![path];
    let mut is_new = false;
    while let Some(directory) = missing.last().copied() {
        let node = NewNode {
            path: directory.to_owned(),
            data: Arc::default(),
            mode,
        };
        let mut tries = 0;
        let create = || {
            tries += 1;
            nodes.create(&node)
        };
        match persist(create).await {
            Ok(_) => {
                is_new = true;
                missing.pop();
            }
            // An earlier try, without an answer, may have made it.
            Err(NodesError::NodeExists) => {
                is_new = tries > 1;
                missing.pop();
            }
            Err(NodesError::Unsupported) if mode == NodeMode::Container => {
                mode = NodeMode::Persistent;
            }
            Err(NodesError::NoNode) => match directory.rsplit_once('/') {
                Some((parent, _)) if !parent.is_empty() => missing.push(parent),
                // Not even the root exists: the chroot is missing.
                _ => return Err(refused(directory, NodesError::NoNode)),
            },
            // A session that may not create here may still use an existing directory.
            Err(NodesError::NoAuth) => match exists(nodes, directory).await {
                Ok(true) => {
                    is_new = false;
                    missing.pop();
                }
                Ok(false) => return Err(refused(directory, NodesError::NoAuth)),
                Err(error) => return Err(refused(directory, error)),
            },
            Err(error) => return Err(refused(directory, error)),
        }
    }
    Ok(is_new)
}

async fn exists(nodes: &dyn Nodes, path: &str) -> Result<bool, NodesError> {
    match persist(|| nodes.read(path)).await {
        Ok(found) => Ok(found.is_some()),
        // It exists, but we may not read it.
        Err(NodesError::NoAuth) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Searches for the nodes that creates of unknown outcome may have made.
///
/// A commit comes first. Otherwise the server that answers may lag behind the one that took the
/// create, the create may still be in flight, or a deposed leader may answer that knows of neither.
/// We would then miss the node, create another, and wait for ourselves.
pub(crate) async fn search<'a>(nodes: &'a dyn Nodes, asks: &[Ask<'a>]) -> Result<Event, Refused> {
    if let Some(first) = asks.first() {
        let lock = &first.target.lock;
        persist(|| commit(nodes, &lock.path))
            .await
            .map_err(at(lock, Step::List))?;
    }
    if let Some(beside) = look_beside(nodes, asks) {
        if let Some(others) = beside.await? {
            return Ok(others);
        }
    }
    let together = asks.chunk_by(|one, next| share_directory(one.target, next.target));
    let found = together.map(async |together| {
        let Some(first) = together.first() else {
            return Ok(Vec::new());
        };
        let uuids: Vec<_> = together.iter().map(|ask| ask.uuid).collect();
        search_directory(nodes, &first.target.lock, &uuids).await
    });
    let found: Result<Vec<_>, _> = join_all(found).await.into_iter().collect();
    Ok(Event::Searched(found?.concat()))
}

/// For each uuid, the nodes of the directory that creates with it have made.
async fn search_directory(
    nodes: &dyn Nodes,
    lock: &LockPath,
    uuids: &[Uuid],
) -> Result<Vec<Vec<Found>>, Refused> {
    let children = list(nodes, lock).await?;
    let found = uuids.iter().map(async |uuid| {
        let protection = node_name::protection(*uuid);
        let mut all = Vec::new();
        for name in children.iter().filter(|it| it.starts_with(&protection)) {
            all.extend(stat(nodes, lock, name.clone()).await?);
        }
        Ok(all)
    });
    join_all(found).await.into_iter().collect()
}

/// Proves after an outage that the session is alive.
pub(crate) async fn prove(nodes: &dyn Nodes, lock: &LockPath) -> Result<Event, Refused> {
    persist(|| commit(nodes, &lock.path))
        .await
        .map_err(at(lock, Step::List))?;
    Ok(Event::Committed)
}

/// The node as the server knows it, `None` if it does not exist.
pub(crate) async fn stat(
    nodes: &dyn Nodes,
    lock: &LockPath,
    name: String,
) -> Result<Option<Found>, Refused> {
    let path = lock.node_path(&name);
    let read = persist(|| nodes.read(&path))
        .await
        .map_err(on(lock, Step::Watch, &path))?;
    Ok(read.map(|(_, stat)| Found {
        name,
        owner: stat.ephemeral_owner,
        czxid: stat.czxid,
    }))
}

/// Watches a node that a member waits for until it is gone or changed.
pub(crate) async fn blocker(
    nodes: &dyn Nodes,
    lock: &LockPath,
    member: usize,
    name: String,
) -> Result<Event, Refused> {
    let path = lock.node_path(&name);
    let watched = persist(|| nodes.watch(&path))
        .await
        .map_err(on(lock, Step::Watch, &path))?;
    // Drops the data, which may be large, before the wait.
    match watched.map(|(.., watch)| watch) {
        None => Ok(Event::BlockerGone(member, name)),
        Some(watch) => match watch.await {
            NodeEvent::Deleted => Ok(Event::BlockerGone(member, name)),
            NodeEvent::DeletedAsFirst => Ok(Event::FirstGone(member, name)),
            NodeEvent::Changed => Ok(Event::BlockerChanged),
            NodeEvent::SessionEnded => Err(at(lock, Step::Watch)(NodesError::SessionEnded)),
        },
    }
}

/// Waits until the semaphore has more permits than are known, or fewer than are wanted. Another lower
/// number lets nobody in: the last look before a grant sees it.
pub(crate) async fn permits(
    mut permits: Permits,
    wanted: usize,
    known: usize,
) -> Result<Event, Refused> {
    let is_news = |now: &usize| *now > known || (*now < wanted && wanted <= known);
    let now = permits.wait_for(is_news).await;
    let now = now.map(|now| *now);
    match now {
        Ok(now) => Ok(Event::Permits(now)),
        // No handle is left that could change it.
        Err(_) => future::pending().await,
    }
}

/// What is known about our own node while it waits.
#[derive(Default)]
pub(crate) struct OwnNode {
    pub(crate) watch: Option<OwnWatch>,
    /// A request to give the lock up has been seen.
    pub(crate) is_revoked: bool,
    /// The listing after its create showed no other node, or would have.
    pub(crate) was_alone: bool,
}

impl OwnNode {
    /// Returns the event of its watch, once.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Option<NodeEvent> {
        match self.watch.as_mut()?.poll(cx) {
            Poll::Ready(event) => {
                self.watch = None;
                Some(event)
            }
            Poll::Pending => None,
        }
    }

    pub(crate) fn take_watch(&mut self) -> Option<OwnWatch> {
        self.watch.take()
    }
}

/// Reads our own node and watches it; `None` if it is gone.
pub(crate) async fn own_watch(
    nodes: &dyn Nodes,
    lock: &LockPath,
    name: &str,
) -> Result<Option<OwnNode>, Refused> {
    let path = lock.node_path(name);
    let watched = persist(|| nodes.watch(&path))
        .await
        .map_err(on(lock, Step::Watch, &path))?;
    Ok(watched.map(|(data, _, watch)| OwnNode {
        watch: Some(OwnWatch::new(watch)),
        is_revoked: revocation::is_request(&data),
        ..OwnNode::default()
    }))
}

#[cfg(test)]
mod tests;
