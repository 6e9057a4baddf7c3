//! Leaders, their candidates, and who follows them.
//!
//! | file | question it answers |
//! |---|---|
//! | `terms` | who leads, in which order, under which id and number? |
//! | `endings` | how does a term end, and what is left? |
//! | `observing` | does an observer see each term, for one watch? |
//! | `latch` | does a latch lead whenever it can, and never longer? |
//! | `input` | what is refused before any request? |
//! | `handovers` | is a leader that is killed, halted or cut off over before the next one leads? |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed"
)]

#[path = "../support/again.rs"]
#[expect(dead_code, reason = "processes of other tests end by themselves")]
mod again;
mod endings;
mod handovers;
mod input;
mod latch;
mod observing;
mod terms;

use lock_recipes::{Candidate, ElectionLayout, LeaderElection, Session};

/// Both layouts, each on a path of its own.
const LAYOUTS: [(ElectionLayout, &str); 2] = [
    (ElectionLayout::LeaderSelector, "/elections/selector"),
    (ElectionLayout::LeaderLatch, "/elections/latch"),
];

const PATH: &str = "/elections/selector";

fn election(session: &Session, id: &str) -> LeaderElection {
    LeaderElection::new(session, PATH, id).unwrap()
}

fn ids(candidates: &[Candidate]) -> Vec<&str> {
    candidates.iter().map(|it| it.id.as_str()).collect()
}
