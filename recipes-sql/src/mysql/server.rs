//! The server, and where sessions come from.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{self, BoxFuture};
use recipes_core::{ConfigError, Error, Nodes, NodesError, Session, Store, Traits};
use recipes_keeper::{Sessions, Terms};

use super::builder::MySqlBuilder;
use super::checks::MySqlRefusal;
use super::schema;

/// What the session has to know about the store.
pub(super) const TRAITS: Traits = Traits {
    // 24 days, as with ZooKeeper.
    session_timeout_max: Duration::from_millis(0x7fff_ffff),
    reopens: true,
    closes: true,
    pings_rarely: false,
    // Polls tell what has happened when they come, not before later answers.
    watches_directories: false,
};

/// MySQL or MariaDB as the store of locks.
///
/// What it promises depends on the server: see
/// [`Session::guarantee`](recipes_core::Session::guarantee).
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), recipes_core::Error> {
/// use recipes_sql::MySql;
///
/// let session = MySql::connect("mysql://app:secret@db/shop").await?;
/// // ... take locks ...
/// session.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct MySql {
    sessions: Sessions,
}

impl MySql {
    /// Opens a session with default options on the server of a URL. See
    /// [`MySqlBuilder::connect`] for its forms.
    ///
    /// # Errors
    /// As [`MySqlBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Session, Error> {
        Self::builder().connect(url).await
    }

    /// Starts with default options.
    pub fn builder() -> MySqlBuilder {
        MySqlBuilder::default()
    }

    /// The statements that create the tables and procedures whose names begin with a prefix, for the
    /// client `mysql` or `mariadb` of whoever may carry them out. Those that exist are left alone. `lock_recipes_`
    /// is the default prefix.
    ///
    /// Whoever uses the locks as another user needs `SELECT`, `INSERT`, `UPDATE`, `DELETE` and `EXECUTE`
    /// in the database.
    ///
    /// # Errors
    /// For a prefix that names cannot begin with: it has letters, digits and `_`, at most 48.
    pub fn schema(prefix: &str) -> Result<String, Error> {
        schema::check(prefix).map_err(|reason| ConfigError::InvalidAddress {
            address: "mysql://".to_owned(),
            reason,
        })?;
        Ok(schema::script(prefix))
    }

    pub(super) fn new(terms: Terms) -> Self {
        Self {
            sessions: Sessions::new(terms),
        }
    }
}

/// After there was a session, these may be over in a moment: another server is promoted.
fn may_pass(refusal: &MySqlRefusal) -> bool {
    matches!(
        refusal,
        MySqlRefusal::Replica { .. } | MySqlRefusal::ReadOnly
    )
}

fn lasting(error: NodesError, was_opened: bool) -> NodesError {
    match error {
        NodesError::Refused(source) if was_opened => match source.downcast_ref() {
            Some(refusal) if may_pass(refusal) => NodesError::Unknown(source),
            _ => NodesError::Refused(source),
        },
        error => error,
    }
}

impl Store for MySql {
    fn traits(&self) -> Traits {
        TRAITS
    }

    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Nodes>, NodesError>> {
        let opened = async {
            let secret = self.new_uuid().simple().to_string();
            let opened = self.sessions.open(&secret).await;
            opened.map_err(|error| lasting(error, self.sessions.was_opened()))
        };
        opened.boxed()
    }

    fn diagnose(&self) -> BoxFuture<'_, Option<Arc<dyn StdError + Send + Sync>>> {
        future::ready(self.sessions.diagnose()).boxed()
    }
}
