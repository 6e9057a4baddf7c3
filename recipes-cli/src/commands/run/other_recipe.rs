//! Directories that have nodes of another recipe.
//!
//! A mutex and a read/write lock on one path do not keep each other out. A run looks before it waits,
//! so that it does not wait in vain, and again when it holds: of two runs that start at the same
//! time, the one that made its node later sees the other's.

use recipes_core::internal::{Front, inspect_front};
use recipes_core::{InspectError, LockGuard, Recipe, Session};

use super::Wanted;
use crate::args::Mode;
use crate::exit::{Failure, code};

pub(super) async fn refuse_before(session: &Session, wanted: &Wanted<'_>) -> Result<(), Failure> {
    if wanted.arguments.allow_other_recipe {
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
    if wanted.arguments.allow_other_recipe {
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
    let (own, theirs) = match mode {
        Mode::Mutex => (Recipe::Mutex, Recipe::ReadWrite),
        Mode::Read | Mode::Write => (Recipe::ReadWrite, Recipe::Mutex),
    };
    if front.holders + front.waiters == 0 || front.recipe == own {
        return Ok(());
    }
    let modes = match theirs {
        Recipe::Mutex => "mutex",
        Recipe::ReadWrite | Recipe::Unknown => "read or write",
    };
    let message = format!(
        "{path:?} has nodes of a {} lock, which this run and its --mode would not keep out, so \
         the command is not started: use --mode {modes}, or another path; --allow-other-recipe \
         goes on all the same",
        theirs.as_str()
    );
    Err(Failure::new(code::USAGE, message))
}
