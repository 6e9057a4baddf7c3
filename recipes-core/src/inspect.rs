//! Locks seen from outside: their holders, their waiters, which node each waiter waits for, and whose sessions are silent.

mod cycles;
pub(crate) mod first;
pub(crate) mod front;
mod graph;
pub(crate) mod participants;
mod reader;
mod standing;
#[cfg(test)]
mod tests;

pub use graph::{Basis, Edge, Party, WaitForGraph};

use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};

use crate::error::{Error, QueryError};
use crate::inspect::participants::Participant;
use crate::inspect::reader::{Directory, ReadNode, Reader};
use crate::inspect::standing::Child;
use crate::lock::session::Session;
use crate::names::node_name::{self, LockKind};
use crate::names::path;
use crate::rules::mixed::{LEASES, MUTEX};

/// How many directories a scan visits at a time. Each needs two or three round trips, so this many
/// keep the connection busy. What is known of a directory is kept while it is visited.
const DIRECTORIES_AT_ONCE: usize = 32;

/// A lock and all its contenders.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// Path of the lock directory.
    pub path: String,
    /// The recipe whose nodes are in the directory.
    pub recipe: Recipe,
    /// All nodes in the directory, in the order in which they are admitted.
    pub contenders: Vec<Contender>,
}

impl Inspection {
    /// The contenders that hold the lock: one, or several readers.
    pub fn holders(&self) -> impl Iterator<Item = &Contender> {
        let contenders = self.contenders.iter();
        contenders.filter(|it| it.standing == Standing::Holds)
    }

    /// The contenders that wait for it, the next one first.
    pub fn waiters(&self) -> impl Iterator<Item = &Contender> {
        let contenders = self.contenders.iter();
        contenders.filter(|it| matches!(it.standing, Standing::WaitsFor(_)))
    }
}

/// The recipe whose nodes are in a lock directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recipe {
    /// Nodes of a mutex.
    Mutex,
    /// Nodes of a read/write lock.
    ReadWrite,
    /// Leases of a semaphore. How many may hold is not in the store, so each shows as a holder; the
    /// contenders that wait are in the directory `locks` next to it, and the first of them may have
    /// its leases here already. [`inspect`] shows both by the semaphore's own path.
    Semaphore,
    /// Nodes of a leader latch.
    Election,
    /// Nodes of several. They order nodes differently, so none keeps another out. Each contender
    /// stands as its own recipe sees it.
    Unknown,
}

impl Recipe {
    /// The recipe as one word, for output.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::ReadWrite => "read/write",
            Self::Semaphore => "semaphore",
            Self::Election => "election",
            Self::Unknown => "unknown",
        }
    }
}

/// One node in a lock directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contender {
    /// The node, with the data that its creator wrote.
    pub participant: Participant,
    /// Whether the data could be read. If the node's ACL refuses that, the data is empty. Session
    /// and time are known if the store reports them all the same:
    /// [`Participant::is_described`].
    pub is_readable: bool,
    /// The kind of lock that it contends for; `None` for a stranger.
    pub mode: Option<LockKind>,
    /// Whether it holds, waits or is a stranger.
    pub standing: Standing,
    /// For how long the store has not heard from its session, if that is longer than half of the session's timeout: a
    /// holder of this library has given the lock up by then, and the store will soon. `None` if it was heard later, or
    /// if the store does not tell: ZooKeeper tells nobody, and the others may tell it to fewer users than the rest.
    pub silent_for: Option<Duration>,
}

/// What the order of admission says about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It may hold the lock. Whether its creator knows that yet, or still lives, is not visible
    /// here.
    Holds,
    /// It waits for the deletion of these nodes, as full paths, nearest first. The list ends with
    /// the nearest node that itself waits for all nodes further ahead.
    WaitsFor(Vec<String>),
    /// It is not a contender: no lock recipe gave it its name, or no session owns it. Contenders
    /// after it wait for it all the same, as Curator's do.
    Stranger,
}

/// The locks below a node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Scan {
    /// The locks that have contenders, by path.
    pub locks: Vec<Inspection>,
    /// Nodes whose children could not be listed, by path. There may be locks below them.
    pub unreadable: Vec<(String, QueryError)>,
}

