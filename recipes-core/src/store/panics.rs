//! Clients that panic. A panic is a lost connection.

use std::any::Any;
use std::error::Error as StdError;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::future::FutureExt;
use thiserror::Error;
use tracing::error;

use crate::log::STORE;

/// A client of a server has panicked. The text is its own.
#[derive(Debug, Error)]
#[error("the client of the server panicked: {0}")]
struct Panicked(String);

impl Panicked {
    fn with(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|it| (*it).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Self(text.unwrap_or_else(|| "it said nothing".to_owned()))
    }
}

/// Waits for a client. A panic of it is an error, and in the log.
///
/// # Errors
/// The client has panicked. What it was asked may have been done, and it must not be asked again.
#[doc(hidden)]
pub async fn caught<T>(
    future: impl Future<Output = T>,
) -> Result<T, Arc<dyn StdError + Send + Sync>> {
    match AssertUnwindSafe(future).catch_unwind().await {
        Ok(output) => Ok(output),
        Err(panic) => {
            let panicked = Panicked::with(&*panic);
            error!(target: STORE, why = %panicked, "connection given up");
            Err(Arc::new(panicked))
        }
    }
}
