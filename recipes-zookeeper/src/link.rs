//! How connections to the servers are made.

use std::fmt;
use std::time::Duration;

use zookeeper_client::{Client, Connector, Error};

use crate::connect_string::ConnectString;
use crate::servers::Address;
use crate::wire::{Up, Wire};

/// The servers of a connect string, and how to speak with them.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) connect_string: ConnectString,
    pub(crate) session_timeout: Duration,
    pub(crate) transport: Transport,
}

impl Link {
    /// The servers, and whether connections to them are encrypted.
    pub(crate) fn servers(&self) -> Vec<Address> {
        let encrypts = self.transport.encrypts();
        let servers = self.connect_string.servers().iter();
        servers
            .map(|server| (server.clone(), server.tls.unwrap_or(encrypts)))
            .collect()
    }

    /// Connects to one server, which is tried once: a session of its own, unless the connector has one.
    pub(crate) async fn open_on(
        &self,
        (server, tls): &Address,
        connector: Connector,
    ) -> Result<(Wire, Up), Error> {
        let scheme = if *tls { "tcp+tls" } else { "tcp" };
        let address = format!("{scheme}://{server}{}", self.connect_string.chroot());
        Wire::open(self.connect(connector.with_fail_eagerly(), &address)).await
    }

    pub(crate) fn connector(&self) -> Connector {
        let mut connector = Client::connector().with_session_timeout(self.session_timeout);
        for (scheme, auth) in &self.transport.auth {
            connector = connector.with_auth(scheme, auth);
        }
        #[cfg(any(feature = "sasl-digest-md5", feature = "sasl-gssapi"))]
        if let Some(sasl) = &self.transport.sasl {
            connector = connector.with_sasl(sasl.clone());
        }
        connector
    }

    async fn connect(&self, connector: Connector, servers: &str) -> Result<Client, Error> {
        #[cfg(feature = "tls")]
        if let Some(tls) = &self.transport.tls {
            return connector
                .with_tls(tls.clone())
                .secure_connect(servers)
                .await;
        }
        connector.connect(servers).await
    }
}

/// What connections are made with.
#[derive(Clone, Default)]
pub(crate) struct Transport {
    pub(crate) auth: Vec<(String, Vec<u8>)>,
    #[cfg(feature = "tls")]
    pub(crate) tls: Option<zookeeper_client::TlsOptions>,
    #[cfg(any(feature = "sasl-digest-md5", feature = "sasl-gssapi"))]
    pub(crate) sasl: Option<zookeeper_client::SaslOptions>,
}

impl Transport {
    /// Whether connections are encrypted if the connect string does not say.
    #[cfg(feature = "tls")]
    pub(crate) fn encrypts(&self) -> bool {
        self.tls.is_some()
    }

    /// Whether connections are encrypted if the connect string does not say.
    #[cfg(not(feature = "tls"))]
    pub(crate) fn encrypts(&self) -> bool {
        false
    }
}

/// Shows no secrets.
impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schemes: Vec<_> = self.auth.iter().map(|(scheme, _)| scheme).collect();
        f.debug_struct("Transport")
            .field("auth", &schemes)
            .finish_non_exhaustive()
    }
}
