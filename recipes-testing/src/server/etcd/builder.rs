//! How etcd servers are set up.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use futures::future::try_join_all;
use rustix::process::Signal;

use super::{EtcdCluster, EtcdServer, serves};
use crate::server::daemon::{Daemon, Kind, is_worth_another};
use crate::server::error::ServerError;
use crate::server::folder::Folder;
use crate::server::links::Links;
use crate::server::ports;

/// Names another program `etcd`. Its client `etcdctl` stands next to it.
const ETCD: &str = "ETCD";
/// No test needs more.
const SERVERS_MAX: usize = 9;

const KIND: Kind = Kind {
    has_children: false,
    end: Signal::TERM,
};

/// Options of an [`EtcdServer`] or an [`EtcdCluster`]; the defaults suit short tests.
#[derive(Clone, Debug, Default)]
#[must_use = "call `start` to get a server"]
pub struct EtcdServerBuilder {
    settings: BTreeMap<String, String>,
    tls: Option<[PathBuf; 2]>,
    parent: Option<PathBuf>,
    has_links: bool,
}

impl EtcdServerBuilder {
    /// Sets a flag, such as `quota-backend-bytes`. It overrides a default, but not what makes it a server of this test:
    /// its folder, ports and cluster.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Serves clients by TLS alone, with this certificate and its key, both in PEM.
    pub fn tls(mut self, certificate: &Path, key: &Path) -> Self {
        self.tls = Some([certificate.to_owned(), key.to_owned()]);
        self
    }

    /// Has the server's folder in this one, for example on a disk, instead of in memory.
    pub fn folder_in(mut self, parent: &Path) -> Self {
        self.parent = Some(parent.to_owned());
        self
    }

    /// Connects the members of a cluster through links that can be cut: [`EtcdCluster::cut_off`]. The links work as
    /// long as the runtime that starts the cluster.
    pub fn links(mut self) -> Self {
        self.has_links = true;
        self
    }

    /// Starts a server that is a cluster of its own, and waits until it serves clients.
    ///
    /// Having nobody to wait for, it elects itself within a tenth of the usual time, unless
    /// `heartbeat-interval` and `election-timeout` are set. So it grants leases of one second, too.
    ///
    /// # Errors
    ///
    /// [`ServerError::EtcdMissing`], [`ServerError::Ended`] or [`ServerError::TimedOut`] with the server's
    /// log, or [`ServerError::Io`].
    pub async fn start(mut self) -> Result<EtcdServer, ServerError> {
        for (name, ms) in [("heartbeat-interval", "10"), ("election-timeout", "100")] {
            let setting = self.settings.entry(name.to_owned());
            setting.or_insert_with(|| ms.to_owned());
        }
        let (mut servers, _) = self.launch(1).await?;
        servers.pop().ok_or(ServerError::Size(0))
    }

    /// Starts that many servers as one cluster, and waits until it has a leader and all members serve clients.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start), and [`ServerError::Size`] unless there are 1 to 9 servers.
    pub async fn start_cluster(self, size: usize) -> Result<EtcdCluster, ServerError> {
        if !(1..=SERVERS_MAX).contains(&size) {
            return Err(ServerError::Size(size));
        }
        let (servers, links) = self.launch(size).await?;
        EtcdCluster::new(servers, links).await
    }

    async fn launch(&self, size: usize) -> Result<Launched, ServerError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.launch_once(size).await {
                Err(error) if is_worth_another(attempts, &error) => {}
                launched => return launched,
            }
        }
    }

    async fn launch_once(&self, size: usize) -> Result<Launched, ServerError> {
        let servers = (0..size).map(|_| self.server());
        let mut servers = servers.collect::<Result<Vec<_>, _>>()?;
        let mut links = self.has_links.then(Links::default);
        for (index, server) in servers.iter_mut().enumerate() {
            let port = server.peer.number();
            let port = match &mut links {
                Some(links) => links.forward(None, index, port),
                None => Ok(port),
            };
            let port = port.map_err(ServerError::io("link the servers"))?;
            server.peer_url = format!("http://127.0.0.1:{port}");
        }
        let members = servers.iter().enumerate();
        let members: Vec<_> = members
            .map(|(index, server)| format!("{index}={}", server.peer_url))
            .collect();
        for (index, server) in servers.iter_mut().enumerate() {
            server.arguments = self.arguments(server, index, &members.join(","));
            server.configure(true);
        }
        try_join_all(servers.iter().map(|server| server.daemon.start(serves))).await?;
        Ok((servers, links))
    }

    /// One that has not been started.
    fn server(&self) -> Result<EtcdServer, ServerError> {
        let (program, client) = find()?;
        let folder = Folder::new("etcd-", self.parent.as_deref(), None)
            .map_err(ServerError::io("make the server's folder"))?;
        let peer = ports::free(1).map_err(ServerError::io("find a free port"))?;
        let peer = peer.into_iter().next().ok_or_else(|| {
            ServerError::io("find a free port")(io::ErrorKind::AddrNotAvailable.into())
        })?;
        Ok(EtcdServer {
            daemon: Daemon::new(folder, KIND, &program)?,
            client,
            peer,
            peer_url: String::new(),
            has_tls: self.tls.is_some(),
            arguments: Vec::new(),
        })
    }

    fn arguments(&self, server: &EtcdServer, index: usize, members: &str) -> Vec<String> {
        let mut settings = self.settings.clone();
        let mut add = |name: &str, value: String| settings.insert(name.to_owned(), value);
        if let Some([certificate, key]) = &self.tls {
            add("cert-file", certificate.display().to_string());
            add("key-file", key.display().to_string());
        }
        let clients = server.client_url();
        add("name", index.to_string());
        add(
            "data-dir",
            server.daemon.folder.data().display().to_string(),
        );
        add("listen-client-urls", clients.clone());
        add("advertise-client-urls", clients);
        add(
            "listen-peer-urls",
            format!("http://127.0.0.1:{}", server.peer.number()),
        );
        add("initial-advertise-peer-urls", server.peer_url.clone());
        add("initial-cluster", members.to_owned());
        // A member that has just come is no reason to refuse another. An operator waits five seconds.
        settings
            .entry("strict-reconfig-check".to_owned())
            .or_insert_with(|| "false".to_owned());
        let arguments = settings.iter();
        arguments
            .map(|(name, value)| format!("--{name}={value}"))
            .collect()
    }
}

/// Servers, and the links between them.
type Launched = (Vec<EtcdServer>, Option<Links>);

/// The program, and its client.
fn find() -> Result<(PathBuf, PathBuf), ServerError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = || {
        let mut programs = std::env::split_paths(&path).map(|folder| folder.join("etcd"));
        programs.find(|program| program.is_file())
    };
    let program = match std::env::var_os(ETCD) {
        Some(named) => Some(PathBuf::from(named)).filter(|program| program.is_file()),
        None => in_path(),
    };
    let program = program.ok_or(ServerError::EtcdMissing { program: "etcd" })?;
    let client = program.with_file_name("etcdctl");
    match client.is_file() {
        true => Ok((program, client)),
        false => Err(ServerError::EtcdMissing { program: "etcdctl" }),
    }
}
