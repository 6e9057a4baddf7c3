//! Errors, one enum for each operation.

mod acquire;
mod config;
mod connect;
mod loss;
mod query;
mod release;
mod revoke;
mod timeout;
mod transaction;

pub use acquire::{AcquireError, Step};
pub use config::ConfigError;
pub use connect::ConnectError;
pub use loss::{LostError, LostReason, VerifyError};
pub use query::QueryError;
pub use release::ReleaseError;
pub use revoke::RevokeError;
pub use timeout::TimeoutReason;
pub use transaction::TransactionError;
