//! `ls`, `inspect` and `deadlocks`: they change nothing.

use std::process::ExitCode;
use std::time::SystemTime;

use recipes_core::{Basis, Session, WaitForGraph};

use crate::args::DeadlocksArguments;
use crate::commands::strangers;
use crate::exit::{Failure, code, warn};
use crate::output::json::{DeadlocksView, ListView, LockView, UnreadableView};
use crate::output::print::{print, write};
use crate::output::table;

pub(crate) async fn list(session: &Session, root: &str, as_json: bool) -> Result<(), Failure> {
    let scan = recipes_core::internal::scan_with_strangers(session, root).await?;
    let view = ListView::from(&scan);
    warn_of(&view.unreadable);
    print(as_json, &view, || table::list(&scan.locks, now()))
}

pub(crate) async fn inspect(session: &Session, path: &str, as_json: bool) -> Result<(), Failure> {
    let lock = match recipes_core::internal::inspect_with_strangers(session, path).await {
        Ok(lock) => lock,
        Err(error) => return Err(strangers::explained(session, error).await),
    };
    print(as_json, &LockView::from(&lock), || {
        table::lock(&lock, now())
    })
}

pub(crate) async fn deadlocks(
    session: &Session,
    arguments: &DeadlocksArguments,
    as_json: bool,
) -> Result<ExitCode, Failure> {
    let scan = recipes_core::internal::scan_with_strangers(session, &arguments.root).await?;
    let graph = WaitForGraph::of(&scan.locks);
    let cycles = graph.cycles();
    let view = DeadlocksView::new(&graph, &cycles, &scan);
    warn_of(&view.unreadable);
    match arguments.dot {
        true => write(&graph.to_dot())?,
        false => print(as_json, &view, || {
            table::deadlocks(&graph, &cycles, &scan.locks)
        })?,
    }
    let surest = cycles.iter().map(|it| table::basis(it)).min();
    Ok(match surest {
        None => ExitCode::SUCCESS,
        Some(Basis::Owner) => ExitCode::from(code::DEADLOCK),
        Some(Basis::Session) => ExitCode::from(code::POSSIBLE_DEADLOCK),
    })
}

fn warn_of(unreadable: &[UnreadableView]) {
    for UnreadableView { path, error } in unreadable {
        warn(&format!("what is below {path:?} is not shown: {error}"));
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "ages are for people; nothing is decided by them"
)]
pub(crate) fn now() -> SystemTime {
    SystemTime::now()
}
