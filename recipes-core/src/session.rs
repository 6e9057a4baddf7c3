//! One session of the service over many sessions of the store.
//!
//! | file | noun |
//! |---|---|
//! | `core` | what a session consists of, for the locks above it |
//! | `phase`, `health` | what it is doing; what its users see of that |
//! | `options` | what a service sets |
//! | `builder_macro` | the same, as methods of the builder of a store |
//! | `session_task` | opens one epoch after the other, and closes |
//! | `epoch` | one session of the store, and what hangs on it |
//! | `epoch_task` | the epoch's heartbeats, and looks at own nodes |
//! | `link` | whether the epoch is connected |
//! | `check_schedule` | when to look at which node |
//! | `own_watch` | the watch on an own node |
//! | `connections` | numbers for the connections of an epoch |
//! | `witness` | notes what each answer proves |
//! | `silence` | since when the store does not answer |
//! | `free_uuids` | uuids that the next nodes may have |
//! | `leftovers` | what an attempt may have made |
//! | `create_in_flight` | a create without an answer, which another attempt may adopt |
//! | `tenant` | what an epoch can lose: a lease, for those above |
//! | `cleanup` | deletes nodes in the background |
//! | `under_way` | waits for futures of which there may be none |

mod builder_macro;
pub(crate) mod check_schedule;
pub(crate) mod cleanup;
pub(crate) mod connections;
pub(crate) mod core;
pub(crate) mod create_in_flight;
pub(crate) mod epoch;
pub(crate) mod epoch_task;
pub(crate) mod free_uuids;
pub(crate) mod health;
pub(crate) mod leftovers;
pub(crate) mod link;
pub(crate) mod options;
pub(crate) mod own_watch;
pub(crate) mod phase;
pub(crate) mod session_task;
pub(crate) mod silence;
pub(crate) mod tenant;
pub(crate) mod under_way;
pub(crate) mod witness;
