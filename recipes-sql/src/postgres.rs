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

use recipes_core::{ConfigError, Error, Session};

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

/// PostgreSQL as the store of locks.
///
/// What it promises depends on the server: see
/// [`Session::guarantee`](recipes_core::Session::guarantee).
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), recipes_core::Error> {
/// # use recipes_sql as lock_recipes;
/// use lock_recipes::Postgres;
///
/// let session = Postgres::connect("postgres://app:secret@db/shop").await?;
/// // ... take locks ...
/// session.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub enum Postgres {}

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
}
