//! The requests of an attempt, each ending in an event for the state machine.

use std::sync::Arc;

use futures::future::join_all;
use futures::{FutureExt, TryFutureExt};
use tokio::time::Instant;
use uuid::Uuid;

use crate::acquire::{Entry, Event, Found, Node};
use crate::epoch::Epoch;
use crate::error::Step;
use crate::lock_path::LockPath;
use crate::node_name::{self, LockKind};
use crate::nodes::{
    Created, MultiError, NewNode, NodeEvent, NodeMode, NodeOp, NodeOpDone, NodeWatch, Nodes,
    NodesError,
};
use crate::retry::{Backoff, persist};

/// One lock of the set that is acquired.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) lock: Arc<LockPath>,
    pub(crate) kind: LockKind,
}

/// A request that the ensemble refuses, or that ended with the session.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) step: Step,
    pub(crate) source: NodesError,
}

/// Says which step an error belongs to.
fn at(step: Step) -> impl Fn(NodesError) -> Refused {
    move |source| Refused { step, source }
}

/// A member and the uuid of the create that is under way for it.
pub(crate) type Ask<'a> = (&'a Target, Uuid);

/// Lists every directory; one that does not exist is empty.
pub(crate) async fn probe(nodes: &dyn Nodes, targets: &[Target]) -> Result<Event, Refused> {
    let listings = targets.iter().map(|target| list(nodes, &target.lock.path));
    let listings: Result<Vec<_>, _> = join_all(listings).await.into_iter().collect();
    Ok(Event::Probed(listings?))
}

pub(crate) async fn list(nodes: &dyn Nodes, directory: &str) -> Result<Vec<String>, Refused> {
    match persist(|| nodes.list(directory)).await {
        Err(NodesError::NoNode) => Ok(Vec::new()),
        listing => listing.map_err(at(Step::List)),
    }
}

