//! What breaks at a chosen moment: replies, orders of events, odd servers.
//!
//! | file | question it answers |
//! |---|---|
//! | `lost_replies` | what if the reply to a request is lost? |
//! | `interleavings` | what if two events meet in an unlucky order? |
//! | `reported_defects` | does this library have the defects that users of others reported? |
//! | `odd_servers` | what if a server or the network is slow, forgetful, outdated, read-only or full? |

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed"
)]

mod interleavings;
mod lost_replies;
mod odd_servers;
mod reported_defects;
