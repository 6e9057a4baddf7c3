//! `revoke` and `break`: take locks from their holders.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use recipes_core::internal::{human, inspect_with_strangers};
use recipes_core::{
    Contender, Inspection, Nodes, NodesError, Participant, QueryError, Session, Standing,
};
use tokio::time::timeout;

use crate::args::{BreakArguments, StoreArguments};
use crate::commands::strangers;
use crate::exit::{Failure, code, one_line, warn};
use crate::output::json::{BrokenView, RevokedView, UnchangedView};
use crate::output::print::print;
use crate::output::table::who;
use crate::session;

/// Asks the holders of a lock, or the contender of one node, to give the lock up.
pub(crate) async fn revoke(session: &Session, path: &str, as_json: bool) -> Result<(), Failure> {
    let chosen = chosen(session, path).await?.nodes;
    // A request replaces the data of a node, which may be anything if no contender made it.
    let (asked, strangers): (Vec<_>, Vec<_>) = chosen.into_iter().partition(|it| it.mode.is_some());
    if let ([], [stranger, ..]) = (asked.as_slice(), strangers.as_slice()) {
        let node = &stranger.participant.path;
        let message = format!("nobody contends by {node:?}, which can be asked for nothing");
        return Err(Failure::new(code::NO_LOCK, message));
    }
    let changes = Changes::of(&asked, async |it| Ok(it.revoke(session).await?)).await;
    let view = RevokedView {
        path: path.to_owned(),
        asked: changes.made,
        gone: changes.gone,
        failed: changes.failed,
    };
    print(as_json, &view, || {
        said("asked", &view.asked) + &said("gone already", &view.gone)
    })?;
    outcome(&view.failed, changes.first)
}

/// Deletes the nodes of the holders of a lock, or one node.
pub(crate) async fn break_lock(
    session: &Session,
    store: &StoreArguments,
    arguments: &BreakArguments,
    as_json: bool,
) -> Result<(), Failure> {
    let path = &arguments.path;
    let chosen = chosen(session, path).await?;
    if !arguments.yes && !confirmed(&chosen)? {
        return Err(Failure::new(
            code::USAGE,
            "not confirmed, nothing is deleted",
        ));
    }
    let nodes = session::nodes(store).await?;
    let limit = store.connect_timeout;
    let changes = Changes::of(&chosen.nodes, async |it| {
        delete(&nodes, &it.path, limit).await
    })
    .await;
    let view = BrokenView {
        path: path.clone(),
        deleted: changes.made,
        gone: changes.gone,
        failed: changes.failed,
    };
    print(as_json, &view, || {
        said("deleted", &view.deleted) + &said("gone already", &view.gone)
    })?;
    outcome(&view.failed, changes.first)
}

#[derive(Default)]
struct Changes {
    made: Vec<String>,
    gone: Vec<String>,
    failed: Vec<UnchangedView>,
    first: Option<Failure>,
}

impl Changes {
    /// Changes each node. A change returns false if the node is gone.
    async fn of(
        chosen: &[Contender],
        change: impl AsyncFn(&Participant) -> Result<bool, Failure>,
    ) -> Self {
        let mut changes = Self::default();
        let mut is_silent = false;
        for node in chosen.iter().map(|it| &it.participant) {
            let changed = match is_silent {
                // Each of the rest would take as long as the first.
                true => Err(Failure::new(
                    code::NO_CONNECTION,
                    format!("{:?} is left as it is", node.path),
                )),
                false => change(node).await,
            };
            match changed {
                Ok(true) => changes.made.push(node.path.clone()),
                Ok(false) => changes.gone.push(node.path.clone()),
                Err(failure) => {
                    is_silent |= failure.code == code::NO_CONNECTION;
                    changes.failed.push(UnchangedView {
                        path: node.path.clone(),
                        error: failure.to_string(),
                    });
                    changes.first.get_or_insert(failure);
                }
            }
        }
        changes
    }
}

/// The first failure, after a warning about each of the others.
fn outcome(failed: &[UnchangedView], first: Option<Failure>) -> Result<(), Failure> {
    for other in failed.iter().skip(1) {
        warn(&other.error);
    }
    first.map_or(Ok(()), Err)
}

/// Returns false if the node is gone.
async fn delete(nodes: &Arc<dyn Nodes>, path: &str, limit: Duration) -> Result<bool, Failure> {
    let unknown = format!("{path:?} may or may not be deleted");
    match timeout(limit, nodes.delete(path)).await {
        Ok(Ok(())) => Ok(true),
        Ok(Err(NodesError::NoNode)) => Ok(false),
        Ok(Err(error @ (NodesError::Unknown(_) | NodesError::SessionEnded))) => {
            Err(Failure::refused(&unknown, &error))
        }
        Ok(Err(error)) => Err(Failure::refused(
            &format!("{path:?} is not deleted"),
            &error,
        )),
        Err(_) => Err(Failure::new(
            code::NO_CONNECTION,
            format!("{unknown}: no answer within {}", human(limit)),
        )),
    }
}

