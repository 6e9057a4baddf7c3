//! What users meet besides the lock: access, requests, input, options, guides.
//!
//! | file | question it answers |
//! |---|---|
//! | `access` | do access control, credentials and chroot work? |
//! | `records` | what do nodes say of who made them? |
//! | `requests` | what does an acquire do before it is polled, and what takes it as it is? |
//! | `bad_input` | is bad input refused before any request is sent? |
//! | `errors` | does each error say which lock, what failed, and what to do? |
//! | `one_error` | is one conversion enough for every call? |
//! | `security` | do the options of TLS and SASL come with their features? |
//! | `texts` | what do errors, guards and handles say when they are printed? |
//! | `work` | what does work under a lock come to, in one call? |
//! | `blocking` | do threads get what tasks get, and what do their sessions leave? |
//! | `integration` | does continuous integration fail with each of its parts? |
//! | `guides` | do the guides cover every error and every exit code, and lead to what exists? |
//! | `guide_code` | does the Rust of the guides compile? |

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test that cannot go on has failed"
)]

mod access;
mod bad_input;
mod blocking;
#[allow(dead_code, reason = "for other tests")]
#[path = "../../recipes-cli/tests/commands/tls/certificates.rs"]
mod certificates;
mod errors;
#[allow(
    dead_code,
    unused_variables,
    clippy::needless_borrow,
    clippy::let_and_return,
    reason = "it stands here as it does in the guides"
)]
mod guide_code;
mod guides;
#[cfg(target_os = "linux")]
mod integration;
mod one_error;
mod records;
mod requests;
mod security;
mod texts;
mod work;
