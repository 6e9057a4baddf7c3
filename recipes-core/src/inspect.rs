//! Locks as they are seen from outside: who holds, who waits, and for whom.

mod cycles;
mod error;
mod graph;
mod reader;
mod standing;
#[cfg(test)]
mod tests;

pub use error::InspectError;
pub use graph::{Basis, Edge, Party, WaitForGraph};

use futures::stream::{FuturesUnordered, StreamExt};

use crate::error::QueryError;
use crate::inspect::reader::{Directory, Node, Reader};
use crate::inspect::standing::Child;
use crate::node_name::LockKind;
use crate::nodes::NodesError;
use crate::participants::Participant;
use crate::path;
use crate::session::Session;

/// How many directories a scan visits at a time. Each needs two round trips or three, so that this
/// many keep the requests coming; what is known of a directory is kept while it is visited.
const DIRECTORIES_AT_ONCE: usize = 32;

/// A lock and everybody who contends for it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// Path of the lock directory.
    pub path: String,
    /// What its nodes are of.
    pub recipe: Recipe,
    /// All nodes in the directory, in the order in which they are admitted.
    pub contenders: Vec<Contender>,
}

impl Inspection {
    /// Those who hold the lock: one, or several readers.
    pub fn holders(&self) -> impl Iterator<Item = &Contender> {
        let contenders = self.contenders.iter();
        contenders.filter(|it| it.standing == Standing::Holds)
    }

    /// Those who wait for it, the next one first.
    pub fn waiters(&self) -> impl Iterator<Item = &Contender> {
        let contenders = self.contenders.iter();
        contenders.filter(|it| matches!(it.standing, Standing::WaitsFor(_)))
    }
}

/// The recipe whose nodes are in a lock directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recipe {
    /// Those of a mutex.
    Mutex,
    /// Those of a read/write lock.
    ReadWrite,
    /// Those of both, which order nodes differently: neither keeps the other out. Each contender
    /// stands as its own recipe takes it to.
    Unknown,
}

impl Recipe {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Mutex => "mutex",
            Self::ReadWrite => "read/write",
            Self::Unknown => "unknown",
        }
    }
}

/// One node in a lock directory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Contender {
    /// The node, with what its maker wrote.
    pub participant: Participant,
    /// Whether the data could be read. Where the node's ACL refuses that, it is empty, and nothing is
    /// known but the session and the time.
    pub is_readable: bool,
    /// How it wants to hold the lock, `None` for a stranger.
    pub mode: Option<LockKind>,
    /// How it stands.
    pub standing: Standing,
}

/// What the order says about a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It may hold the lock. Whether its maker knows that yet, or still lives, is not seen from
    /// outside.
    Holds,
    /// It waits for the deletion of these, full paths, nearest first: back to the nearest one that
    /// waits itself for whatever is further ahead.
    WaitsFor(Vec<String>),
    /// Nobody contends by it: no lock recipe gave it its name, or it goes with no session. Contenders
    /// behind it wait for it all the same, as Curator's do.
    Stranger,
}

/// The locks below a node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Scan {
    /// Those that somebody contends for, by path.
    pub locks: Vec<Inspection>,
    /// Nodes whose children could not be listed, by path: there may be locks below them.
    pub unreadable: Vec<(String, QueryError)>,
}