/// Creates the nodes, all or none, and lists their directories in the same flush.
pub(crate) async fn enter(
    epoch: &Epoch,
    nodes: &dyn Nodes,
    asks: &[Ask<'_>],
) -> Result<Event, Refused> {
    let mut backoff = Backoff::default();
    loop {
        let sent = Instant::now();
        let new: Vec<NewNode> = asks.iter().map(new_node).collect();
        let operations: Vec<_> = new.iter().cloned().map(NodeOp::Create).collect();
        let created = match new.as_slice() {
            [node] => nodes
                .create(node)
                .map_ok(|created| vec![created])
                .left_future(),
            _ => nodes.multi(&operations).map(all_created).right_future(),
        };
        let listings: Vec<_> = asks
            .iter()
            .map(|(it, _)| nodes.list(&it.lock.path))
            .collect();
        match created.await {
            Ok(created) => {
                epoch.acknowledged(sent);
                let listings = join_all(listings).await;
                return entries(created, listings).map(Event::Entered);
            }
            Err(NodesError::NoNode) => return Ok(Event::NoParent),
            Err(NodesError::Unknown(_)) => return Ok(Event::EnterUnknown),
            Err(NodesError::Throttled) => backoff.wait().await,
            Err(refused) => return Err(at(Step::Create)(refused)),
        }
    }
}

fn new_node((target, uuid): &Ask<'_>) -> NewNode {
    target
        .lock
        .new_node(&node_name::requested(*uuid, target.kind), target.kind)
}

fn all_created(done: Result<Vec<NodeOpDone>, MultiError>) -> Result<Vec<Created>, NodesError> {
    let created = |done| match done {
        NodeOpDone::Created(created) => Some(created),
        NodeOpDone::Deleted | NodeOpDone::Set(_) | NodeOpDone::Checked => None,
    };
    match done {
        Ok(done) => Ok(done.into_iter().filter_map(created).collect()),
        Err(MultiError { source, .. }) => Err(source),
    }
}

/// A listing that was lost is asked for again; one that was refused ends the attempt.
fn entries(
    created: Vec<Created>,
    listings: Vec<Result<Vec<String>, NodesError>>,
) -> Result<Vec<Entry>, Refused> {
    let pairs = created.into_iter().zip(listings);
    pairs
        .map(|(Created { path, czxid }, listing)| {
            let name = node_name::last_part(&path).to_owned();
            let children = match listing {
                Ok(children) => Some(children),
                Err(error) if error.is_lasting() => return Err(at(Step::List)(error)),
                Err(_) => None,
            };
            Ok(Entry {
                node: Node { name, czxid },
                children,
            })
        })
        .collect()
}

/// Makes the directories of these locks and what is missing above them.
pub(crate) async fn make_parents(nodes: &dyn Nodes, targets: &[&Target]) -> Result<Event, Refused> {
    for target in targets {
        make_directory(nodes, target)
            .await
            .map_err(at(Step::CreateParents))?;
    }
    Ok(Event::ParentsMade)
}

/// From the directory upwards until one can be created, then down again: parents that exist need
/// not be readable.
async fn make_directory(nodes: &dyn Nodes, target: &Target) -> Result<(), NodesError> {
    let options = &target.lock.session.shared.options;
    let mut mode = options.parent_mode.node_mode();
    let path: &str = &target.lock.path;
    let mut missing = vec![path];
    while let Some(directory) = missing.last().copied() {
        let (acl, data) = (options.acl.of(directory), Arc::default());
        let node = NewNode {
            path: directory.to_owned(),
            data,
            acl,
            mode,
        };
        match persist(|| nodes.create(&node)).await {
            Ok(_) | Err(NodesError::NodeExists) => drop(missing.pop()),
            Err(NodesError::Unsupported) if mode == NodeMode::Container => {
                mode = NodeMode::Persistent;
            }
            Err(NodesError::NoNode) => match directory.rsplit_once('/') {
                Some((parent, _)) if !parent.is_empty() => missing.push(parent),
                // Not even the root is there: a chroot that does not exist.
                _ => return Err(NodesError::NoNode),
            },
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Looks for the nodes that a create of unknown outcome may have made.
///
/// The server that answers may lag behind the one that took the create, so `sync` comes first:
/// without it the node would not be found, another would be made, and we would wait for ourselves.
pub(crate) async fn search(nodes: &dyn Nodes, asks: &[Ask<'_>]) -> Result<Event, Refused> {
    let found = asks
        .iter()
        .map(|(target, uuid)| search_one(nodes, &target.lock, *uuid));
    let found: Result<Vec<_>, _> = join_all(found).await.into_iter().collect();
    Ok(Event::Searched(found?))
}

async fn search_one(
    nodes: &dyn Nodes,
    lock: &LockPath,
    uuid: Uuid,
) -> Result<Option<Found>, Refused> {
    persist(|| nodes.sync(&lock.path))
        .await
        .map_err(at(Step::List))?;
    let children = list(nodes, &lock.path).await?;
    let protection = node_name::protection(uuid);
    match children
        .into_iter()
        .find(|name| name.starts_with(&protection))
    {
        Some(name) => stat(nodes, lock, name).await,
        None => Ok(None),
    }
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
        .map_err(at(Step::Watch))?;
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
    match persist(|| nodes.watch(&path))
        .await
        .map_err(at(Step::Watch))?
    {
        None => Ok(Event::BlockerGone(member, name)),
        Some((_, watch)) => match watch.await {
            NodeEvent::Deleted => Ok(Event::BlockerGone(member, name)),
            NodeEvent::Changed => Ok(Event::BlockerChanged(member, name)),
            NodeEvent::SessionEnded => Err(at(Step::Watch)(NodesError::SessionEnded)),
        },
    }
}

/// Sets a watch on a node of ours, `None` if it is gone.
pub(crate) async fn own_watch(
    nodes: &dyn Nodes,
    lock: &LockPath,
    name: &str,
) -> Result<Option<NodeWatch>, Refused> {
    let path = lock.node_path(name);
    let watched = persist(|| nodes.watch(&path))
        .await
        .map_err(at(Step::Watch))?;
    Ok(watched.map(|(_, watch)| watch))
}
