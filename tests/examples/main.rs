//! Each example does what its text claims.
//!
//! | file | question it answers |
//! |---|---|
//! | `quickstart` | does it print the same story in memory and on a real server? |
//! | `leader` | does one of two workers lead, and hand over? |
//! | `cookbook` | does each recipe do what it promises? |
//! | `order_service` | does an HTTP service in several processes hand out each code once? |
//! | `shared_config` | do readers in several processes ever see half of a change? |
//! | `batch_reservation` | is a batch of seats whole, and no seat taken twice? |

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::print_stderr,
    reason = "a test that cannot go on has failed"
)]

mod batch_reservation;
mod cookbook;
#[path = "../support/executable.rs"]
mod executable;
mod leader;
mod order_service;
mod quickstart;
mod shared_config;
