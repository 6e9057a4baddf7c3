//! Drives one attempt: carries out the state machine's actions, and feeds it the resulting events.
//!
//! The loop in [`serve`] does all the waiting of all locks. From before a create is sent until the
//! leases are made, [`CleanupGuard`](crate::attempt::cleanup_guard::CleanupGuard) stands by to
//! delete the nodes, however the future ends.

use std::sync::Arc;

use tokio::time::Instant;

use crate::attempt::in_flight::InFlight;
use crate::error::AcquireError;
use crate::lock::lease::Lease;
use crate::lock::session::Session;
use crate::lock::target::Target;
use crate::rules::acquire::{AcquireMachine, Action, Event, GrantedNode, Outcome, Patience};
use crate::rules::delay::Progress;
use crate::session::leftovers::Leftovers;
use crate::sync::{Mutex, lock};

/// Acquires a set of locks, in as many epochs as it takes. Returns one lease for each target, in the
/// order of the targets. Notes in `progress` what it waits for.
pub(crate) async fn acquire(
    session: &Session,
    targets: &[Target],
    patience: Patience,
    progress: &Mutex<Progress>,
) -> Result<Outcome<Vec<Lease>>, AcquireError> {
    let Some(first) = targets.first() else {
        return Ok(Outcome::Granted(Vec::new()));
    };
    let members = targets.iter().map(|it| (it.kind, it.place()));
    let machine = AcquireMachine::new(members, patience);
    let permits = Target::permits(targets).map_or(1, |it| *it.borrow());
    let mut machine = machine.with_permits(permits);
    loop {
        // What was ahead in an earlier epoch is not what the next one waits for.
        *lock(progress) = Progress::default();
        let epoch = session.core().open_epoch(&first.lock.path).await?;
        let Ok(nodes) = epoch.nodes() else {
            epoch.ended().await;
            continue;
        };
        let directories = targets.iter().map(|it| Arc::clone(&it.lock.path));
        let leftovers = Arc::new(Leftovers::new(directories));
        let _in_use = epoch.contend(&leftovers);
        let mut flight = InFlight::new(session, &epoch, &nodes, targets, leftovers);
        let served = tokio::select! {
            biased;
            _ = epoch.ended() => continue,
            served = serve(&mut machine, &mut flight, progress) => served?,
        };
        if matches!(served, Outcome::Granted(_)) {
            *lock(progress) = Progress::default();
        }
        return Ok(served.map(|nodes| flight.leases(nodes)));
    }
}

/// Serves the attempt in one epoch.
async fn serve(
    machine: &mut AcquireMachine,
    flight: &mut InFlight<'_>,
    progress: &Mutex<Progress>,
) -> Result<Outcome<Vec<GrantedNode>>, AcquireError> {
    let mut actions = machine.step(Event::SessionStarted(flight.epoch.session_id));
    'events: loop {
        lock(progress).note(machine.awaited(), Instant::now());
        for action in actions {
            match action {
                Action::Grant(nodes) => {
                    let doubt = match flight.quarantine().await {
                        // Nobody watched over nodes that were alone, and the listing is old.
                        true => Some(Event::Lapsed),
                        false => flight.doubt(&nodes),
                    };
                    match doubt {
                        None => return Ok(Outcome::Granted(nodes)),
                        Some(event) => {
                            actions = machine.step(event);
                            continue 'events;
                        }
                    }
                }
                Action::Busy => {
                    flight.all_withdrawn().await?;
                    return Ok(Outcome::Busy);
                }
                Action::Fail(failure) => return flight.failed(failure),
                action => flight.carry_out(action),
            }
        }
        actions = machine.step(flight.next_event().await?);
    }
}
