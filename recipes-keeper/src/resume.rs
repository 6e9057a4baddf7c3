//! Takes a session up again over a new connection.

use std::sync::Arc;
use std::time::Duration;

use recipes_core::internal::log::{Causes, SessionId};
use recipes_core::{Backoff, Connection, EndReason, NodeOp, NodesError};
use tracing::warn;

use crate::STORE;
use crate::answers::Trouble;
use crate::asked::Asked;
use crate::kept::{Kept, Promise, quarantined};
use crate::moment::Moment;
use crate::patience::Patience;
use crate::watches::Rewatch;
use crate::wire::{Caller, Resume, Wire};

/// Watches that one call sets again.
const REWATCHED_MAX: usize = 200;
/// Nodes that one call deletes.
const DELETED_MAX: usize = 100;

/// Tries until the session goes on over a new connection, or is over.
pub(crate) async fn connected(
    kept: &Kept,
    connections: &mut u64,
) -> Result<Box<dyn Wire>, EndReason> {
    let mut backoff = Backoff::default();
    let patience = Patience::new(kept.terms.connect_timeout);
    let mut said = String::new();
    loop {
        *connections += 1;
        match resumed(kept, *connections, &patience).await {
            Ok(Some(wire)) => return Ok(wire),
            Ok(None) => return Err(EndReason::Expired),
            Err(error) => {
                let why = Causes(&error).to_string();
                if why != said {
                    warn!(target: STORE, session = %SessionId(kept.id), why, "cannot connect");
                    said = why;
                }
                *kept.trouble() = Some(error);
            }
        }
        backoff.wait().await;
    }
}

/// Connects, and goes on with the session. `None` if it is over.
async fn resumed(
    kept: &Kept,
    number: u64,
    patience: &Patience,
) -> Result<Option<Box<dyn Wire>>, NodesError> {
    let terms = &kept.terms;
    kept.shared.watches.count_on(number);
    let wire = terms.open(&kept.shared, number, patience).await?;
    let went_on = go_on(kept, &*wire, number);
    let went_on = patience.within(went_on, |within| terms.unanswered(within));
    let goes_on = went_on.await?;
    if goes_on {
        wire.started(&kept.caller(number));
    }
    Ok(goes_on.then_some(wire))
}

/// Takes up the session over a new connection, and sets its watches again. False if it is over.
async fn go_on(kept: &Kept, wire: &dyn Wire, number: u64) -> Result<bool, NodesError> {
    wire.subscribe(kept.id).await?;
    let rewatches = kept.shared.watches.confirmed();
    let run = &wire.facts().run;
    // Asked for once, with the first of the watches.
    let mut is_new = kept.owned().is_new(run);
    // Before it is heard again.
    let may_have_ended = kept.may_have_ended();
    let mut told = Vec::new();
    let mut quarantine = Duration::ZERO;
    let caller = kept.caller(number);
    // At least once, also without watches.
    let mut chunks = rewatches.chunks(REWATCHED_MAX);
    let mut chunk: &[Rewatch] = chunks.next().unwrap_or_default();
    kept.known_by().push(number);
    loop {
        let resume = Resume {
            caller: Arc::clone(&caller),
            known_by: kept.known_by().clone(),
            run: run.clone(),
            wants_nodes: is_new,
            watches: chunk.to_vec(),
        };
        let sent = Moment::now();
        let Some(resumed) = wire.resume(resume).await? else {
            return Ok(false);
        };
        if resumed.news.len() != chunk.len() {
            let trouble = "news of other watches than were set".to_owned();
            return Err(Trouble::Unexpected(trouble).into());
        }
        quarantine = quarantine.max(resumed.quarantine);
        told.extend(resumed.news);
        let nodes = resumed.nodes;
        if std::mem::take(&mut is_new) {
            // The run before may have ended the session and granted others its place, and this one
            // has forgotten it: a contender would be granted beside them.
            let deleted = match may_have_ended {
                true => kept.owned().all(nodes),
                false => kept.owned().deleted(nodes),
            };
            if !delete(wire, &caller, &deleted).await? {
                return Ok(false);
            }
            kept.owned().go_on(run);
        }
        kept.shared.was_heard(sent);
        match chunks.next() {
            Some(next) => chunk = next,
            None => break,
        }
    }
    kept.is_known_by(number);
    kept.promised(Promise {
        guarantee: wire.facts().guarantee,
        grants_from: quarantined(quarantine),
    });
    // Before any news or answer of this connection.
    kept.link.send_replace(Connection::Connected);
    for (watch, event) in rewatches.iter().zip(told) {
        if let Some(event) = event {
            let watches = &kept.shared.watches;
            watches.fire(number, &watch.path, watch.number, event);
        }
    }
    Ok(true)
}

/// Deletes nodes that are back. False if the session is over.
async fn delete(
    wire: &dyn Wire,
    caller: &Arc<Caller>,
    paths: &[String],
) -> Result<bool, NodesError> {
    for paths in paths.chunks(DELETED_MAX) {
        let deletes = paths.iter().map(|path| {
            let delete = NodeOp::Delete {
                path: path.clone(),
                version: None,
            };
            Asked::Multi([delete].into())
        });
        // What is refused is gone already.
        if wire.undo(caller, &deletes.collect()).await?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}
