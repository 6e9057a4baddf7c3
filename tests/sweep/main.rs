//! Every frame of an acquire, a wait, a hold and a release is cut in every way, and no promise is
//! broken.
//!
//! For each kind of lock a scripted run is watched through a [`FaultProxy`]: somebody holds, the
//! subject comes through the proxy and waits, somebody waits behind it, each is granted in turn.
//! The run is repeated once for each frame that was seen and each harm; and again with the future
//! dropped at every poll. Every run is judged from outside the lock's code:
//!
//! | promise | judged by |
//! |---|---|
//! | one valid guard | whoever is granted finds all guards in its way invalid |
//! | tokens rise | over the grants of a lock that conflict, in their order |
//! | order | no node in the way that the server created earlier is there after a grant |
//! | no node left | the directories are empty while the subject's session lives on |
//! | no waiter stuck | each is granted within a bound once nobody is in its way |
//! | losses are told | `partition`: by how much before the server gives the lock to another |
//! | release | what was released is gone; what was not is pursued |
//! | no panic | of any task or thread |
//!
//! A failure names its case; `SWEEP_CASE` with a part of that name runs these cases alone.
//! `SWEEP_LONG` drops futures under all harms instead of two.
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
