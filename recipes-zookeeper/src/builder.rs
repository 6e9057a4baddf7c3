//! Options of a session on ZooKeeper.

use std::sync::Arc;

use recipes_core::{
    ConfigError, ConnectError, Error, QueryError, RequestLimit, Session, SessionOptions, Store,
    session_options,
};
use zookeeper_client::{Acl, Acls};

use crate::acl::AclSource;
use crate::client::NodeOptions;
use crate::connect_string::ConnectString;
use crate::ensemble::{TRAITS, ZooKeeper};
use crate::link::{Link, Transport};

/// Options of a session on ZooKeeper, from [`ZooKeeper::builder`].
///
/// [`connect`](Self::connect) reports an invalid option, before anything is sent.
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), recipes_core::Error> {
/// use std::time::Duration;
/// # use recipes_zookeeper as lock_recipes;
/// use lock_recipes::{Acls, ZooKeeper};
///
/// let session = ZooKeeper::builder()
///     .session_timeout(Duration::from_secs(20))
///     .auth("digest", b"orders:secret")
///     .acl(Acls::creator_all())
///     .application("orders")
///     .connect("zk1:2181,zk2:2181,zk3:2181")
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until connect"]
pub struct ZooKeeperBuilder {
    options: SessionOptions,
    nodes: NodeOptions,
    transport: Transport,
}

/// The options of every store, and the defaults of this one.
impl From<SessionOptions> for ZooKeeperBuilder {
    fn from(options: SessionOptions) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }
}

impl ZooKeeperBuilder {
    session_options!("The servers limit it; more than 2,147,483,647 ms (24 days) is refused.");

    /// ACL of lock nodes and of parents that the session creates. Default: open to everyone.
    ///
    /// Contenders need CREATE and DELETE on the lock directory and READ on each other's nodes.
    pub fn acl(mut self, acl: Acls<'_>) -> Self {
        if let Err(flaw) = self.nodes.acl.set_default(&acl) {
            self.options.note(flaw);
        }
        self
    }

    /// ACL by full path, like Curator's `ACLProvider`. It is called for each parent that is
    /// created, and for each lock node with its path up to the sequence number. `None` means
    /// [`acl`](Self::acl).
    pub fn acl_by_path(
        mut self,
        acl: impl Fn(&str) -> Option<Vec<Acl>> + Send + Sync + 'static,
    ) -> Self {
        self.nodes.acl.set_by_path(Arc::new(acl));
        self
    }

    /// The largest request that is sent. Default 1,048,575 bytes, the default of the servers'
    /// `jute.maxbuffer`. Raise it together with theirs only: a server that gets a larger request
    /// closes the connection.
    pub fn request_bytes_max(mut self, bytes: usize) -> Self {
        self.nodes.limit = RequestLimit::new(bytes);
        self
    }

    /// Authenticates every connection, for example with scheme `digest` and `user:password`.
    pub fn auth(mut self, scheme: &str, auth: &[u8]) -> Self {
        self.transport.auth.push((scheme.to_owned(), auth.to_vec()));
        self
    }

    /// Encrypts connections, to every server without `tcp://` in the connect string.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, options: zookeeper_client::TlsOptions) -> Self {
        self.transport.tls = Some(options);
        self
    }

    /// Authenticates by SASL.
    #[cfg(any(feature = "sasl-digest-md5", feature = "sasl-gssapi"))]
    pub fn sasl(mut self, options: impl Into<zookeeper_client::SaslOptions>) -> Self {
        self.transport.sasl = Some(options.into());
        self
    }

    /// Opens the session on the servers of a connect string, on the current tokio runtime. `zk://`
    /// may stand in front.
    ///
    /// # Errors
    /// - [`ConfigError`] for options that cannot be used, or a connect string that is not
    ///   understood, before anything is sent.
    /// - [`ConnectError::TimedOut`] after the connect timeout. Each server is then tried once more,
    ///   for up to 3 s, and the source says what it did: its name is not known, it refuses
    ///   connections, it speaks no TLS, it has no quorum.
    /// - [`ConnectError::ChrootMissing`] if the chroot of the connect string does not exist.
    /// - [`ConnectError::Refused`] for credentials that are not accepted.
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened.
    pub async fn connect(self, connect_string: &str) -> Result<Session, Error> {
        let servers = self.servers(connect_string)?;
        let (address, chroot) = (servers.as_str().to_owned(), servers.chroot().to_owned());
        let (store, waited) = (self.ensemble(servers), self.options.patience());
        let session = self.options.open(store, &address).await?;
        if chroot.is_empty() {
            return Ok(session);
        }
        let refused = match session.read("/").await {
            Ok(Some(_)) => return Ok(session),
            // It may exist without being readable.
            Err(Error::Query(QueryError::NotAuthorized { .. })) => return Ok(session),
            Ok(None) => ConnectError::ChrootMissing { address, chroot },
            Err(error) => ConnectError::TimedOut {
                address,
                waited,
                source: Some(Arc::new(error)),
            },
        };
        session.close().await;
        Err(refused.into())
    }

    /// The store that [`connect`](Self::connect) gets its ZooKeeper sessions from, to compare
    /// doubles with.
    ///
    /// # Errors
    /// For options that cannot be used.
    #[doc(hidden)]
    pub fn store(&self, connect_string: &str) -> Result<Arc<dyn Store>, ConfigError> {
        self.options.check(&TRAITS)?;
        Ok(self.ensemble(self.servers(connect_string)?))
    }

    /// What a double of an ensemble needs: the options of the session, who may use the nodes that
    /// it creates, and how large its requests may be.
    #[doc(hidden)]
    pub fn into_parts(self) -> (SessionOptions, AclSource, RequestLimit) {
        let NodeOptions { acl, limit } = self.nodes;
        (self.options, acl, limit)
    }

    /// The servers that these options can be used with.
    fn servers(&self, connect_string: &str) -> Result<ConnectString, ConfigError> {
        let servers = ConnectString::parse(connect_string)?;
        let wants_tls = servers.servers().iter().find(|it| it.tls == Some(true));
        match wants_tls {
            // The client would try for ever.
            Some(server) if !self.transport.encrypts() => Err(ConfigError::invalid_address(
                connect_string,
                format!("{server} is to be reached over TLS, but TLS has no options"),
            )),
            _ => Ok(servers),
        }
    }

    fn ensemble(&self, connect_string: ConnectString) -> Arc<dyn Store> {
        let link = Link {
            connect_string,
            session_timeout: self.options.requested_timeout(),
            transport: self.transport.clone(),
        };
        Arc::new(ZooKeeper::new(link, self.nodes.clone()))
    }
}
