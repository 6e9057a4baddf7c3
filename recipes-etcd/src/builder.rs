//! Options of a session on etcd.

use std::fmt;
use std::sync::Arc;

use recipes_core::{ConfigError, Error, Session, SessionOptions, Store, session_options};
use recipes_keeper::{Sessions, TRAITS, Terms};

use crate::address::Address;
use crate::keys::Keys;
use crate::servers::Secret;
use crate::wire::Route;

/// Options of a session on etcd, from [`Etcd::builder`](crate::Etcd::builder).
///
/// [`connect`](Self::connect) reports an invalid option, before anything is sent.
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), recipes_core::Error> {
/// use std::time::Duration;
/// # use recipes_etcd as lock_recipes;
/// use lock_recipes::Etcd;
///
/// let session = Etcd::builder()
///     .session_timeout(Duration::from_secs(20))
///     .user("orders", "secret")
///     .connect("etcd://etcd1:2379,etcd2:2379/orders")
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until connect"]
pub struct EtcdBuilder {
    options: SessionOptions,
    user: Option<(String, Secret)>,
}

impl Default for EtcdBuilder {
    fn default() -> Self {
        SessionOptions::new().into()
    }
}

/// Shows no secrets.
impl fmt::Debug for EtcdBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdBuilder")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// The options of every store, and the defaults of this one.
impl From<SessionOptions> for EtcdBuilder {
    fn from(options: SessionOptions) -> Self {
        Self {
            options,
            user: None,
        }
    }
}

impl EtcdBuilder {
    session_options!(
        "At least 100 ms. The lease of a session lives for a quarter longer, in whole seconds, and for as long as the \
         server grants at least, which is 2 s by its defaults."
    );

    /// The user and the password, instead of the URL's.
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.user = Some((name.to_owned(), Secret(password.to_owned())));
        self
    }

    /// Opens the session on the members of a URL, on the current tokio runtime. It is connected to one of them at
    /// a time.
    ///
    /// The URL is `etcd://user:password@host:2379,host:2379/prefix`; user, ports and prefix may be left out. With
    /// `etcds://` connections are encrypted, and the members' certificates are checked, names included, against
    /// those that the system trusts (feature `tls`). The prefix stands in front of the paths of all locks: the lock
    /// `/orders` with the prefix `/app` is `/app/orders` to Go and to `etcdctl`.
    ///
    /// # Errors
    /// - [`ConfigError`] for options that cannot be used, or a URL that is not understood,
    ///   before anything is sent.
    /// - [`ConnectError::TimedOut`](recipes_core::ConnectError::TimedOut) after the connect timeout. The source says
    ///   what went wrong last.
    /// - [`ConnectError::Refused`](recipes_core::ConnectError::Refused) for a user that is not accepted or may not
    ///   read and write below the prefix: see [`EtcdRefusal`](crate::EtcdRefusal), which is the source.
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened, or leaves an empty lease that expires.
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
        let Address {
            mut servers,
            prefix,
            shown,
        } = Address::parse(url)?;
        if let Some(user) = &self.user {
            servers.login = Some(user.clone());
        }
        let route = Route {
            servers,
            keys: Keys::new(&prefix),
        };
        Ok((
            Sessions::new(Terms::new(Arc::new(route), &self.options)),
            shown,
        ))
    }
}
