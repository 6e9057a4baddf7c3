//! Locks on PostgreSQL.
//!
//! | file | noun |
//! |---|---|
//! | `builder` | what a service sets |
//! | `address` | the servers that a URL names |
//! | `checks` | what a server must be like, and what it then promises |
//! | `variables` | what users may have set there that could matter, and what is done about it |
//! | `schema` | what the server keeps (`schema.sql`) and runs: `nodes`, `requests`, `enter`, `sessions`, `beats` |
//! | `line` | one connection |
//! | `tls` | its encryption |
//! | `wire` | the two connections of a session |
//! | `reads` | a connection of somebody who only reads |
//! | `calls` | the calls of the functions |
//! | `simple` | those for one lock: `enter`, `look`, `leave` |
//! | `side` | beats and polls |
//! | `words` | what is said to the functions |
//! | `answers` | what they answer, and what the server's errors mean |

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{self, BoxFuture};
use recipes_core::{ConfigError, Error, Nodes, NodesError, Session, Store, Traits};
use recipes_keeper::{Sessions, Terms};

mod address;
mod answers;
mod builder;
mod calls;
mod checks;
mod line;
mod reads;
mod schema;
mod side;
mod simple;
#[cfg(feature = "tls")]
mod tls;
mod variables;
mod wire;
mod words;

pub use builder::PostgresBuilder;
pub use checks::PostgresRefusal;

/// What the session has to know about PostgreSQL.
pub(crate) const TRAITS: Traits = Traits {
    // As with the other stores: 24 days.
    session_timeout_max: Duration::from_millis(0x7fff_ffff),
    reopens: true,
    closes: true,
    pings_rarely: false,
    // News are asked for, so they come after answers that already show what happened.
    watches_directories: false,
};

/// PostgreSQL as the store of locks.
///
/// What it promises depends on the server: see
/// [`Session::guarantee`](recipes_core::Session::guarantee).
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), recipes_core::Error> {
/// use recipes_sql::Postgres;
///
/// let session = Postgres::connect("postgres://app:secret@db/shop").await?;
/// // ... take locks ...
/// session.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Postgres {
    sessions: Sessions,
    /// The primary may be another in a moment.
    may_move: bool,
}

impl Postgres {
    /// Opens a session with default options on the server of a URL. See
    /// [`PostgresBuilder::connect`] for its form.
    ///
    /// # Errors
    /// As [`PostgresBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Session, Error> {
        Self::builder().connect(url).await
    }

    /// Starts with default options.
    pub fn builder() -> PostgresBuilder {
        PostgresBuilder::default()
    }

    /// The statements that create what the locks keep in a schema, the schema too, for whoever may
    /// carry them out. Those that exist are left alone. `lock_recipes` is the default schema.
    ///
    /// Whoever uses the locks as another user needs `USAGE` of the schema, and `SELECT`, `INSERT`,
    /// `UPDATE` and `DELETE` on its tables.
    ///
    /// # Errors
    /// For a name that cannot be one: it has lower-case letters, digits and `_`, at most 48.
    pub fn schema(name: &str) -> Result<String, Error> {
        schema::check(name).map_err(|reason| ConfigError::InvalidAddress {
            address: "postgres://".to_owned(),
            reason,
        })?;
        Ok(schema::statements(name))
    }

    /// What a session does about a variable of the server's, by its name and category in `pg_settings`: it is
    /// "set", "refused", or nothing is, and why. `None` if nobody has thought of it. For tests.
    #[doc(hidden)]
    pub fn variable(name: &str, category: &str) -> Option<&'static str> {
        variables::rule(name, category)
    }

    fn new(terms: Terms, may_move: bool) -> Self {
        Self {
            sessions: Sessions::new(terms),
            may_move,
        }
    }
}

/// Where the primary may be another in a moment, a replica that answers is no reason to give up.
fn lasting(error: NodesError, may_move: bool) -> NodesError {
    match error {
        NodesError::Refused(source) if may_move => match source.downcast_ref::<PostgresRefusal>() {
            Some(PostgresRefusal::Replica | PostgresRefusal::ReadOnly) => {
                NodesError::Unknown(source)
            }
            _ => NodesError::Refused(source),
        },
        error => error,
    }
}

impl Store for Postgres {
    fn traits(&self) -> Traits {
        TRAITS
    }

    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Nodes>, NodesError>> {
        let opened = async {
            let secret = self.new_uuid().simple().to_string();
            let opened = self.sessions.open(&secret).await;
            opened.map_err(|error| lasting(error, self.may_move || self.sessions.was_opened()))
        };
        opened.boxed()
    }

    fn diagnose(&self) -> BoxFuture<'_, Option<Arc<dyn StdError + Send + Sync>>> {
        future::ready(self.sessions.diagnose()).boxed()
    }
}