/// Shows one lock: its holders and waiters in their order, and which nodes each waiter waits for.
///
/// Understands every lock of Curator's layout, whichever client created the nodes. Sends a `sync`,
/// a list, and a read of each node, and then asks once which sessions are silent; changes nothing. That question has a
/// connection of its own, unless the session [only reads](crate::SessionOptions::read_only).
///
/// # Guarantees
/// - The order, and which nodes a contender waits for, follow the rules of the locks themselves.
/// - Everything that was committed before the call is seen. Changes during the call may be seen: a
///   node that is gone when it is read is left out. A lock that became free meanwhile has no
///   contenders.
///
/// If a thread of Curator before 5.5.0 writes and also reads, its reader stands at the tail of the
/// queue. That reader is shown as waiting, though the thread holds the lock.
///
/// # Errors
/// [`QueryError`]. [`NotALock`](QueryError::NotALock) is also returned for a lock without
/// contenders, whose empty directory may still exist.
///
/// # Cancel safety
/// Dropping the future is harmless.
///
/// # Examples
/// ```no_run
/// # async fn example(session: &recipes_core::Session) -> Result<(), recipes_core::Error> {
/// # use recipes_core as lock_recipes;
/// let lock = lock_recipes::inspect(session, "/locks/orders/4711").await?;
/// for holder in lock.holders() {
///     let who = holder.participant.identity();
///     println!("{} {:?}", holder.participant.path, who);
/// }
/// # Ok(())
/// # }
/// ```
pub async fn inspect(session: &Session, path: &str) -> Result<Inspection, Error> {
    Ok(inspect_as(session, path, Shown::Contenders).await?)
}

/// As [`inspect`]. But a directory is a lock also if a node has the name of a lock node and no
/// session owns it: no contender is there, and the first to come will wait for that node.
///
/// # Errors
/// As [`inspect`].
#[doc(hidden)]
pub async fn inspect_with_strangers(
    session: &Session,
    path: &str,
) -> Result<Inspection, QueryError> {
    inspect_as(session, path, Shown::Strangers).await
}

/// Which directories are shown as locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// Those with a contender.
    Contenders,
    /// Also those with nothing but a stranger that has the name of a lock node.
    Strangers,
}

async fn inspect_as(session: &Session, path: &str, shown: Shown) -> Result<Inspection, QueryError> {
    path::validate(path)?;
    let reader = Reader::new(session);
    reader.sync(path).await?;
    let directory = reader.directory(path).await?;
    let leases = format!("{path}/{LEASES}");
    let may_be_a_semaphore = directory.below.contains(&leases);
    let mut lock = lock_in(path, directory, shown);
    if lock.is_none() && may_be_a_semaphore {
        lock = semaphore(&reader, path, &leases, shown).await?;
    }
    reader.tell_silence(lock.as_mut_slice()).await;
    lock.ok_or_else(|| QueryError::NotALock {
        path: path.to_owned(),
    })
}

/// A semaphore by its own path: the leases of those who hold, and the queue for the next permits. `None` if nobody is
/// there, or another lock only has that name.
async fn semaphore(
    reader: &Reader<'_>,
    path: &str,
    leases: &str,
    shown: Shown,
) -> Result<Option<Inspection>, QueryError> {
    let lock_at = async |path: &str| match reader.directory(path).await {
        Ok(directory) => Ok(lock_in(path, directory, shown)),
        Err(QueryError::NoSuchNode { .. }) => Ok(None),
        Err(error) => Err(error),
    };
    let Some(leases) = lock_at(leases).await? else {
        return Ok(None);
    };
    if leases.recipe != Recipe::Semaphore {
        return Ok(None);
    }
    let queue = lock_at(&format!("{path}/{MUTEX}")).await?;
    Ok(Some(whole_semaphore(path, leases, queue)))
}

/// Both directories of a semaphore as one lock.
fn whole_semaphore(path: &str, leases: Inspection, queue: Option<Inspection>) -> Inspection {
    let mut contenders = leases.contenders;
    let of_leases = contenders.iter().rev();
    let of_leases: Vec<_> = of_leases.map(|it| it.participant.path.clone()).collect();
    for mut waiter in queue.into_iter().flat_map(|queue| queue.contenders) {
        // Whoever has the mutex waits for as many leases as it needs.
        if waiter.standing == Standing::Holds {
            waiter.standing = Standing::WaitsFor(of_leases.clone());
        }
        contenders.push(waiter);
    }
    Inspection {
        path: path.to_owned(),
        recipe: Recipe::Semaphore,
        contenders,
    }
}

