//! Where the sessions of a store come from.

use std::error::Error as StdError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use recipes_core::{Nodes, NodesError};

use crate::client::KeptNodes;
use crate::keeper::Keeper;
use crate::kept::Terms;

/// How long it may take to find out why there is no session.
const DIAGNOSIS_MAX: Duration = Duration::from_secs(3);

/// Where the sessions of a store come from, one after the other.
#[derive(Debug)]
pub struct Sessions {
    terms: Terms,
    /// Why no session was opened.
    failed: Mutex<Option<NodesError>>,
    /// There was a session, so the server is not new.
    was_opened: AtomicBool,
}

impl Sessions {
    /// Opens none yet.
    pub fn new(terms: Terms) -> Self {
        Self {
            terms,
            failed: Mutex::default(),
            was_opened: AtomicBool::default(),
        }
    }

    /// Opens a session that nobody knows who does not know the secret. Dropping it closes it.
    ///
    /// # Errors
    /// What the server, or its client, has said.
    pub async fn open(&self, secret: &str) -> Result<Arc<dyn Nodes>, NodesError> {
        match Keeper::open(self.terms.clone(), !self.was_opened(), secret).await {
            Ok((kept, used)) => {
                self.was_opened.store(true, Ordering::Relaxed);
                Ok(Arc::new(KeptNodes::new(kept, used)))
            }
            Err(error) => {
                *self.failed() = Some(error.clone());
                Err(error)
            }
        }
    }

    /// Whether there was a session.
    pub fn was_opened(&self) -> bool {
        self.was_opened.load(Ordering::Relaxed)
    }

    /// Why no session was opened, for `Store::diagnose`.
    pub async fn diagnose(&self) -> Option<Arc<dyn StdError + Send + Sync>> {
        let failed = self.failed().take();
        let error = match failed {
            Some(error) => error,
            // Nobody has tried yet.
            None => {
                let connect_timeout = DIAGNOSIS_MAX.min(self.terms.connect_timeout);
                let terms = Terms {
                    connect_timeout,
                    ..self.terms.clone()
                };
                terms.open(&Arc::default(), 1).await.err()?
            }
        };
        Some(match error {
            NodesError::Unknown(source) => source,
            error => Arc::new(error),
        })
    }

    fn failed(&self) -> MutexGuard<'_, Option<NodesError>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
