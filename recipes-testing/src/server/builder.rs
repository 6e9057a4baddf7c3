//! How a server is set up.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::try_join_all;

use super::config::{self, Membership, Ports};
use super::ensemble::ZooKeeperEnsemble;
use super::error::ServerError;
use super::installation::Installation;
use super::links::Links;
use super::ports::{self, Port};
use super::single::ZooKeeperServer;

/// Losing a race for a port twice in a row is bad luck. Five times means another problem.
const ATTEMPTS_MAX: usize = 5;
/// ZooKeeper stores a server's number in one byte, and no test needs more.
const SERVERS_MAX: usize = 9;

/// Options of a [`ZooKeeperServer`] or a [`ZooKeeperEnsemble`]; the defaults suit short tests.
#[derive(Clone, Debug)]
#[must_use = "call `start` to get a server"]
pub struct ServerBuilder {
    pub(super) tick: Duration,
    pub(super) min_session_timeout: Duration,
    pub(super) max_session_timeout: Duration,
    pub(super) heap_mib: u32,
    pub(super) properties: BTreeMap<String, String>,
    pub(super) config: BTreeMap<String, String>,
    pub(super) is_optimized: bool,
    has_links: bool,
}

impl Default for ServerBuilder {
    fn default() -> Self {
        Self {
            tick: Duration::from_millis(100),
            min_session_timeout: Duration::from_millis(400),
            max_session_timeout: Duration::from_secs(60),
            heap_mib: 128,
            properties: BTreeMap::new(),
            config: BTreeMap::new(),
            is_optimized: false,
            has_links: false,
        }
    }
}

impl ServerBuilder {
    /// Sets the unit in which the server counts time. Expiry is rounded up to it. Default 100 ms.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// Sets the shortest session timeout that the server grants. Default 400 ms.
    pub fn min_session_timeout(mut self, timeout: Duration) -> Self {
        self.min_session_timeout = timeout;
        self
    }

    /// Sets the longest session timeout that the server grants. Default 60 s.
    pub fn max_session_timeout(mut self, timeout: Duration) -> Self {
        self.max_session_timeout = timeout;
        self
    }

    /// Sets how much memory the server may use for its nodes, and for replies that clients have not
    /// read yet. Default 128 MiB.
    pub fn heap_mib(mut self, heap_mib: u32) -> Self {
        self.heap_mib = heap_mib;
        self
    }

    /// Lets the JVM optimize, as it does by default, instead of starting quickly. Use it for
    /// measurements.
    pub fn optimized(mut self) -> Self {
        self.is_optimized = true;
        self
    }

    /// Sets a Java system property, such as `znode.container.checkIntervalMs`.
    pub fn property(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.insert(key.into(), value.into());
        self
    }

    /// Sets a line of `zoo.cfg`, such as `snapCount`.
    ///
    /// It overrides a default, but not the ports, the data folder and the members of an ensemble.
    pub fn config(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.config.insert(key.into(), value.into());
        self
    }

    /// Connects the servers of an ensemble through links that can be cut:
    /// [`ZooKeeperEnsemble::cut_off`]. The links work as long as the runtime that starts the
    /// ensemble.
    pub fn links(mut self) -> Self {
        self.has_links = true;
        self
    }

    /// Starts a server and returns when it serves clients, after about a second.
    ///
    /// # Errors
    ///
    /// [`ServerError::JavaMissing`] and [`ServerError::ServerMissing`] explain what to install.
    /// [`ServerError::Ended`] and [`ServerError::TimedOut`] quote the server's log. No process and
    /// no file is left behind.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the server.
    pub async fn start(self) -> Result<ZooKeeperServer, ServerError> {
        let (mut servers, _) = self.launch(1).await?;
        servers.pop().ok_or(ServerError::Size(0))
    }

    /// Starts that many servers as one ensemble and returns when it has a leader and all serve.
    ///
    /// # Errors
    ///
    /// As [`ServerBuilder::start`], and [`ServerError::Size`] unless there are 1 to 9 servers.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops the servers.
    pub async fn start_ensemble(self, size: usize) -> Result<ZooKeeperEnsemble, ServerError> {
        if !(1..=SERVERS_MAX).contains(&size) {
            return Err(ServerError::Size(size));
        }
        let (servers, links) = self.launch(size).await?;
        Ok(ZooKeeperEnsemble::new(servers, links))
    }

    async fn launch(self, size: usize) -> Result<Launched, ServerError> {
        let installation = Installation::find()?;
        let mut attempt = 1;
        loop {
            match self.launch_once(&installation, size).await {
                // Another process took a port between its choice and its use.
                Err(error) if attempt < ATTEMPTS_MAX && lost_port(&error) => attempt += 1,
                launched => return launched,
            }
        }
    }

    async fn launch_once(
        &self,
        installation: &Installation,
        size: usize,
    ) -> Result<Launched, ServerError> {
        let ports = ports::free(3 * size).map_err(ServerError::io("find free ports"))?;
        let ports = Arc::new(ports);
        let numbers: Vec<_> = ports.iter().map(Port::number).collect();
        let all: Vec<Ports> = numbers
            .chunks_exact(3)
            .filter_map(|ports| <[u16; 3]>::try_from(ports).ok())
            .map(|[client, quorum, election]| Ports {
                client,
                quorum,
                election,
            })
            .collect();
        let mut links = self.has_links.then(Links::default);
        let servers = (0..size)
            .map(|index| {
                let seen = match &mut links {
                    Some(links) => config::through(links, index, &all),
                    None => Ok(all.clone()),
                };
                let all = seen.map_err(ServerError::io("link the servers"))?;
                let membership = Membership { index, all };
                let ports = Arc::clone(&ports);
                ZooKeeperServer::new(self, installation.clone(), membership, ports)
            })
            .collect::<Result<Vec<_>, _>>()?;
        for server in &servers {
            server.spawn()?;
        }
        try_join_all(servers.iter().map(ZooKeeperServer::ready)).await?;
        Ok((servers, links))
    }
}

/// Servers, and the links between them.
type Launched = (Vec<ZooKeeperServer>, Option<Links>);

fn lost_port(error: &ServerError) -> bool {
    match error {
        ServerError::Ended { log, .. } | ServerError::TimedOut { log, .. } => {
            log.contains("Address already in use")
        }
        _ => false,
    }
}
