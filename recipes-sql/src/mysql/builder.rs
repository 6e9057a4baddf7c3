//! Options of a session on MySQL or MariaDB.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use recipes_core::{ConfigError, Error, Session, SessionOptions, Store, session_options};
use recipes_keeper::{CONTAINER_REST, Sessions, TRAITS, Terms};

use super::address::{Address, Credentials};
use super::checks::Allowed;
use super::schema;
use super::wire::Route;

/// What the names of all tables and procedures begin with by default.
const PREFIX: &str = "lock_recipes_";
/// Options of a session on MySQL or MariaDB, from [`MySql::builder`](crate::MySql::builder).
///
/// [`connect`](Self::connect) reports an invalid option, before anything is sent.
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), recipes_core::Error> {
/// use std::time::Duration;
/// # use recipes_sql as lock_recipes;
/// use lock_recipes::MySql;
///
/// let session = MySql::builder()
///     .session_timeout(Duration::from_secs(20))
///     .prefix("orders_")
///     .password("secret")
///     .connect("mysql://app@db/shop")
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until connect"]
pub struct MySqlBuilder {
    options: SessionOptions,
    credentials: Credentials,
    prefix: Option<String>,
    allowed: Allowed,
    may_create: bool,
    is_new: bool,
    container_rest: Duration,
}

impl Default for MySqlBuilder {
    fn default() -> Self {
        SessionOptions::new().into()
    }
}

/// Shows no secrets.
impl fmt::Debug for MySqlBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MySqlBuilder")
            .field("options", &self.options)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

/// The options of every store, and the defaults of this one.
impl From<SessionOptions> for MySqlBuilder {
    fn from(options: SessionOptions) -> Self {
        Self {
            options,
            credentials: Credentials::default(),
            prefix: None,
            allowed: Allowed::default(),
            may_create: true,
            is_new: false,
            container_rest: CONTAINER_REST,
        }
    }
}

impl MySqlBuilder {
    session_options!("At least 100 ms. The session sends something every sixth of it.");

    /// What the names of all tables and procedures begin with. Sessions with different prefixes do
    /// not see each other. Default: the `?prefix=` of the URL, or `lock_recipes_`.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = Some(prefix.to_owned());
        self
    }

    /// The user, instead of the URL's.
    pub fn username(mut self, username: &str) -> Self {
        self.credentials.username = Some(username.to_owned());
        self
    }

    /// The password, instead of the URL's.
    pub fn password(mut self, password: &str) -> Self {
        self.credentials.password = Some(password.to_owned());
        self
    }

    /// Whether the session creates tables and procedures that are missing. Default true.
    ///
    /// Without it, somebody has to run those of [`MySql::schema`](crate::MySql::schema). Then the user needs no rights but
    /// SELECT, INSERT, UPDATE, DELETE and EXECUTE.
    pub fn create_schema(mut self, may_create: bool) -> Self {
        self.may_create = may_create;
        self
    }

    /// Connects to a node of a Galera cluster, which does not replicate row locks. All sessions have
    /// to use the same node. Then [`Session::guarantee`] is `BestEffort`.
    pub fn allow_galera(mut self) -> Self {
        self.allowed.galera = true;
        self
    }

    /// The caller knows that nobody held a lock before the tables were created.
    ///
    /// Without it tables that have just been created grant no lock for three quarters of the session timeout: they may
    /// stand for some that were dropped or restored while others held locks.
    pub fn new_server(mut self) -> Self {
        self.is_new = true;
        self
    }

    /// How long a container may be empty, for tests.
    #[doc(hidden)]
    pub fn container_rest(mut self, rest: Duration) -> Self {
        self.container_rest = rest;
        self
    }

    /// Opens the session on the server of a URL, on the current tokio runtime. The session has two
    /// connections of its own; it cannot share any.
    ///
    /// `mysql://user:password@host:3306/database`, or `mariadb://`; all but host and database may be
    /// left out. Parameters after a question mark:
    ///
    /// | parameter | meaning |
    /// |---|---|
    /// | `prefix=name_` | as [`prefix`](Self::prefix) |
    /// | `ssl-mode=disabled` | no encryption, the default |
    /// | `ssl-mode=required`, `verify_ca`, `verify_identity` | encryption; the server's certificate is checked, name included, against those that the system trusts (feature `tls`) |
    /// | `ssl-ca=file.pem` | the same, against the certificates in this file |
    ///
    /// # Errors
    /// - [`ConfigError`] for options that cannot be used, or a URL that is not understood,
    ///   before anything is sent.
    /// - [`ConnectError::TimedOut`](recipes_core::ConnectError::TimedOut) after the connect timeout. The source says
    ///   what went wrong last.
    /// - [`ConnectError::Refused`](recipes_core::ConnectError::Refused) for credentials that are not accepted, and
    ///   for a server that cannot keep locks: see [`MySqlRefusal`](crate::MySqlRefusal), which is the source.
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened, or leaves an empty session that expires.
    pub async fn connect(self, url: &str) -> Result<Session, Error> {
        let (sessions, shown) = self.sessions(url)?;
        self.options.open(Arc::new(sessions), &shown).await
    }

    /// The store that [`connect`](Self::connect) gets its sessions from, to compare doubles with.
    ///
    /// # Errors
    /// For options that cannot be used.
    #[doc(hidden)]
    pub fn store(&self, url: &str) -> Result<Arc<dyn Store>, ConfigError> {
        Ok(Arc::new(self.sessions(url)?.0))
    }

    /// As [`MySql::schema`](crate::MySql::schema), with the prefix that a session at this URL would have. Nothing is sent.
    ///
    /// # Errors
    /// For a URL that is not understood, or a prefix that names cannot begin with.
    pub fn statements(&self, url: &str) -> Result<String, Error> {
        Ok(schema::script(&self.place(url)?.1))
    }

    /// The server, and the prefix of the names.
    fn place(&self, url: &str) -> Result<(Address, String), ConfigError> {
        let address = Address::parse(url, &self.credentials)?;
        let prefix = self.prefix.clone().or(address.prefix.clone());
        let prefix = prefix.unwrap_or_else(|| PREFIX.to_owned());
        schema::check(&prefix).map_err(|reason| ConfigError::InvalidAddress {
            address: address.shown.clone(),
            reason,
        })?;
        Ok((address, prefix))
    }

    /// The store, and the URL to show.
    fn sessions(&self, url: &str) -> Result<(Sessions, String), ConfigError> {
        self.options.check(&TRAITS)?;
        let (address, prefix) = self.place(url)?;
        let shown = address.shown.clone();
        let route = Route {
            address,
            prefix,
            allowed: self.allowed,
            may_create: self.may_create,
            session_timeout: self.options.requested_timeout(),
            highest: Arc::default(),
        };
        let sessions = Sessions::new(Terms {
            is_new: self.is_new,
            container_rest: self.container_rest,
            ..Terms::new(Arc::new(route), &self.options)
        });
        Ok((sessions, shown))
    }
}
