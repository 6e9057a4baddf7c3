//! The seam that the locks use: the double behind the traits of `recipes-core`.
//!
//! | file | noun |
//! |---|---|
//! | `backend` | what opens sessions |
//! | `nodes` | the requests of one session |
//! | `reply`, `watch_future` | the client's end of a request and of a watch |

pub(super) mod backend;
mod nodes;
mod reply;
mod watch_future;
