//! Opening a session.

use std::time::Duration;

use thiserror::Error;

use crate::clock::human;
use crate::error::ConfigError;
use crate::store::nodes::NodesError;

/// Why no session could be opened.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The options cannot be used. Nothing was sent.
    #[error("session options cannot be used")]
    Config(#[from] ConfigError),
    /// No server of the store answered in time. Nothing is left behind.
    #[error("no server of {address:?} answered within {}", human(*waited))]
    TimedOut {
        /// The store, as the call named it.
        address: String,
        /// How long the call waited.
        waited: Duration,
    },
    /// The address or an option is not understood, or the store refused the credentials.
    #[error("cannot connect to {address:?}")]
    Refused {
        /// The store, as the call named it.
        address: String,
        /// The answer.
        #[source]
        source: NodesError,
    },
}
