//! Who may hold: exclusion, order and tokens, for each kind of lock.
//!
//! | file | question it answers |
//! |---|---|
//! | `contention` | do contenders take turns, in the order of their nodes, with rising tokens? |
//! | `read_write` | do readers share, and do writers exclude? |
//! | `read_write_contention` | the same with many readers and writers at once |
//! | `mixed_recipes` | do two recipes on one path exclude or refuse each other? |
//! | `multi_lock` | does a set acquire all its locks or none? |
//! | `multi_lock_contention` | do many sets finish without a deadlock? |
//! | `reentrancy` | who may re-enter a lock, and who must not? |
//! | `factory` | is each key one lock? |
//! | `sharding` | which shard has a key, and how do keys move? |

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test that cannot go on has failed"
)]

mod contention;
#[path = "../support/each_recipe.rs"]
mod each_recipe;
mod factory;
#[path = "../support/log.rs"]
mod log;
mod mixed_recipes;
mod multi_lock;
mod multi_lock_contention;
mod read_write;
mod read_write_contention;
mod reentrancy;
mod sharding;
