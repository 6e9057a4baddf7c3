//! Where the sessions of a store come from.

use std::error::Error as StdError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use recipes_core::{Nodes, NodesError};

use crate::client::KeptNodes;
use crate::keeper::Keeper;
use crate::kept::Terms;

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
    pub fn diagnose(&self) -> Option<Arc<dyn StdError + Send + Sync>> {
        let failed = self.failed().take();
        // The first attempt is still under way.
        let error = failed.unwrap_or_else(|| self.terms.unanswered());
        Some(match error {
            NodesError::Unknown(source) => source,
            error => Arc::new(error),
        })
    }

    fn failed(&self) -> MutexGuard<'_, Option<NodesError>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
