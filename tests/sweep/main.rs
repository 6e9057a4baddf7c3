//! Every frame of an acquire, a wait, a hold and a release is cut in every way, and no promise is
//! broken.
//!
//! For each kind of lock a scripted run is watched through a [`FaultProxy`]: somebody holds, the
//! subject comes through the proxy and waits, somebody waits behind it, each is granted in turn.
//! The run is repeated once for each frame that was seen and each fault. Every run is judged from
//! outside: see `arena` and `scene`. A failure names its case; `SWEEP_CASE` with a part of that name
//! runs these alone. `partition` measures by how much a holder that is cut off knows of its loss
//! before the server gives the lock to another.
//!
//! [`FaultProxy`]: recipes_testing::FaultProxy
#![cfg(unix)]
#![allow(clippy::expect_used, reason = "a test that cannot go on has failed")]
#![allow(
    clippy::print_stdout,
    reason = "how many cases there were is part of the result"
)]

mod arena;
mod cancel;
mod case;
mod cuts;
mod partition;
mod recipe;
mod runner;
mod scene;
