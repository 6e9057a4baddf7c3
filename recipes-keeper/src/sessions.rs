//! A store whose sessions are kept here.

use std::error::Error as StdError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{self, BoxFuture, FutureExt};
use recipes_core::{Nodes, NodesError, Store, Traits};

use crate::client::KeptNodes;
use crate::keeper::Keeper;
use crate::kept::Terms;
use crate::patience::Patience;

/// What the session has to know about such a store.
pub const TRAITS: Traits = Traits {
    // Beats are a sixth of it, and a packet that was lost is sent again after 0.2 s.
    session_timeout_min: Duration::from_millis(100),
    // Servers count microseconds, some in numbers of 53 bits. This is 24 days, as with ZooKeeper.
    session_timeout_max: Duration::from_millis(0x7fff_ffff),
    reopens: true,
    closes: true,
    pings_rarely: false,
    // An acquire's create and listing are one request, so a watch on a directory saves nothing.
    watches_directories: false,
    keeps_directories: true,
    remembers_names: false,
};

/// A store whose sessions are kept here, one after the other.
#[derive(Debug)]
pub struct Sessions {
    terms: Terms,
    /// How long the next try may take.
    patience: Patience,
    /// Why no session was opened.
    failed: Mutex<Option<NodesError>>,
    /// There was a session, so the server is not new.
    was_opened: AtomicBool,
}

impl Sessions {
    /// Opens none yet.
    pub fn new(terms: Terms) -> Self {
        Self {
            patience: Patience::new(terms.connect_timeout),
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
        let was_opened = self.was_opened.load(Ordering::Relaxed);
        match Keeper::open(self.terms.clone(), !was_opened, secret, &self.patience).await {
            Ok((kept, used)) => {
                self.was_opened.store(true, Ordering::Relaxed);
                self.patience.was_answered();
                Ok(Arc::new(KeptNodes::new(kept, used)))
            }
            Err(error) => {
                *self.failed() = Some(error.clone());
                Err(self.lasting(error))
            }
        }
    }

    /// Where the server may be another in a moment, one that refuses is no reason to give up.
    fn lasting(&self, error: NodesError) -> NodesError {
        let server = &self.terms.server;
        let may_move = server.may_move() || self.was_opened.load(Ordering::Relaxed);
        match error {
            NodesError::Refused(source) if may_move && server.may_pass(&source) => {
                NodesError::Unknown(source)
            }
            error => error,
        }
    }

    fn failed(&self) -> MutexGuard<'_, Option<NodesError>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for Sessions {
    fn traits(&self) -> Traits {
        Traits {
            keeps_directories: self.terms.server.keeps_directories(),
            remembers_names: self.terms.server.remembers_names(),
            ..TRAITS
        }
    }

    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Nodes>, NodesError>> {
        let opened = async {
            let secret = self.new_uuid().simple().to_string();
            self.open(&secret).await
        };
        opened.boxed()
    }

    fn diagnose(&self) -> BoxFuture<'_, Option<Arc<dyn StdError + Send + Sync>>> {
        let failed = self.failed().take();
        // The first attempt is still under way.
        let error = failed.unwrap_or_else(|| self.terms.unanswered(self.patience.now()));
        let why = match error {
            NodesError::Unknown(source) => source,
            error => Arc::new(error),
        };
        future::ready(Some(why)).boxed()
    }
}
