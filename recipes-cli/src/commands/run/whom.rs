//! For whom a run waits.

use std::time::Duration;

use recipes_core::internal::{Front, encloses, inspect_front};
use recipes_core::{LockKind, Session, Standing};
use tokio::time::sleep;

use super::Wanted;
use super::acquire::SILENT_MAX;
use crate::args::Mode;
use crate::exit::warn;
use crate::output::table::who;

/// How many nodes at the front of a queue are read and named.
const NAMED_MAX: usize = 3;
/// The longest pause between two looks. There is more than one if nobody is in the way when the
/// first one comes, such as while the store is silent.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Says once for whom this run waits, if that takes long. It costs a list and a few reads for each
/// lock, however long the queue is.
pub(super) async fn report(session: &Session, wanted: &Wanted<'_>) {
    let (mut pause, arguments) = (SILENT_MAX, wanted.arguments);
    loop {
        sleep(pause).await;
        let mut texts = Vec::new();
        if let (Mode::Semaphore(permits), [path]) = (arguments.mode, &arguments.paths[..]) {
            let leases = inspect_front(session, &format!("{path}/leases"), 0).await;
            let taken = leases.map_or(0, |it| it.holders.min(permits));
            return warn(&format!(
                "waiting for {path}, of whose {permits} permits {taken} are taken"
            ));
        }
        for path in &wanted.arguments.paths {
            // The acquire makes the same requests, and reports what is wrong with them.
            let front = inspect_front(session, path, NAMED_MAX).await.ok();
            texts.extend(front.and_then(|it| text(path, &it, session, wanted)));
        }
        if !texts.is_empty() {
            return warn(&format!("waiting for {}", texts.join("; and for ")));
        }
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// `None` if this run holds the lock, or nobody waits for it.
fn text(path: &str, front: &Front, session: &Session, wanted: &Wanted<'_>) -> Option<String> {
    let own = session.session_id();
    let is_own = |id: i64| Some(id) == own;
    let first = front.first.first().filter(|_| front.waiters > 0)?;
    if front
        .first
        .iter()
        .any(|it| is_own(it.participant.session_id))
    {
        return None;
    }
    if first.standing == Standing::Stranger {
        let node = &first.participant.path;
        return Some(format!(
            "{path}, blocked by {node}, which belongs to no contender: lockctl break deletes it"
        ));
    }
    let mut text = format!("{path}, held by {}", who(first));
    let others = front.holders.saturating_sub(1);
    if first.mode == Some(LockKind::Read) && others > 0 {
        text += &format!(" and {others} more");
    }
    let chain = wanted.nesting.chain();
    let identities = front
        .first
        .iter()
        .filter_map(|it| it.participant.identity());
    let mut owners = identities.filter_map(|it| it.owner);
    if owners.any(|it| encloses(&it, &chain)) {
        text += ", the run that this one is part of: neither will ever go on";
    }
    Some(text)
}
