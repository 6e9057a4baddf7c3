//! `revoke` and `break`: they take locks from those who hold them.

use std::io::{self, Write as _};
use std::sync::Arc;

use recipes_core::{Contender, InspectError, Inspection, Nodes, NodesError, Session, Standing};

use crate::arguments::{BreakArguments, EnsembleArguments};
use crate::ensemble;
use crate::failure::{Failure, code, one_line};
use crate::output::print;
use crate::text::who;
use crate::view::{BrokenView, RevokedView};

/// Asks the holders of a lock to give it up, or whoever has made one node.
pub(crate) async fn revoke(session: &Session, path: &str, as_json: bool) -> Result<(), Failure> {
    let chosen = chosen(session, path).await?;
    let mut view = RevokedView {
        path: path.to_owned(),
        asked: Vec::new(),
        gone: Vec::new(),
    };
    for contender in &chosen {
        let node = &contender.participant;
        let list = match node.revoke(session).await? {
            true => &mut view.asked,
            false => &mut view.gone,
        };
        list.push(node.path.clone());
    }
    print(as_json, &view, || {
        said("asked", &view.asked) + &said("gone already", &view.gone)
    })
}

/// Deletes the nodes of the holders of a lock, or one node.
pub(crate) async fn break_lock(
    session: &Session,
    ensemble: &EnsembleArguments,
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
    let nodes = ensemble::nodes(ensemble).await?;
    let mut view = BrokenView {
        path: path.clone(),
        deleted: Vec::new(),
        gone: Vec::new(),
    };
    for contender in &chosen {
        let node = &contender.participant.path;
        match delete(&nodes, node).await? {
            true => view.deleted.push(node.clone()),
            false => view.gone.push(node.clone()),
        }
    }
    print(as_json, &view, || {
        said("deleted", &view.deleted) + &said("gone already", &view.gone)
    })
}

/// False where it is gone.
async fn delete(nodes: &Arc<dyn Nodes>, path: &str) -> Result<bool, Failure> {
    match nodes.delete(path).await {
        Ok(()) => Ok(true),
        Err(NodesError::NoNode) => Ok(false),
        Err(error) => Err(Failure::refused(
            &format!("{path:?} is not deleted"),
            &error,
        )),
    }
}

/// Those who hold the lock of this path; or the contender whose node it is.
async fn chosen(session: &Session, path: &str) -> Result<Vec<Contender>, Failure> {
    let not_a_lock = match recipes_core::inspect(session, path).await {
        Ok(lock) => return Ok(in_the_way(lock)),
        Err(error @ InspectError::NotALock { .. }) => error,
        Err(error) => return Err(error.into()),
    };
    let directory = path.rsplit_once('/').map(|(directory, _)| directory);
    let Some(directory) = directory.filter(|it| !it.is_empty()) else {
        return Err(not_a_lock.into());
    };
    let lock = recipes_core::inspect(session, directory).await;
    let contenders = lock.map_err(|_| not_a_lock.clone())?.contenders;
    let chosen: Vec<_> = contenders
        .into_iter()
        .filter(|it| it.participant.path == path)
        .collect();
    match chosen.is_empty() {
        true => Err(not_a_lock.into()),
        false => Ok(chosen),
    }
}

/// Holders, and nodes of nobody that somebody waits for.
fn in_the_way(lock: Inspection) -> Vec<Contender> {
    let is_awaited = |path: &String| {
        let mut contenders = lock.contenders.iter();
        contenders
            .any(|it| matches!(&it.standing, Standing::WaitsFor(ahead) if ahead.contains(path)))
    };
    let is_in_the_way = |it: &&Contender| match &it.standing {
        Standing::Holds => true,
        Standing::WaitsFor(_) => false,
        Standing::Stranger => is_awaited(&it.participant.path),
    };
    lock.contenders
        .iter()
        .filter(is_in_the_way)
        .cloned()
        .collect()
}

/// Says what would be deleted, and asks.
fn confirmed(chosen: &[Contender]) -> Result<bool, Failure> {
    let mut question = String::from("These are deleted, and others may get the lock at once:\n");
    for contender in chosen {
        let path = one_line(&contender.participant.path);
        question += &format!("  {path}  {}\n", who(contender));
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
