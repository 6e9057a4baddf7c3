//! What an acquire that ends early leaves, and how a holder is requested to release.
//!
//! | file | question it answers |
//! |---|---|
//! | `cancel` | what does a future leave that is dropped at any poll? |
//! | `timeout` | when does a deadline pass, and what does it leave? |
//! | `reasons` | was the lock busy, or did the store not answer? |
//! | `revocation` | which holders are notified of a request to release, and when? |

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test that cannot go on has failed"
)]

mod cancel;
mod reasons;
mod revocation;
mod timeout;
