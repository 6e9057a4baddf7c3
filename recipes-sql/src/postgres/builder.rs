//! Options of a session on PostgreSQL.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use recipes_core::{ConfigError, Error, Session, SessionOptions, Store, session_options};
use recipes_keeper::{CONTAINER_REST, Sessions, TRAITS, Terms};

use super::address::{self, Address};
use super::schema::{self, SCHEMA};
use super::wire::Route;

/// Options of a session on PostgreSQL, from [`Postgres::builder`](crate::Postgres::builder).
///
/// [`connect`](Self::connect) reports an invalid option, before anything is sent.
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), recipes_core::Error> {
/// use std::time::Duration;
/// # use recipes_sql as lock_recipes;
/// use lock_recipes::Postgres;
///
/// let session = Postgres::builder()
///     .session_timeout(Duration::from_secs(20))
///     .schema("orders_locks")
///     .password("secret")
///     .connect("postgres://app@db/shop?sslmode=require")
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until connect"]
pub struct PostgresBuilder {
    options: SessionOptions,
    schema: Option<String>,
    may_create: bool,
    username: Option<String>,
    password: Option<String>,
    is_new: bool,
    container_rest: Duration,
}

impl Default for PostgresBuilder {
    fn default() -> Self {
        SessionOptions::new().into()
    }
}

/// Shows no secrets.
impl fmt::Debug for PostgresBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresBuilder")
            .field("options", &self.options)
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

/// The options of every store, and the defaults of this one.
impl From<SessionOptions> for PostgresBuilder {
    fn from(options: SessionOptions) -> Self {
        Self {
            options,
            schema: None,
            may_create: true,
            username: None,
            password: None,
            is_new: false,
            container_rest: CONTAINER_REST,
        }
    }
}

impl PostgresBuilder {
    session_options!("At least 100 ms. The session sends something every sixth of it.");

    /// The schema with the tables of the locks. Sessions with different schemas do not see each
    /// other. Default: the `?schema=` of the URL, or `lock_recipes`.
    ///
    /// It has lower-case letters, digits and `_`, at most 48.
    pub fn schema(mut self, name: &str) -> Self {
        self.schema = Some(name.to_owned());
        self
    }

    /// Whether [`connect`](Self::connect) creates the schema if it does not exist. Default: yes.
    ///
    /// [`Postgres::schema`](crate::Postgres::schema) has the statements for whoever may carry them out.
    pub fn create_schema(mut self, may: bool) -> Self {
        self.may_create = may;
        self
    }

    /// The user, instead of the URL's.
    pub fn username(mut self, username: &str) -> Self {
        self.username = Some(username.to_owned());
        self
    }

    /// The password, instead of the URL's.
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// The caller knows that nobody held a lock before the schema was created.
    ///
    /// Without it a schema that has just been created grants no lock for three quarters of the session timeout: it may
    /// stand for one that was dropped or restored while others held locks.
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
    /// connections of its own.
    ///
    /// The URL is `postgres://user:password@host:5432/database?schema=locks&sslmode=require`; all but
    /// the host may be left out. A server at a Unix socket is `postgres:///database?host=/run/postgresql`,
    /// the socket's folder. If it names several hosts, with commas between them, the first that takes
    /// writes is used; one that is silent for 0.7 s is not waited for. With `sslmode=require`, `verify-ca` or
    /// `verify-full` the connection is encrypted, and the server's certificate is checked, name included,
    /// against those that the system trusts (feature `tls`); otherwise it is not encrypted. Other parameters
    /// are those of [`tokio_postgres::Config`].
    ///
    /// # Errors
    /// - [`ConfigError`] for options that cannot be used, or a URL that is not understood,
    ///   before anything is sent.
    /// - [`ConnectError::TimedOut`](recipes_core::ConnectError::TimedOut) after the connect timeout. The source says
    ///   what went wrong last.
    /// - [`ConnectError::Refused`](recipes_core::ConnectError::Refused) for a user that is not accepted or may not
    ///   use the schema, and for a server that cannot keep locks: see [`PostgresRefusal`](crate::PostgresRefusal),
    ///   which is the source.
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

    /// As [`Postgres::schema`](crate::Postgres::schema), with the schema that a session at this URL would use. Nothing is sent.
    ///
    /// # Errors
    /// For a URL that is not understood, or a name that no schema can have.
    pub fn statements(&self, url: &str) -> Result<String, Error> {
        Ok(schema::statements(&self.place(url)?.1))
    }

    /// The server, and the schema.
    fn place(&self, url: &str) -> Result<(Address, String), ConfigError> {
        let address = Address::parse(url)?;
        let schema = self.schema.clone().or(address.schema.clone());
        let schema = schema.unwrap_or_else(|| SCHEMA.to_owned());
        schema::check(&schema).map_err(|reason| ConfigError::InvalidAddress {
            address: address.shown.clone(),
            reason,
        })?;
        Ok((address, schema))
    }

    /// The store, and the URL to show.
    fn sessions(&self, url: &str) -> Result<(Sessions, String), ConfigError> {
        self.options.check(&TRAITS)?;
        let (address, schema) = self.place(url)?;
        let session_timeout = self.options.requested_timeout();
        let mut config = address.config.clone();
        if let Some(username) = &self.username {
            config.user(username);
        }
        if let Some(password) = &self.password {
            config.password(password);
        }
        if config.get_application_name().is_none() {
            config.application_name("lock_recipes");
        }
        if config.get_tcp_user_timeout().is_none() {
            // A connection that was given up is over by then, whatever became of the server.
            config.tcp_user_timeout(session_timeout);
        }
        let route = Route {
            hosts: address::each_alone(&config),
            schema,
            may_create: self.may_create && !self.options.only_reads(),
            only_reads: self.options.only_reads(),
            session_timeout,
            highest: Arc::default(),
            is_pooled: AtomicBool::new(false),
        };
        let sessions = Sessions::new(Terms {
            is_new: self.is_new,
            container_rest: self.container_rest,
            ..Terms::new(Arc::new(route), &self.options)
        });
        Ok((sessions, address.shown.clone()))
    }
}
