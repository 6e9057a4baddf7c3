//! The seam to a store: how it is asked, and what it answers.
//!
//! | file | noun |
//! |---|---|
//! | `backend` | opens the nodes of one epoch |
//! | `nodes` | the requests that a lock needs, and their answers |
//! | `retry` | a read is sent again until it has an answer |

pub(crate) mod backend;
pub(crate) mod nodes;
pub(crate) mod retry;
