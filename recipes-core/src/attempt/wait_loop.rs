//! Drives one attempt: carries out the state machine's actions, and feeds it the resulting events.
//!
//! The loop in [`serve`] does all the waiting of all locks. From before a create is sent until the
//! leases are made, [`Armed`](crate::attempt::cleanup_guard::Armed) stands by to delete the nodes, however the
//! future ends.

use std::sync::Arc;

use crate::attempt::cleanup_guard::Stakes;
use crate::attempt::in_flight::Flight;
use crate::attempt::requests::Target;
use crate::error::AcquireError;
use crate::lock::lease::Lease;
use crate::rules::acquire::{Acquire, Action, Event, Node, Patience};
use crate::session::core::Session;

/// How an attempt that was not refused ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// One lease for each target, in the order of the targets.
    Granted(Vec<Lease>),
    /// Another contender holds some target; only with [`Patience::Try`].
    Busy,
    /// The writer that a target goes next to has been released meanwhile.
    Stale,
}

/// Acquires a set of locks, in as many epochs as it takes.
pub(crate) async fn acquire(
    session: &Session,
    targets: &[Target],
    patience: Patience,
) -> Result<Outcome, AcquireError> {
    let path = path_of(targets, 0);
    let mut machine = Acquire::new(targets.iter().map(|it| (it.kind, it.place())), patience);
    loop {
        let epoch = session.open_epoch(path).await?;
        let Ok(nodes) = epoch.nodes() else {
            epoch.ended().await;
            continue;
        };
        let stakes = Arc::new(Stakes::new(targets));
        let _contending = epoch.contend(&stakes);
        let mut flight = Flight::new(session, &epoch, &*nodes, targets, stakes);
        let served = tokio::select! {
            biased;
            _ = epoch.ended() => continue,
            served = serve(&mut machine, &mut flight) => served?,
        };
        return Ok(match served {
            Served::Granted(nodes) => Outcome::Granted(flight.leases(nodes)),
            Served::Busy => Outcome::Busy,
            Served::Stale => Outcome::Stale,
        });
    }
}

pub(crate) fn path_of(targets: &[Target], member: usize) -> &str {
    targets.get(member).map_or("", |target| &target.lock.path)
}

/// How an attempt ended in one epoch: an [`Outcome`] with nodes in place of leases.
pub(crate) enum Served {
    Granted(Vec<Node>),
    Busy,
    Stale,
}

/// Serves the attempt in one epoch.
async fn serve(machine: &mut Acquire, flight: &mut Flight<'_>) -> Result<Served, AcquireError> {
    let mut actions = machine.step(Event::SessionStarted(flight.epoch.session_id));
    'events: loop {
        for action in actions {
            match action {
                Action::Grant(nodes) => match flight.doubt(&nodes) {
                    None => return Ok(Served::Granted(nodes)),
                    Some(event) => {
                        actions = machine.step(event);
                        continue 'events;
                    }
                },
                Action::Busy => {
                    flight.all_withdrawn().await?;
                    return Ok(Served::Busy);
                }
                Action::Fail(failure) => return flight.failed(failure),
                action => flight.carry_out(action),
            }
        }
        actions = machine.step(flight.next_event().await?);
    }
}
