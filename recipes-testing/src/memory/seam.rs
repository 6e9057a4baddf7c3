//! The seam that the locks use: the double behind the traits of `recipes-core`.
//!
//! | file | noun |
//! |---|---|
//! | `store` | what opens sessions |
//! | `nodes` | the requests of one session |
//! | `wire` | a connection of a store as that on Redis |
//! | `reply`, `watch_future` | the client's end of a request and of a watch |

mod nodes;
mod reply;
pub(super) mod store;
pub(super) mod traits;
mod watch_future;
mod wire;
