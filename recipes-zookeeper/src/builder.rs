//! Options of a session on ZooKeeper.

use std::sync::Arc;
use std::time::Duration;

use recipes_core::{ConfigError, ConnectError, ParentMode, Session, SessionOptions, Store};
use zookeeper_client::{Acl, Acls};

use crate::acl::AclSource;
use crate::client::NodeOptions;
use crate::ensemble::{TRAITS, Transport, ZooKeeper};
use crate::size::RequestLimit;

/// Options of a session on ZooKeeper, from [`ZooKeeper::builder`].
///
/// [`connect`](Self::connect) reports an invalid option, before anything is sent.
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), recipes_core::ConnectError> {
/// use std::time::Duration;
/// use recipes_zookeeper::{Acls, ZooKeeper};
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
    /// How long the ensemble keeps the nodes of a process that has gone silent. Default 12 s. The
    /// servers limit it; more than 2,147,483,647 ms (24 days) is refused.
    ///
    /// The lock of a crashed process is free after this time. A guard is lost after half of it
    /// without an answer.
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        self.options = self.options.session_timeout(timeout);
        self
    }

    /// How long [`connect`](Self::connect), reads and tries such as `try_acquire` wait for an
    /// answer, and [`Session::close`] for pending clean-ups. Default 15 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.options = self.options.connect_timeout(timeout);
        self
    }

    /// Name of the application in the record that lock nodes carry. Default: the executable's.
    pub fn application(mut self, name: &str) -> Self {
        self.options = self.options.application(name);
        self
    }

    /// Names the owner, in another process, that goes on only when this session is done.
    #[doc(hidden)]
    pub fn within(mut self, owner: &str) -> Self {
        self.options = self.options.within(owner);
        self
    }

    /// Writes these bytes into lock nodes instead of the record of host, process and application.
    pub fn identity(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.options = self.options.identity(bytes);
        self
    }

    /// How missing parents are created. Default: containers.
    pub fn parent_mode(mut self, mode: ParentMode) -> Self {
        self.options = self.options.parent_mode(mode);
        self
    }

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
    /// - [`ConnectError::Config`] for options that cannot be used, before anything is sent.
    /// - [`ConnectError::TimedOut`] after the connect timeout.
    /// - [`ConnectError::Refused`] for a connect string that is not understood, or credentials that
    ///   are not accepted.
    ///
    /// # Cancel safety
    /// Dropping the future closes what was opened.
    pub async fn connect(self, connect_string: &str) -> Result<Session, ConnectError> {
        let connect_string = without_scheme(connect_string);
        let store = self.ensemble(connect_string);
        self.options.open(store, connect_string).await
    }

    /// The store that [`connect`](Self::connect) gets its ZooKeeper sessions from, to compare
    /// doubles with.
    ///
    /// # Errors
    /// For options that cannot be used.
    #[doc(hidden)]
    pub fn store(&self, connect_string: &str) -> Result<Arc<dyn Store>, ConfigError> {
        self.options.check(&TRAITS)?;
        Ok(self.ensemble(without_scheme(connect_string)))
    }

    /// What a double of an ensemble needs: the options of the session, who may use the nodes that
    /// it creates, and how large its requests may be.
    #[doc(hidden)]
    pub fn into_parts(self) -> (SessionOptions, AclSource, RequestLimit) {
        let NodeOptions { acl, limit } = self.nodes;
        (self.options, acl, limit)
    }

    fn ensemble(&self, connect_string: &str) -> Arc<dyn Store> {
        Arc::new(ZooKeeper::new(
            connect_string,
            self.options.requested_timeout(),
            self.transport.clone(),
            self.nodes.clone(),
        ))
    }
}

/// The connect string in an address such as `zk://host:port/chroot`.
fn without_scheme(address: &str) -> &str {
    address.strip_prefix("zk://").unwrap_or(address)
}
