//! Much of it at once.
//!
//! | file | question it answers |
//! |---|---|
//! | `impatient` | what becomes of acquires that are given up before the store answers? |
//! | `few_watches` | what becomes of waiters for which there is no room to watch? |
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

mod few_watches;
mod impatient;
#[path = "../support/log.rs"]
mod log;
mod long_listing;
mod many_watches;
mod orders;
mod requests;
mod storms;
