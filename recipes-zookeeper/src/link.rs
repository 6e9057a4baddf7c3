//! How connections to the servers are made, for new sessions and for present ones.

use std::fmt;
use std::time::Duration;

use recipes_core::internal::log::STORE;
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};
use zookeeper_client::{Client, Connector, Error, SessionInfo, SessionState, StateWatcher};

use crate::connect_string::{ConnectString, Server};

/// Pause before each try to find out what became of a session. In the first, a client that has lost
/// one server usually connects to another. Longer pauses would let a holder learn later that its
/// store has lost its data.
const PAUSE: Duration = Duration::from_millis(250);

/// How long one server may take to answer. It does not if it is starting or has no quorum. A slow
/// answer is of no use to a session that is over sooner.
fn answer_max(session_timeout: Duration) -> Duration {
    (session_timeout / 20).clamp(Duration::from_millis(100), Duration::from_secs(1))
}

/// The servers of a connect string, and how to speak with them.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) connect_string: ConnectString,
    pub(crate) session_timeout: Duration,
    pub(crate) transport: Transport,
}

/// What a server knows of a session.
enum Answer {
    Knows,
    Refuses,
    None,
}

impl Link {
    /// Opens a session.
    pub(crate) async fn open(&self) -> Result<Client, Error> {
        let connector = self.connector();
        self.connect(connector, self.connect_string.as_str()).await
    }

    /// The servers, and whether connections to them are encrypted.
    pub(crate) fn servers(&self) -> Vec<(Server, bool)> {
        let encrypts = self.transport.encrypts();
        let servers = self.connect_string.servers().iter();
        servers
            .map(|server| (server.clone(), server.tls.unwrap_or(encrypts)))
            .collect()
    }

    /// Completes when most of the servers have refused to go on with a session while its client
    /// could not connect.
    ///
    /// The client names the last transaction that it has seen, and a server that has seen less
    /// closes the connection (`ZooKeeperServer.processConnectRequest`). That is right for a server
    /// that lags. But a store that has lost its data does the same, and its client tries until the
    /// session is over by its own clock, with growing pauses. Meanwhile others are granted the lock.
    /// So the servers are asked without that number: one that lags asks the leader, which knows the
    /// session.
    ///
    /// A single server among several may have been set up as a store of its own. The others may come
    /// back, so it decides nothing.
    pub(crate) async fn refused(&self, session: SessionInfo, mut state: StateWatcher) {
        loop {
            if state.peek_state() != SessionState::Disconnected {
                if state.peek_state().is_terminated() {
                    // The client reports it.
                    return std::future::pending().await;
                }
                state.changed().await;
                continue;
            }
            let is_refused = tokio::select! {
                biased;
                _ = state.changed() => false,
                is_refused = self.is_refused(&session) => is_refused,
            };
            if is_refused {
                warn!(target: STORE, session = %session.id(), "the servers do not know the session any more");
                return;
            }
        }
    }

    /// Completes when servers have answered: whether most refuse the session.
    async fn is_refused(&self, session: &SessionInfo) -> bool {
        let servers = self.servers();
        loop {
            sleep(PAUSE).await;
            let mut refused = 0;
            for (server, tls) in &servers {
                match self.ask(server, *tls, session).await {
                    // One server speaks for the others, and the client will find one.
                    Answer::Knows => return std::future::pending().await,
                    Answer::Refuses => refused += 1,
                    Answer::None => {}
                }
            }
            if refused * 2 > servers.len() {
                return true;
            }
        }
    }

    /// Asks a server to go on with a session over a connection of its own, which is closed at once.
    async fn ask(&self, server: &Server, tls: bool, session: &SessionInfo) -> Answer {
        let scheme = if tls { "tcp+tls" } else { "tcp" };
        let address = format!("{scheme}://{server}");
        // Detached: the session goes on when this client of it is dropped.
        let connector = self.connector().with_session(session.clone());
        let connector = connector.with_detached().with_fail_eagerly();
        let answer_max = answer_max(self.session_timeout);
        match timeout(answer_max, self.connect(connector, &address)).await {
            Ok(Ok(_)) => Answer::Knows,
            Ok(Err(Error::SessionExpired)) => Answer::Refuses,
            Ok(Err(error)) => {
                debug!(target: STORE, %server, %error, "server does not say whether it knows the session");
                Answer::None
            }
            Err(_) => Answer::None,
        }
    }

    fn connector(&self) -> Connector {
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
