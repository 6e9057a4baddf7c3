//! One attempt to acquire: the loop, its requests, and what cleans up after it.
//!
//! | file | noun |
//! |---|---|
//! | `wait_loop` | carries out the machine's actions, and feeds it the events |
//! | `in_flight` | the requests and watches that are under way |
//! | `requests` | what is sent for each action |
//! | `entering` | how it gets nodes: by a create of its own, or one that another gave up |
//! | `ask` | one create, and what its directory is known to be |
//! | `creation` | the node to create |
//! | `cleanup_guard` | deletes what was made, however the future ends |

pub(crate) mod ask;
pub(crate) mod cleanup_guard;
pub(crate) mod creation;
pub(crate) mod entering;
pub(crate) mod in_flight;
pub(crate) mod requests;
pub(crate) mod wait_loop;
