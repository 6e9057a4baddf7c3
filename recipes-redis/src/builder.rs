//! Options of a session on Redis.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use recipes_core::{ConfigError, Error, Session, SessionOptions, Store, session_options};
use recipes_keeper::{CONTAINER_REST, Sessions, TRAITS, Terms};

use crate::address::{Address, Credentials};
use crate::wire::Route;

/// The default prefix of all keys.
const PREFIX: &str = "locks";

/// Options of a session on Redis, from [`Redis::builder`](crate::Redis::builder).
///
/// [`connect`](Self::connect) reports an invalid option, before anything is sent.
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), recipes_core::Error> {
/// use std::time::Duration;
/// # use recipes_redis as lock_recipes;
/// use lock_recipes::Redis;
///
/// let session = Redis::builder()
///     .session_timeout(Duration::from_secs(20))
///     .prefix("orders")
///     .password("secret")
///     .connect("rediss://cache:6380/0")
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until connect"]
pub struct RedisBuilder {
    options: SessionOptions,
    credentials: Credentials,
    prefix: Option<String>,
    replicas: u32,
    is_new: bool,
    container_rest: Duration,
}

impl Default for RedisBuilder {
    fn default() -> Self {
        SessionOptions::new().into()
    }
}

/// Shows no secrets.
impl fmt::Debug for RedisBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBuilder")
            .field("options", &self.options)
            .field("prefix", &self.prefix)
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}

/// The options of every store, and the defaults of this one.
impl From<SessionOptions> for RedisBuilder {
    fn from(options: SessionOptions) -> Self {
        Self {
            options,
            credentials: Credentials::default(),
            prefix: None,
            replicas: 0,
            is_new: false,
            container_rest: CONTAINER_REST,
        }
    }
}

impl RedisBuilder {
    session_options!("At least 100 ms. The session sends something every sixth of it.");

    /// What all keys begin with, in braces: `{prefix}:`. Sessions with different prefixes do not
    /// see each other. Default: the `?prefix=` of the URL, or `locks`.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = Some(prefix.to_owned());
        self
    }

    /// The number of the database, instead of the URL's.
    pub fn database(mut self, number: u16) -> Self {
        self.credentials.database = Some(number.into());
        self
    }

    /// The user of the server's access control list, instead of the URL's.
    pub fn username(mut self, username: &str) -> Self {
        self.credentials.login.username = Some(username.to_owned());
        self
    }

    /// The password, instead of the URL's.
    pub fn password(mut self, password: &str) -> Self {
        self.credentials.login.password = Some(password.to_owned());
        self
    }

    /// The user at the Sentinels, who is none of the servers'. Instead of `sentinel-username` in the URL.
    pub fn sentinel_username(mut self, username: &str) -> Self {
        self.credentials.sentinel.username = Some(username.to_owned());
        self
    }

    /// The password at the Sentinels. Instead of `sentinel-password` in the URL.
    pub fn sentinel_password(mut self, password: &str) -> Self {
        self.credentials.sentinel.password = Some(password.to_owned());
        self
    }

    /// Nothing counts as done before so many replicas have confirmed it (`WAIT`). Default 0.
    ///
    /// It costs a round trip to the replicas for each request, and makes it unlikely, not
    /// impossible, that a replica is promoted which does not know of a holder. While fewer replicas
    /// answer, no lock is granted, and held ones are lost after half of the session timeout.
    pub fn replicas(mut self, count: u32) -> Self {
        self.replicas = count;
        self
    }

    /// The caller knows that nobody has held a lock on this server.
    ///
    /// Without it a server that knows of no locks grants none for three quarters of the session timeout: it may have
    /// forgotten them, or somebody has flushed its keys.
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

    /// Opens the session on the server of a URL, on the current tokio runtime. The session has a
    /// connection of its own; it cannot share one.
    ///
    /// | URL | server |
    /// |---|---|
    /// | `redis://user:password@host:6379/0?prefix=locks` | this one; all but the host may be left out |
    /// | `rediss://host:6380` | this one, over TLS, with the feature `tls` |
    /// | `redis+sentinel://user:password@host:26379,host:26379/name/0` | the primary that the Sentinels name; user and password are those at the primary |
    /// | `redis+cluster://user:password@host:6379,host:6379` | the primary of a cluster that has the keys of the prefix, as these of its servers know it; `rediss+cluster://` over TLS |
    /// | `redis+unix://user:password@/run/redis.sock?db=0` | the one at this socket |
    ///
    /// # Errors
    /// - [`ConfigError`] for options that cannot be used, or a URL that is not understood,
    ///   before anything is sent.
    /// - [`ConnectError::TimedOut`](recipes_core::ConnectError::TimedOut) after the connect timeout. The source says
    ///   what went wrong last.
    /// - [`ConnectError::Refused`](recipes_core::ConnectError::Refused) for credentials that are not accepted, and
    ///   for a server that cannot keep locks: see [`RedisRefusal`](crate::RedisRefusal), which is the source.
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

    /// The store, and the URL to show.
    fn sessions(&self, url: &str) -> Result<(Sessions, String), ConfigError> {
        self.options.check(&TRAITS)?;
        let address = Address::parse(url, &self.credentials)?;
        let invalid = |reason: String| ConfigError::InvalidAddress {
            address: address.shown.clone(),
            reason,
        };
        let prefix = self.prefix.clone().or(address.prefix.clone());
        let prefix = prefix.unwrap_or_else(|| PREFIX.to_owned());
        if prefix.is_empty() || prefix.contains(['{', '}']) || prefix.contains(char::is_control) {
            return Err(invalid(format!(
                "prefix {prefix:?} must not be empty nor contain braces; they are put around it"
            )));
        }
        let route = Route {
            servers: address.servers.clone(),
            prefix: format!("{{{prefix}}}"),
            replicas: self.replicas,
            replicas_timeout: self.options.requested_timeout() / 6,
        };
        let sessions = Sessions::new(Terms {
            is_new: self.is_new,
            container_rest: self.container_rest,
            ..Terms::new(Arc::new(route), &self.options)
        });
        Ok((sessions, address.shown.clone()))
    }
}