/// Shows one lock: who holds it, who waits, in which order and for whom.
///
/// Any lock of Curator's layout is understood, whoever made its nodes. Takes a `sync`, a list, and a
/// read of each node; changes nothing.
///
/// # Guarantees
/// - The order, and who waits for whom, are by the rules that the locks themselves go by.
/// - All that was committed before the call is seen. What happens during it may be: a node that is
///   gone when it is read is left out. A lock that became free meanwhile has no contenders.
///
/// Curator before 5.5.0 gives a thread that writes, and reads as well, a reader at the tail of the
/// queue: that one is shown as waiting, though the thread is inside.
///
/// # Errors
/// [`InspectError`]; [`NotALock`](InspectError::NotALock) also for a lock that nobody contends for:
/// its directory, empty, may still be there.
///
/// # Cancel safety
/// Nothing is lost by dropping the future.
///
/// # Examples
/// ```no_run
/// # async fn example(session: &recipes_core::Session) -> Result<(), recipes_core::InspectError> {
/// let lock = recipes_core::inspect(session, "/locks/orders").await?;
/// for holder in lock.holders() {
///     let who = holder.participant.identity();
///     println!("{} {:?}", holder.participant.path, who);
/// }
/// # Ok(())
/// # }
/// ```
pub async fn inspect(session: &Session, path: &str) -> Result<Inspection, InspectError> {
    let failed = |error| InspectError::failed(path, error);
    path::validate(path).map_err(|error| failed(error.into()))?;
    let reader = Reader::new(session);
    reader.sync(path).await.map_err(failed)?;
    let directory = reader.directory(path).await.map_err(failed)?;
    lock_in(path, directory).ok_or_else(|| InspectError::NotALock {
        path: path.to_owned(),
    })
}

/// Shows all locks that somebody contends for, at or below a node; `/` for all that there are.
///
/// A lock is a node with a child that a lock recipe has named, and that goes with a session. Every
/// node below `root` is asked for its children, so this is for people and their tools, not for a
/// service that does its work: about one request for each node that is there, and one for each that
/// contends. 64 at most are under way at a time, and what is kept is what is returned.
///
/// # Guarantees
/// Each lock as [`inspect`] shows it. They are seen one after the other: what several say together
/// need not have been true at any one time.
///
/// # Errors
/// [`InspectError`] for `root` itself, or where the ensemble does not answer. A node below that may
/// not be listed is named in [`Scan::unreadable`].
///
/// # Cancel safety
/// Nothing is lost by dropping the future.
pub async fn scan(session: &Session, root: &str) -> Result<Scan, InspectError> {
    // Not a lock itself, but the place of all locks.
    let failed = |error| InspectError::failed(root, error);
    if root != "/" {
        path::validate(root).map_err(|error| failed(error.into()))?;
    }
    let reader = &Reader::new(session);
    reader.sync(root).await.map_err(failed)?;
    let mut scan = Scan {
        locks: Vec::new(),
        unreadable: Vec::new(),
    };
    let mut waiting = vec![root.to_owned()];
    let mut visits = FuturesUnordered::new();
    // Ends as the tree does: a node has one parent, and is visited once.
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
                scan.locks.extend(lock_in(&path, directory));
            }
            Err(error) if path == root || is_silence(&error) => {
                return Err(InspectError::failed(&path, error));
            }
            // It has left meanwhile.
            Err(QueryError::Failed {
                source: NodesError::NoNode,
                ..
            }) => {}
            Err(error) => scan.unreadable.push((path, error)),
        }
    }
    scan.locks.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    scan.unreadable.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(scan)
}

/// Whether the ensemble would not answer about other nodes either.
fn is_silence(error: &QueryError) -> bool {
    error.is_transient() || matches!(error, QueryError::SessionClosed { .. })
}

/// What a directory says, `None` where it is no lock's.
fn lock_in(path: &str, directory: Directory) -> Option<Inspection> {
    let Directory { nodes, left, .. } = directory;
    let children: Vec<_> = nodes.iter().map(Node::child).collect();
    let modes: Vec<_> = children.iter().filter_map(Child::mode).collect();
    let recipe = match (modes.is_empty(), left.is_empty()) {
        (true, true) => return None,
        // Those that left before they were read were contenders, for all that is known.
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
        let Node {
            participant,
            is_readable,
        } = nodes.get_mut(child)?.take()?;
        Some(Contender {
            participant,
            is_readable,
            mode,
            standing,
        })
    });
    Some(Inspection {
        path: path.to_owned(),
        recipe,
        contenders: contenders.collect(),
    })
}
