//! The service: it reads its configuration again and again, and serves the last complete one.

use std::error::Error as StdError;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use tracing::warn;

use crate::config::{Config, Unusable};
use crate::say;
use crate::store::Store;

/// The wait before a retry, so that a server that is down keeps no processor busy.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// Reads this many times, or for ever, and prints what it serves after each read.
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

/// The configuration that is served.
#[derive(Debug, Default)]
pub(crate) struct Service {
    pub(crate) config: Option<Config>,
}

impl Service {
    /// Serves what was read if it is complete. Otherwise it serves what it has, and returns why.
    ///
    /// An error if it has nothing to serve.
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

    /// The line to print: the configuration that is served, and whether it is what was read last.
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
