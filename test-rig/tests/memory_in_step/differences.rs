//! All accepted differences between the double and a ZooKeeper server, and why. That comparison
//! ignores nothing else. `differences_served` has those of the other store.
//!
//! | | difference | reason |
//! |---|---|---|
//! | 1 | Numbers of transactions and sessions, and times, differ; the order of transactions is the same, and so is what belongs to one. | Other sessions use up numbers on a server, and its clock is the machine's. See `renaming`. |
//! | 2 | Children are listed in another order. | The server promises none. `seen` sorts. |
//! | 3 | Several watches of one session on one path fire in another order. | The server knows one watch on a path for each session; the order among them is the client's. |
//! | 4 | When a session ends, the events of its ephemeral nodes come in another order, and so does the end of its watches. | The nodes are one transaction, in which the server goes through a hash set; the client keeps its watches in a hash map. |
//! | 5 | When a client connects again, what it has missed comes in another order. | The client names its watches to the server from a hash map; in memory the seed draws the order. |
//! | 6 | A watch of an expired session on a node that went with it reports the deletion or the end of the session. | On a server the deletion comes first, but most often gets lost with the connection. |
//! | 7 | For requests that were sent together, events and replies come in another order; a watch that is set and fires among them may come at any place. | In memory, without delays, a request takes effect when it is made, before any reply. |
//! | 8 | The reply to a transaction that creates has no number. | Servers before 3.7.2 and 3.8.2 do not return it; newer ones do, as does the double on request. |
//! | 9 | A path that ends in `/.` or `/..` is bad input in memory. | The client lets it pass, and to a server it is the name of no node. No script requests it. |
//! | 10 | A path that is none is refused after the end of a session in memory, and reports the end on a server. | The client reads it when it is to be sent. |
//!
//! The scripts do not contain what no server does on request: lists of a replica that lags, lost
//! replies, delayed requests, reaped containers, sessions that expire by time, a new leader or one
//! that was deposed, wiped disks. Digests of credentials, which the double keeps as plain text, do
//! not occur, because rights are everyone's or the creator's.

use recipes_core::{EndReason, NodeOpDone};

use crate::script::Step;
use crate::seen::{Answer, EventKind, Heard, Refusal, Seen};

/// What a session saw of a step, without what may differ.
pub(crate) fn without(step: &Step, seen: Seen) -> Seen {
    let mut seen = without_orders(step, seen);
    for answer in &mut seen.answers {
        forget_created(answer);
        read_after_the_end(answer);
    }
    seen
}

/// Without differences 3 to 7, which are in the order of what a session hears.
pub(crate) fn without_orders(step: &Step, mut seen: Seen) -> Seen {
    let ends = matches!(
        step,
        Step::Close { .. } | Step::Expire { .. } | Step::Mend { .. }
    );
    if seen.ended == Some(EndReason::Expired) {
        for heard in &mut seen.heard {
            end(heard);
        }
    }
    if ends {
        seen.heard.sort_unstable();
    } else {
        let (mut old, mut new): (Vec<_>, Vec<_>) = seen
            .heard
            .into_iter()
            .partition(|heard| !is_new(heard, seen.requests_before));
        old.chunk_by_mut(same_cause).for_each(<[_]>::sort_unstable);
        new.sort_unstable();
        old.extend(new);
        seen.heard = old;
    }
    seen
}

// 6
pub(crate) fn end(heard: &mut Heard) {
    if let Heard::Event { event, .. } = heard {
        *event = EventKind::SessionEnded;
    }
}

// 7
fn is_new(heard: &Heard, requests_before: usize) -> bool {
    matches!(heard, Heard::Event { watch, .. } if *watch > requests_before)
}

// 3
fn same_cause(one: &Heard, other: &Heard) -> bool {
    match (one, other) {
        (
            Heard::Event { place, event, .. },
            Heard::Event {
                place: other_place,
                event: other_event,
                ..
            },
        ) => (place, event) == (other_place, other_event),
        _ => false,
    }
}

// 10
fn read_after_the_end(answer: &mut Answer) {
    if let Answer::Refused { index, why } = answer {
        // A session that lives never reports its end.
        if let Refusal::BadPath | Refusal::SessionEnded = why {
            (*index, *why) = (None, Refusal::BadPath);
        }
    }
}

// 8
fn forget_created(answer: &mut Answer) {
    if let Answer::Done(done) = answer {
        for done in done {
            if let NodeOpDone::Created(created) = done {
                created.czxid = None;
            }
        }
    }
}
