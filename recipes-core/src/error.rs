//! The error of every call, and an enum for each kind of call.

mod acquire;
pub(crate) mod address;
mod any;
mod config;
mod connect;
mod fence;
mod latch;
mod loss;
mod query;
mod release;
mod timeout;
mod transaction;

pub use acquire::{AcquireError, Step};
pub use any::Error;
pub use config::ConfigError;
pub use connect::ConnectError;
pub use fence::FenceError;
pub use latch::LatchError;
pub use loss::{LostError, LostReason, VerifyError};
pub use query::QueryError;
pub use release::ReleaseError;
pub use timeout::TimeoutReason;
pub use transaction::TransactionError;
