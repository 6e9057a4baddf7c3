//! All accepted differences between the double, which behaves as ZooKeeper does, and the stores on
//! Redis, PostgreSQL and MariaDB, and why. These comparisons ignore nothing else.
//!
//! | | difference | reason |
//! |---|---|---|
//! | 1 | Numbers of transactions and sessions, and times, differ; the order of transactions is the same, and so is what belongs to one. | Numbers follow the server's clock, so that a replica that is promoted does not repeat them. See `renaming`. |
//! | 2 | Children are listed in another order. | No store promises one; These have them by their sequence or name. `seen` sorts. |
//! | 3 | Several watches of one session on one path fire in another order. | The server knows one watch on a path for each session, and the client fires them by their number; in memory the seed draws the order. |
//! | 4 | When a session ends, the events of its ephemeral nodes come in another order, and so does the end of its watches. | Its nodes have no order on the server, and its watches are a hash map in the client. |
//! | 5 | When a client connects again, what it has missed comes in another order. | In memory the seed draws the order. |
//! | 6 | A watch of an expired session on a node that went with it reports the deletion or the end of the session. | The deletion is published first, and arrives if there is a connection. On a database also for a session that is closed, since it looks no more. |
//! | 7 | For requests that were sent together, events and replies come in another order; a watch that is set and fires among them may come at any place. | They are one call. On Redis its events come before its answers; on a database they come with the next look. |
//! | 8 | Nodes have no rights, and sessions no credentials. | Who may use the server is decided by its own users, for all keys of a prefix. No script here has them. |
//! | 9 | Paths are not checked, and the root may be named. | The core checks the path of every lock before any request (`validate_path`), by the rules of ZooKeeper. No script here has bad ones. |
//! | 10 | Version -1 is one that no node has. | It means any version on ZooKeeper's wire only; the seam says `None`. No script here has it. |
//! | 11 | A node that was deleted and created again while a client was cut off: its watch reports the deletion, and in memory a change. | ZooKeeper compares the last change only; these stores also know which transaction created the node. The core reads the node after either. |
//!
//! | 12 | The deletion of a child does not raise `pzxid` of its parent. | It would be a write more. On a database, whoever releases a lock does not wait for the commits of those who enter, so it leaves the directory alone. Nothing rests on that number there: no directory is watched. |
//! | 13 | On a database, the events of a step come in another order, and in none with replies. | Sessions look for news over a connection of their own, and tell those of their own nodes first. Every event has come before the reply to a `sync`. |
//! | 14 | On a database, a watch on a node that was changed and then deleted reports the deletion, and in memory the change. | A look shows what is. The core reads the node after either. |
//!
//! | 15 | That a deleted node was the first of its siblings is reported by Redis for a delete that is a call of its own, and by a database never. In memory it is always. | It saves a listing, and need not be reported. What Redis reports is compared. |
//!
//! Differences 3 to 7 are those of `differences`, which removes them for both stores. The number in
//! the reply to a transaction that creates is compared here, because these return it as newer
//! ZooKeeper servers do.
//!
//! The scripts do not contain containers that are removed, a server that forgets or is replaced,
//! sessions that expire by time, nor requests that are lost with a connection.

use recipes_core::NodeMode;
use recipes_core::internal::validate_path;

use crate::differences;
use crate::script::{Change, Made, Place, Request, Rights, Script, Step};
use crate::seen::{EventKind, Heard, Seen};

/// What is left of a script for these stores.
pub(crate) fn script(script: Script) -> Script {
    let steps = script.steps.into_iter().filter_map(step);
    Script {
        steps: steps.collect(),
    }
}

fn step(step: Step) -> Option<Step> {
    match step {
        // 8
        Step::Open { session, .. } => Some(Step::Open {
            session,
            credentials: false,
        }),
        Step::Ask { session, requests } => {
            let requests: Vec<_> = requests.into_iter().filter_map(request).collect();
            (!requests.is_empty()).then_some(Step::Ask { session, requests })
        }
        Step::Forget {
            session,
            request: forgotten,
        } => request(forgotten).map(|request| Step::Forget { session, request }),
        other => Some(other),
    }
}

fn request(request: Request) -> Option<Request> {
    match request {
        Request::Create(node) => made(node).map(Request::Create),
        Request::Multi(changes) => {
            let changes = changes.into_iter().filter_map(change);
            Some(Request::Multi(changes.collect()))
        }
        Request::Delete(ref place)
        | Request::List(ref place)
        | Request::Read(ref place)
        | Request::Watch(ref place)
        | Request::Sync(ref place) => is_checked(place, "").then_some(request),
    }
}

fn change(change: Change) -> Option<Change> {
    match change {
        Change::Create(node) => made(node).map(Change::Create),
        Change::Delete(ref place, version)
        | Change::Set(ref place, _, version)
        | Change::Check(ref place, version) => {
            (is_checked(place, "") && version != Some(-1)).then_some(change)
        }
    }
}

fn made(made: Made) -> Option<Made> {
    let sequence = match made.mode {
        NodeMode::EphemeralSequential => "0",
        _ => "",
    };
    is_checked(&made.place, sequence).then_some(Made {
        rights: Rights::Everything,
        ..made
    })
}

// 9
fn is_checked(place: &Place, sequence: &str) -> bool {
    validate_path(&format!("{}{sequence}", place.full("/directory"))).is_ok()
}

/// Whether no script for these stores can have this outcome.
pub(crate) fn never_seen(outcome: &str) -> bool {
    // 8 and 9
    let refusals = [": NoAuth", ": BadAcl", ": BadPath"];
    refusals.iter().any(|refusal| outcome.ends_with(refusal))
}

// 15
pub(crate) fn without_first(mut memory: Seen, real: Seen) -> (Seen, Seen) {
    for heard in &mut memory.heard {
        let is_known = real.heard.contains(heard);
        match heard {
            Heard::Event { event, .. } if *event == EventKind::DeletedAsFirst && !is_known => {
                *event = EventKind::Deleted;
            }
            _ => {}
        }
    }
    (memory, real)
}

// 13, 14
pub(crate) fn without_order(step: &Step, mut memory: Seen, mut real: Seen) -> (Seen, Seen) {
    for seen in [&mut memory, &mut real] {
        seen.heard.retain(|it| *it != Heard::Reply);
        if seen.ended.is_some() {
            seen.heard.iter_mut().for_each(differences::end);
        }
        seen.heard.sort_unstable();
    }
    if step.deletes() {
        for heard in &mut memory.heard {
            know_deletion(heard, &real.heard);
        }
        memory.heard.sort_unstable();
    }
    (memory, real)
}

/// What a session saw of a step in both worlds, without what may differ.
pub(crate) fn without(step: &Step, memory: Seen, real: Seen) -> (Seen, Seen) {
    let mut memory = differences::without_orders(step, memory);
    let real = differences::without_orders(step, real);
    if matches!(step, Step::Mend { .. }) {
        for heard in &mut memory.heard {
            know_deletion(heard, &real.heard);
        }
        memory.heard.sort_unstable();
    }
    (memory, real)
}

// 11
fn know_deletion(heard: &mut Heard, real: &[Heard]) {
    let mut known = heard.clone();
    match &mut known {
        Heard::Event { event, .. } if *event == EventKind::Changed => *event = EventKind::Deleted,
        _ => return,
    }
    if real.contains(&known) {
        *heard = known;
    }
}
