//! The front of a lock's queue, for a price that does not grow with the queue.

use crate::error::QueryError;
use crate::inspect::reader::{ReadNode, Reader};
use crate::inspect::standing::{self, Child, QueuePlace};
use crate::inspect::{Contender, Recipe, Standing};
use crate::lock::session::Session;
use crate::names::path;

/// Whom a lock keeps waiting, and who is at the front. By names, so that only the front is read: a
/// stranger with the name of a lock node counts as a contender, as contenders treat it.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Front {
    /// The recipe whose nodes are in the directory.
    pub recipe: Recipe,
    /// How many nodes hold.
    pub holders: usize,
    /// How many nodes wait.
    pub waiters: usize,
    /// The names of nodes that no lock recipe made.
    pub strangers: Vec<String>,
    /// The first nodes of the queue that others wait for, as they were read: holders, or strangers
    /// that nobody passes. Nobody is asked whether their sessions are silent.
    pub first: Vec<Contender>,
}

/// Shows the front of a lock. Sends one list, and a read of up to `most` nodes.
///
/// # Errors
/// As [`inspect`](crate::inspect). A directory without contenders is no error.
///
/// # Cancel safety
/// Dropping the future is harmless.
#[doc(hidden)]
pub async fn inspect_front(
    session: &Session,
    path: &str,
    most: usize,
) -> Result<Front, QueryError> {
    path::validate(path)?;
    let reader = Reader::new(session);
    let names = reader.list(path).await?;
    // Which session owns a node is not known from its name.
    let children = names.iter().map(|name| Child {
        name,
        session: None,
    });
    let children: Vec<_> = children.collect();
    let places = standing::places(&children);
    let holds = |it: &&QueuePlace| it.mode.is_some() && it.waits_for.is_empty();
    let holders: Vec<_> = places.iter().filter(holds).map(|it| it.child).collect();
    let contenders = places.iter().filter(|it| it.mode.is_some()).count();
    let strangers = places.iter().filter(|it| it.mode.is_none());
    let strangers = strangers.filter_map(|it| names.get(it.child).cloned());
    let mut front = Front {
        recipe: standing::recipe(places.iter().filter_map(|it| it.mode)),
        holders: holders.len(),
        waiters: contenders - holders.len(),
        strangers: strangers.collect(),
        first: Vec::new(),
    };
    let first_waiter = || places.iter().find(|it| it.mode.is_some());
    let ahead = match holders.is_empty() {
        true => first_waiter().map_or_else(Vec::new, |it| it.waits_for.clone()),
        false => holders,
    };
    for name in ahead.iter().take(most).filter_map(|it| names.get(*it)) {
        let read = reader.node(&format!("{path}/{name}")).await?;
        // A node that is gone meanwhile is not at the front any more.
        front.first.extend(read.map(|(node, _)| at_front(node)));
    }
    Ok(front)
}

fn at_front(node: ReadNode) -> Contender {
    let mode = node.child().mode();
    let ReadNode {
        participant,
        is_readable,
    } = node;
    Contender {
        participant,
        is_readable,
        mode,
        standing: mode.map_or(Standing::Stranger, |_| Standing::Holds),
        silent_for: None,
    }
}