/// Shows all locks with contenders, at or below a node. `/` shows all locks of the store.
///
/// A node is a lock if it has a child that a lock recipe has named and that a session owns. A scan
/// sends about one request for each node below `root`, one for each contender, and one for their sessions. So it is for
/// operators and their tools, not for the normal work of a service. At most 64 requests are in
/// flight at a time. The memory that it needs is that of its result.
///
/// # Guarantees
/// Each lock is as [`inspect`] shows it, but for a semaphore: it is shown by its two directories, `leases` with those who
/// hold a permit or wait for one, and `locks` with the mutex under which they enter. Locks are read one after the other, so several of them
/// together need not have been true at any one time.
///
/// # Errors
/// [`QueryError`] for `root` itself, or if the store does not answer. A node below `root` that
/// may not be listed is named in [`Scan::unreadable`].
///
/// # Cancel safety
/// Dropping the future is harmless.
pub async fn scan(session: &Session, root: &str) -> Result<Scan, Error> {
    Ok(scan_as(session, root, Shown::Contenders).await?)
}

/// As [`scan`], with the locks that [`inspect_with_strangers`] shows.
///
/// # Errors
/// As [`scan`].
#[doc(hidden)]
pub async fn scan_with_strangers(session: &Session, root: &str) -> Result<Scan, QueryError> {
    scan_as(session, root, Shown::Strangers).await
}

async fn scan_as(session: &Session, root: &str, shown: Shown) -> Result<Scan, QueryError> {
    // `/` cannot be a lock, but it can be the root of a scan.
    if root != "/" {
        path::validate(root)?;
    }
    let reader = &Reader::new(session);
    reader.sync(root).await?;
    let mut scan = Scan {
        locks: Vec::new(),
        unreadable: Vec::new(),
    };
    let mut waiting = vec![root.to_owned()];
    let mut visits = FuturesUnordered::new();
    // The loop ends because the tree is finite: a node has one parent, so it is visited once.
    loop {
        while visits.len() < DIRECTORIES_AT_ONCE {
            let Some(path) = waiting.pop() else { break };
            visits.push(async move {
                let directory = reader.directory(&path).await;
                (path, directory)
            });
        }
        let Some((path, directory)) = visits.next().await else {
            break;
        };
        match directory {
            Ok(mut directory) => {
                waiting.append(&mut directory.below);
                scan.locks.extend(lock_in(&path, directory, shown));
            }
            Err(error) if path == root || is_silence(&error) => return Err(error),
            // The directory was deleted meanwhile.
            Err(QueryError::NoSuchNode { .. }) => {}
            Err(error) => scan.unreadable.push((path, error)),
        }
    }
    reader.tell_silence(&mut scan.locks).await;
    scan.locks.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    scan.unreadable.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(scan)
}

/// Whether the store would not answer for other nodes either.
fn is_silence(error: &QueryError) -> bool {
    error.is_transient() || matches!(error, QueryError::SessionClosed { .. })
}

/// The lock that a directory contains; `None` if it is not a lock directory.
fn lock_in(path: &str, directory: Directory, shown: Shown) -> Option<Inspection> {
    let Directory { nodes, left, .. } = directory;
    let children: Vec<_> = nodes.iter().map(ReadNode::child).collect();
    let modes: Vec<_> = children.iter().filter_map(Child::mode).collect();
    let recipe = match (modes.is_empty(), left.is_empty()) {
        (true, true) if shown == Shown::Contenders => return None,
        (true, true) => {
            let names = children.iter().map(|it| it.name);
            let named: Vec<_> = names.filter_map(node_name::kind).collect();
            named.first()?;
            standing::recipe(named)
        }
        // Nodes that were gone when they were read count as contenders, by their names.
        (true, false) => standing::recipe(left),
        (false, _) => standing::recipe(modes),
    };
    let path_of = |child: usize| nodes.get(child).map(|node| node.participant.path.clone());
    let places: Vec<_> = standing::places(&children)
        .into_iter()
        .map(|place| (place.child, place.mode, place.standing(path_of)))
        .collect();
    let mut nodes: Vec<_> = nodes.into_iter().map(Some).collect();
    let contenders = places.into_iter().filter_map(|(child, mode, standing)| {
        let ReadNode {
            participant,
            is_readable,
        } = nodes.get_mut(child)?.take()?;
        Some(Contender {
            participant,
            is_readable,
            mode,
            standing,
            silent_for: None,
        })
    });
    Some(Inspection {
        path: path.to_owned(),
        recipe,
        contenders: contenders.collect(),
    })
}
