//! Where a service begins.

use recipes_core::{ConfigError, Error, Session};

use super::builder::MySqlBuilder;
use super::schema;

/// MySQL or MariaDB as the store of locks.
///
/// What it promises depends on the server: see
/// [`Session::guarantee`](recipes_core::Session::guarantee).
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), recipes_core::Error> {
/// # use recipes_sql as lock_recipes;
/// use lock_recipes::MySql;
///
/// let session = MySql::connect("mysql://app:secret@db/shop").await?;
/// // ... take locks ...
/// session.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub enum MySql {}

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
}
