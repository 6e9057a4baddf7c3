//! The service: reads its configuration again and again, and serves the last whole one.

use std::error::Error as StdError;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use tracing::warn;

use crate::config::{Config, Unusable};
use crate::say;
use crate::store::Store;

/// A server that is down for a moment shall not keep a processor busy.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// Reads so often, or for ever, and says what it serves after each read.
pub(crate) async fn serve(
    store: &Store,
    every: Duration,
    reads: Option<u64>,
) -> Result<(), Box<dyn StdError>> {
    let mut service = Service::default();
    let mut left = reads;
    while left != Some(0) {
        match store.read().await {
            Ok(read) => {
                let problem = service.take(read.config)?;
                say(&service.line(read.held_us, problem.as_ref()))?;
            }
            Err(error) if error.is_transient() => {
                warn!(error = &error as &dyn StdError, "reading again");
                sleep(TRY_AGAIN).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        }
        left = left.map(|left| left - 1);
        if left != Some(0) {
            sleep(every).await;
        }
    }
    Ok(())
}

/// What is served.
#[derive(Debug, Default)]
pub(crate) struct Service {
    pub(crate) config: Option<Config>,
}

impl Service {
    /// Serves what was read if it is whole, else goes on with what it has and returns why.
    ///
    /// An error where there is nothing to go on with.
    pub(crate) fn take(
        &mut self,
        read: Result<Config, Unusable>,
    ) -> Result<Option<Unusable>, Unusable> {
        match (read, &self.config) {
            (Ok(config), _) => {
                self.config = Some(config);
                Ok(None)
            }
            (Err(problem), Some(_)) => Ok(Some(problem)),
            (Err(problem), None) => Err(problem),
        }
    }

    /// What it serves, and whether that is what it read last.
    fn line(&self, held_us: [u64; 2], problem: Option<&Unusable>) -> Value {
        let config = self.config.as_ref();
        json!({
            "version": config.map(|it| it.version),
            "checksum": config.map(Config::checksum),
            "values": config.map(|it| &it.values),
            "held_us": held_us,
            "problem": problem.map(ToString::to_string),
        })
    }
}
