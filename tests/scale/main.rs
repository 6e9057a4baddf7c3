//! Much of it at once.
//!
//! | file | question it answers |
//! |---|---|
//! | `back_at_once` | do sessions that lose a server together trample it when it is back? |
//! | `impatient` | what becomes of acquires that are given up before the store answers? |
//! | `many_watches` | does a session keep more locks than its client can watch again? |
//! | `long_listing` | does a queue work whose listing Java clients cannot read? |
//! | `orders` | does an order that is done cost anything later? |
//! | `requests` | when is a service served again after its store stood still? |
//! | `storms` | does endless or very much work become a storm of requests? |

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed"
)]

mod back_at_once;
mod impatient;
#[path = "../support/log.rs"]
mod log;
mod long_listing;
mod many_watches;
mod orders;
mod requests;
mod storms;

use std::time::Duration;

use lock_recipes::{Session, ZooKeeper};
use test_rig::TestEnsemble;

/// A session that holds a lock while others storm the ensemble. Its process shares the machine with all
/// other tests, unless `is_alone`, and may then not be served for longer than it trusts a usual session.
async fn neighbour(ensemble: &TestEnsemble, is_alone: bool) -> Session {
    if is_alone {
        return ensemble.session().await;
    }
    let options = ZooKeeper::builder().session_timeout(Duration::from_secs(300));
    ensemble.session_with(options).await
}
