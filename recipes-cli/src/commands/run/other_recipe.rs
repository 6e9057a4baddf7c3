//! Directories that have nodes of another recipe.
//!
//! A mutex, a read/write lock and a leader latch on one path do not keep each other out. A run looks
//! before it waits, so that it does not wait in vain, and again when it holds: of two runs that start
//! at the same time, the one that made its node later sees the other's.

use recipes_core::internal::{Front, inspect_front};
use recipes_core::{InspectError, LockGuard, Recipe, Session};
use recipes_leader::ElectionLayout;

use super::Wanted;
use crate::args::Mode;
use crate::exit::{Failure, code};

/// A semaphore has no nodes in the directory that is its path.
fn is_to_look(wanted: &Wanted<'_>) -> bool {
    let is_semaphore = matches!(wanted.arguments.mode, Mode::Semaphore(_));
    !wanted.arguments.allow_other_recipe && !is_semaphore
}

pub(super) async fn refuse_before(session: &Session, wanted: &Wanted<'_>) -> Result<(), Failure> {
    if !is_to_look(wanted) {
        return Ok(());
    }
    for path in &wanted.arguments.paths {
        // Whatever else is wrong with the directory, the acquire meets it too, and reports it.
        if let Ok(front) = inspect_front(session, path, 0).await {
            refuse(path, &front, wanted.arguments.mode)?;
        }
    }
    Ok(())
}

/// Looks again before the command starts. Not when the lock is lost meanwhile: nothing starts then.
pub(super) async fn refuse_after(
    session: &Session,
    guard: &LockGuard,
    wanted: &Wanted<'_>,
) -> Result<(), Failure> {
    if !is_to_look(wanted) {
        return Ok(());
    }
    for path in &wanted.arguments.paths {
        let seen = tokio::select! {
            biased;
            _ = guard.lost() => return Ok(()),
            seen = inspect_front(session, path, 0) => seen,
        };
        match seen {
            Ok(front) => refuse(path, &front, wanted.arguments.mode)?,
            // The node was removed with its directory, which the guard learns too.
            Err(InspectError::NoSuchNode { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn refuse(path: &str, front: &Front, mode: Mode) -> Result<(), Failure> {
    let (own, other) = match mode {
        Mode::Mutex => (Recipe::Mutex, Recipe::ReadWrite),
        Mode::Read | Mode::Write => (Recipe::ReadWrite, Recipe::Mutex),
        // A mutex and a leader with these nodes keep each other out.
        Mode::Leader(ElectionLayout::LeaderSelector) => (Recipe::Mutex, Recipe::ReadWrite),
        Mode::Leader(_) => (Recipe::Election, Recipe::Unknown),
        Mode::Semaphore(_) => return Ok(()),
    };
    if front.holders + front.waiters == 0 || front.recipe == own {
        return Ok(());
    }
    let theirs = match front.recipe {
        // Its own node is there too.
        Recipe::Unknown => other,
        theirs => theirs,
    };
    let advice = match theirs {
        Recipe::Mutex => "use --mode mutex, or another path",
        Recipe::ReadWrite => "use --mode read or write, or another path",
        Recipe::Election => "use --mode leader-latch, or another path",
        Recipe::Semaphore | Recipe::Unknown => "use another path",
    };
    let what = match theirs {
        Recipe::Mutex | Recipe::ReadWrite => format!("a {} lock", theirs.as_str()),
        Recipe::Semaphore => "a semaphore".to_owned(),
        Recipe::Election => "a leader latch".to_owned(),
        Recipe::Unknown => "another recipe".to_owned(),
    };
    let message = format!(
        "{path:?} has nodes of {what}, which this run and its --mode would not keep out, so the \
         command is not started: {advice}; --allow-other-recipe goes on all the same"
    );
    Err(Failure::new(code::USAGE, message))
}
