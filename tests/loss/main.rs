//! What holders and waiters lose, when they learn of it, and what protects the data.
//!
//! | file | question it answers |
//! |---|---|
//! | `session_loss` | what happens to holders and waiters whose session ends? |
//! | `connection_news` | what does the log say of an outage? |
//! | `loss_news` | what does the log say of a loss, and of a session that is closed? |
//! | `closing` | how does a session close in an outage? |
//! | `outage_of_a_service` | does the log of a service explain an outage, and does it undo no good work? |
//! | `crashed_alone` | who gets the lock of a holder that crashed while nobody else was there? |
//! | `suspension` | what may be concluded after a time without a connection? |
//! | `shorter_timeout` | what happens when servers grant a shorter session timeout than before? |
//! | `servers_come_back` | does a holder keep its lock if its server is away for a part of its time? |
//! | `machine_sleeps` | what holds after the machine was suspended? |
//! | `heartbeats` | which requests keep a session alive and prove it? |
//! | `fencing` | do tokens and transactions refuse a late write? |
//! | `store_that_forgets` | what happens when an ensemble lost its data? |
//! | `removed_nodes` | is a contender granted on a node that an operator removed? |

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed"
)]

mod closing;
mod connection_news;
#[path = "../support/crashed.rs"]
mod crashed;
mod crashed_alone;
mod fencing;
mod heartbeats;
#[path = "../support/log.rs"]
mod log;
mod loss_news;
mod machine_sleeps;
mod outage_of_a_service;

mod removed_nodes;
mod servers_come_back;
mod session_loss;
mod shorter_timeout;
mod store_that_forgets;
mod suspension;
