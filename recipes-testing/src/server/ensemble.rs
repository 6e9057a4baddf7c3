//! A real ensemble of several servers.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::{sleep, timeout};
use zookeeper_client::Client;

use super::builder::ServerBuilder;
use super::error::ServerError;
use super::four_letter::{self, Mode};
use super::links::Links;
use super::single::{self, ZooKeeperServer};

/// An election takes well under a second; a busy machine may take some more.
const ELECTION_MAX: Duration = Duration::from_secs(60);
/// Servers do not announce a leader to clients, so they are polled this often.
const ELECTION_POLL: Duration = Duration::from_millis(20);

/// Real ZooKeeper servers in a quorum, on loopback, each in a process of its own.
///
/// Servers are numbered from zero. Dropping the ensemble kills all of them. See [`ZooKeeperServer`]
/// for what it needs.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # mod lock_recipes { pub use recipes_testing as testing; }
/// use lock_recipes::testing::ZooKeeperEnsemble;
///
/// let ensemble = ZooKeeperEnsemble::start(3).await?;
/// let client = ensemble.client().await?;
/// ensemble.kill(ensemble.leader().await?).await?;
/// ensemble.leader().await?;
/// # drop(client);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ZooKeeperEnsemble {
    servers: Vec<ZooKeeperServer>,
    links: Option<Links>,
}

impl ZooKeeperEnsemble {
    /// Starts that many servers (3 or 5 make sense) with the defaults of [`ServerBuilder`].
    ///
    /// # Errors
    ///
    /// As [`ServerBuilder::start_ensemble`].
    pub async fn start(size: usize) -> Result<Self, ServerError> {
        Self::builder().start_ensemble(size).await
    }

    /// Sets options before starting; end with [`ServerBuilder::start_ensemble`].
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }

    pub(super) fn new(servers: Vec<ZooKeeperServer>, links: Option<Links>) -> Self {
        Self { servers, links }
    }

    /// Returns where clients connect: all servers, as `127.0.0.1:<port>,127.0.0.1:<port>,…`.
    #[must_use]
    pub fn connect_string(&self) -> String {
        let each: Vec<_> = self
            .servers
            .iter()
            .map(ZooKeeperServer::connect_string)
            .collect();
        each.join(",")
    }

    /// The address for `connect`, `lockctl` and options, with all servers.
    #[must_use]
    pub fn url(&self) -> String {
        format!("zk://{}", self.connect_string())
    }

    /// Returns all servers, running or not.
    #[must_use]
    pub fn servers(&self) -> &[ZooKeeperServer] {
        &self.servers
    }

    /// Returns one server.
    ///
    /// # Panics
    ///
    /// If there is no server with this number.
    #[must_use]
    #[expect(
        clippy::indexing_slicing,
        reason = "a wrong number is a mistake in the test"
    )]
    pub fn server(&self, index: usize) -> &ZooKeeperServer {
        &self.servers[index]
    }

    /// Connects a client to any of the servers, with a session timeout of 40 s.
    ///
    /// # Errors
    ///
    /// [`ServerError::Client`] if no session could be established.
    pub async fn client(&self) -> Result<Client, ServerError> {
        single::connect(&self.connect_string()).await
    }

    /// Waits until the running servers have a leader and returns its number.
    ///
    /// A leader that was cut off may report itself as leader until it notices.
    ///
    /// # Errors
    ///
    /// [`ServerError::TimedOut`] if none is elected within 60 s, as without a quorum.
    pub async fn leader(&self) -> Result<usize, ServerError> {
        let election = async {
            loop {
                let modes = join_all(self.servers.iter().map(|server| async move {
                    if server.is_active() {
                        server.mode().await
                    } else {
                        None
                    }
                }))
                .await;
                if let Some(leader) = modes.iter().position(|mode| *mode == Some(Mode::Leader)) {
                    return leader;
                }
                sleep(ELECTION_POLL).await;
            }
        };
        match timeout(ELECTION_MAX, election).await {
            Ok(leader) => Ok(leader),
            Err(_) => Err(self.server(0).timed_out("leader", ELECTION_MAX)),
        }
    }

    /// Kills one server, as [`ZooKeeperServer::kill`].
    ///
    /// # Errors
    ///
    /// As [`ZooKeeperServer::kill`].
    ///
    /// # Panics
    ///
    /// If there is no server with this number.
    pub async fn kill(&self, index: usize) -> Result<(), ServerError> {
        self.server(index).kill().await
    }

    /// Starts one server again and returns when it serves clients. While too few servers run for a
    /// quorum, it returns when the server listens.
    ///
    /// # Errors
    ///
    /// As [`ZooKeeperServer::start_again`].
    ///
    /// # Panics
    ///
    /// If there is no server with this number.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the server starting; call it again to wait for it.
    pub async fn start_again(&self, index: usize) -> Result<(), ServerError> {
        let server = self.server(index);
        server.spawn()?;
        let active = self
            .servers
            .iter()
            .filter(|server| server.is_active())
            .count();
        if 2 * active > self.servers.len() {
            server.ready().await
        } else {
            server.listening().await
        }
    }

    /// Stops one server and starts it again.
    ///
    /// # Errors
    ///
    /// As [`ZooKeeperServer::stop`] and [`start_again`](Self::start_again).
    ///
    /// # Panics
    ///
    /// If there is no server with this number.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the server stopped or starting.
    pub async fn restart(&self, index: usize) -> Result<(), ServerError> {
        self.server(index).stop().await?;
        self.start_again(index).await
    }

    /// Cuts one server off from the others; clients reach it as before. Idempotent.
    ///
    /// Connections stay, and what is sent arrives when the server [joins again](Self::join_again).
    /// New connections are refused. Servers exchange their addresses when they first meet, so they
    /// may still learn who stands for election. But a server that is cut off leads and follows
    /// nobody.
    ///
    /// # Panics
    ///
    /// Unless the ensemble was started with [`ServerBuilder::links`].
    pub fn cut_off(&self, index: usize) {
        self.links().cut_off(&[index]);
    }

    /// Cuts some servers off from the others, but not from each other. Otherwise it works as
    /// [`cut_off`](Self::cut_off).
    ///
    /// # Panics
    ///
    /// As [`cut_off`](Self::cut_off).
    pub fn cut_off_together(&self, indices: &[usize]) {
        self.links().cut_off(indices);
    }

    /// Undoes [`cut_off`](Self::cut_off) for this server. Idempotent.
    ///
    /// # Panics
    ///
    /// As [`cut_off`](Self::cut_off).
    pub fn join_again(&self, index: usize) {
        self.links().join_again(index);
    }

    #[expect(clippy::expect_used, reason = "a mistake in the test")]
    fn links(&self) -> &Links {
        let links = self.links.as_ref();
        links.expect("links between the servers, from ServerBuilder::links")
    }

    /// Ends a session as if it had expired.
    ///
    /// It does so through a server that the client is not connected to, if there is one. The
    /// client's server then closes its connection when the session ends, so the client learns of it
    /// at once. The ephemeral nodes are gone on that server; another may show them for a moment.
    ///
    /// # Errors
    ///
    /// As [`ZooKeeperServer::expire`].
    pub async fn expire(&self, session_id: i64) -> Result<(), ServerError> {
        let mut chosen = self.server(0);
        for server in self.servers.iter().filter(|server| server.is_active()) {
            chosen = server;
            let connections = server.four_letter("cons").await?;
            if !four_letter::is_connected(&connections, session_id) {
                break;
            }
        }
        chosen.expire(session_id).await
    }
}
