//! Options of a session.

use std::sync::Arc;
use std::time::Duration;

use zookeeper_client::Acls;

use crate::error::{ConfigError, ConnectError};
use crate::names::record::NodeData;
use crate::session::core::{Phase, Session};
use crate::session::options::{ParentMode, SESSION_TIMEOUT, SESSION_TIMEOUT_MAX, SessionOptions};
use crate::store::backend::Backend;
use crate::store::nodes::Acl;
use crate::store::nodes::zookeeper::{Ensemble, Transport};

/// Options of a [`Session`], from [`Session::builder`].
///
/// [`connect`](Self::connect) reports an invalid option, before anything is sent.
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), recipes_core::ConnectError> {
/// use std::time::Duration;
/// use recipes_core::{Acls, Session};
///
/// let session = Session::builder()
///     .session_timeout(Duration::from_secs(20))
///     .auth("digest", b"orders:secret")
///     .acl(Acls::creator_all())
///     .application("orders")
///     .connect("zk1:2181,zk2:2181,zk3:2181")
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until connect"]
pub struct SessionBuilder {
    options: SessionOptions,
    transport: Transport,
    flaw: Option<ConfigError>,
}

impl Default for SessionBuilder {
    fn default() -> Self {
        Self {
            options: SessionOptions::default(),
            transport: Transport::new(SESSION_TIMEOUT),
            flaw: None,
        }
    }
}

impl SessionBuilder {
    /// How long the ensemble keeps the nodes of a process that has gone silent. Default 12 s. The
    /// servers limit it; more than 2,147,483,647 ms (24 days) is refused.
    ///
    /// The lock of a crashed process is free after this time. A guard is lost after half of it
    /// without an answer.
    pub fn session_timeout(mut self, timeout: Duration) -> Self {
        let timeout_max = SESSION_TIMEOUT_MAX;
        match timeout > timeout_max {
            true => self.note(Err(ConfigError::SessionTimeoutTooLong {
                timeout,
                timeout_max,
            })),
            false => self.transport.session_timeout = timeout,
        }
        self
    }

    /// How long [`connect`](Self::connect), reads and tries such as `try_acquire` wait for an
    /// answer, and [`Session::close`] for pending clean-ups. Default 15 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.options.connect_timeout = timeout;
        self
    }

    /// ACL of lock nodes and of parents that the session creates. Default: open to everyone.
    ///
    /// Contenders need CREATE and DELETE on the lock directory and READ on each other's nodes.
    pub fn acl(mut self, acl: Acls<'_>) -> Self {
        let outcome = self.options.acl.set_default(&acl);
        self.note(outcome);
        self
    }

    /// ACL by full path, like Curator's `ACLProvider`. It is called for each parent that is
    /// created, and for each lock node with its path up to the sequence number. `None` means
    /// [`acl`](Self::acl).
    pub fn acl_by_path(
        mut self,
        acl: impl Fn(&str) -> Option<Vec<Acl>> + Send + Sync + 'static,
    ) -> Self {
        self.options.acl.set_by_path(Arc::new(acl));
        self
    }

    /// Authenticates every connection, for example with scheme `digest` and `user:password`.
    pub fn auth(mut self, scheme: &str, auth: &[u8]) -> Self {
        self.transport.auth.push((scheme.to_owned(), auth.to_vec()));
        self
    }

    /// Name of the application in the record that lock nodes carry. Default: the executable's.
    pub fn application(mut self, name: &str) -> Self {
        self.options.data = NodeData::of(name);
        self
    }

    /// Writes these bytes into lock nodes instead of the record of host, process and application.
    pub fn identity(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        match NodeData::custom(bytes.into()) {
            Ok(data) => self.options.data = data,
            Err(flaw) => self.note(Err(flaw)),
        }
        self
    }

    /// How missing parents are created. Default: containers.
    pub fn parent_mode(mut self, mode: ParentMode) -> Self {
        self.options.parent_mode = mode;
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

    /// Opens the session, on the current tokio runtime.
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
        let backend = self.backend(connect_string)?;
        let waited = self.options.connect_timeout;
        let session = Session::start(backend, self.options);
        let mut phase = session.phase();
        let opened = phase.wait_for(|phase| !matches!(phase, Phase::Connecting));
        let connect_string = connect_string.to_owned();
        match tokio::time::timeout(waited, opened)
            .await
            .as_ref()
            .map(Result::as_deref)
        {
            Ok(Ok(Phase::Open(_))) => {}
            Ok(Ok(Phase::Ended(source))) => {
                return Err(ConnectError::Refused {
                    connect_string,
                    source: source.clone(),
                });
            }
            Ok(Ok(_) | Err(_)) | Err(_) => {
                return Err(ConnectError::TimedOut {
                    connect_string,
                    waited,
                });
            }
        }
        Ok(session)
    }

    /// The backend that [`connect`](Self::connect) gets its ZooKeeper sessions from, to compare
    /// doubles with.
    ///
    /// # Errors
    /// For options that cannot be used.
    #[doc(hidden)]
    pub fn backend(&self, connect_string: &str) -> Result<Arc<dyn Backend>, ConfigError> {
        if let Some(flaw) = &self.flaw {
            return Err(flaw.clone());
        }
        let ensemble = Ensemble::new(connect_string, self.transport.clone());
        Ok(Arc::new(ensemble))
    }

    /// Starts a session on a double of the ensemble, without waiting for it.
    ///
    /// # Panics
    /// For options that cannot be used, and outside a tokio runtime.
    #[doc(hidden)]
    #[must_use]
    pub fn start(self, backend: Arc<dyn Backend>) -> Session {
        if let Some(flaw) = self.flaw {
            panic!("session options cannot be used: {flaw}");
        }
        Session::start(backend, self.options)
    }

    fn note(&mut self, outcome: Result<(), ConfigError>) {
        if let Err(flaw) = outcome {
            self.flaw.get_or_insert(flaw);
        }
    }
}