/// The nodes to change.
struct Chosen {
    /// Never empty.
    nodes: Vec<Contender>,
    /// Strangers of the directory that are left as they are.
    strangers: Vec<Contender>,
}

/// For the path of a lock: its holders, and strangers that keep contenders waiting. For the path of
/// one node of its queue: that node, if it is a contender's or keeps contenders waiting.
async fn chosen(session: &Session, path: &str) -> Result<Chosen, Failure> {
    let error = match inspect_with_strangers(session, path).await {
        Ok(lock) => return in_the_way(&lock),
        // A node that may not be listed may still be a contender's.
        Err(error @ (QueryError::NotALock { .. } | QueryError::NotAuthorized { .. })) => error,
        Err(error) => return Err(error.into()),
    };
    let directory = path.rsplit_once('/').map(|(directory, _)| directory);
    let Some(directory) = directory.filter(|it| !it.is_empty()) else {
        return Err(strangers::explained(session, error).await);
    };
    let lock = match (inspect_with_strangers(session, directory).await, &error) {
        (Ok(lock), _) => lock,
        // These errors reveal nothing about the path.
        (Err(QueryError::NotALock { .. } | QueryError::NoSuchNode { .. }), _)
        | (Err(QueryError::NotAuthorized { .. }), QueryError::NotAuthorized { .. }) => {
            return Err(strangers::explained(session, error).await);
        }
        (Err(error), _) => return Err(error.into()),
    };
    let node = lock
        .contenders
        .iter()
        .find(|it| it.participant.path == path);
    match node {
        Some(node) if node.mode.is_some() || keeps_waiting(&lock, node) => Ok(Chosen {
            nodes: vec![node.clone()],
            strangers: Vec::new(),
        }),
        Some(_) => Err(Failure::new(
            code::NO_LOCK,
            format!("nobody contends by {path:?}, and nobody waits for it"),
        )),
        None => Err(error.into()),
    }
}

fn is_awaited(lock: &Inspection, path: &str) -> bool {
    lock.contenders.iter().any(|it| match &it.standing {
        Standing::WaitsFor(ahead) => ahead.iter().any(|it| it == path),
        Standing::Holds | Standing::Stranger => false,
    })
}

/// Whether a contender waits for a stranger, or will: one with the name of a lock node is nobody's
/// configuration.
fn keeps_waiting(lock: &Inspection, stranger: &Contender) -> bool {
    let node = &stranger.participant;
    node.is_named_as_contenders_are() || is_awaited(lock, &node.path)
}

/// Holders, and nodes of no contender that keep contenders waiting.
fn in_the_way(lock: &Inspection) -> Result<Chosen, Failure> {
    let (mut nodes, mut strangers) = (Vec::new(), Vec::new());
    for contender in &lock.contenders {
        match &contender.standing {
            Standing::Holds => nodes.push(contender.clone()),
            Standing::WaitsFor(_) => {}
            Standing::Stranger if keeps_waiting(lock, contender) => nodes.push(contender.clone()),
            Standing::Stranger => strangers.push(contender.clone()),
        }
    }
    match nodes.is_empty() {
        true => {
            let names = strangers.iter().map(|it| it.participant.path.as_str());
            let others = strangers::listed(&names.collect::<Vec<_>>());
            let message = format!("nobody holds {:?}{others}", lock.path);
            Err(Failure::new(code::NO_LOCK, message))
        }
        false => Ok(Chosen { nodes, strangers }),
    }
}

/// Lists what would be deleted, and asks for confirmation.
fn confirmed(chosen: &Chosen) -> Result<bool, Failure> {
    let line = |contender: &Contender| {
        let path = one_line(&contender.participant.path);
        format!("  {path}  {}\n", who(contender))
    };
    let mut question = String::from("These are deleted, and others may get the lock at once:\n");
    question.extend(chosen.nodes.iter().map(line));
    if !chosen.strangers.is_empty() {
        question += "These belong to no contender, and stay:\n";
        question.extend(chosen.strangers.iter().map(line));
    }
    question += "Delete them? [y/N] ";
    let asked = |error| Failure::system("ask", &error);
    io::stderr().write_all(question.as_bytes()).map_err(asked)?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).map_err(asked)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn said(what: &str, paths: &[String]) -> String {
    let lines = paths
        .iter()
        .map(|path| format!("{what}: {}\n", one_line(path)));
    lines.collect()
}
