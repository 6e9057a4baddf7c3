//! Opening a session.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use crate::clock::human;
use crate::store::nodes::NodesError;

/// Why no session could be opened.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No server of the store opened a session in time. Nothing is left behind.
    #[error("no server of {address:?} answered within {}", human(*waited))]
    TimedOut {
        /// The store, as the call named it.
        address: String,
        /// How long the call waited.
        waited: Duration,
        /// What each server did when it was tried once more, such as refuse the connection. `None`
        /// if that could not be found out.
        #[source]
        source: Option<Arc<dyn StdError + Send + Sync>>,
    },
    /// The part of the store below which the address puts all paths does not exist. Create it.
    /// Nothing is left behind.
    #[error("cannot connect to {address:?}: chroot {chroot} does not exist")]
    ChrootMissing {
        /// The store, as the call named it.
        address: String,
        /// Full path of what is missing.
        chroot: String,
    },
    /// The store refused the session for good, for example for its credentials. Nothing is left
    /// behind.
    #[error("cannot connect to {address:?}")]
    Refused {
        /// The store, as the call named it.
        address: String,
        /// The answer.
        #[source]
        source: NodesError,
    },
    /// A session with a runtime of its own cannot have one: the system gives this process no thread, or no file
    /// descriptors. Nothing was sent.
    #[error("cannot start the runtime of a session")]
    NoRuntime {
        /// What the system said.
        #[source]
        source: Arc<io::Error>,
    },
}
