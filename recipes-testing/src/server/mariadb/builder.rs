//! How a MariaDB server is set up.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::installation::{Installation, user};
use super::{MariaDbServer, serves};
use crate::server::daemon::{Daemon, Kind, is_worth_another};
use crate::server::durability::Durability;
use crate::server::error::ServerError;
use crate::server::folder::Folder;

const MARIADB: Kind = Kind {
    has_children: false,
    end: Signal::TERM,
};

/// Options of a [`MariaDbServer`]; the defaults suit short tests.
#[derive(Clone, Debug)]
#[must_use = "call `start` to get a server"]
pub struct MariaDbServerBuilder {
    settings: BTreeMap<String, String>,
    users: BTreeMap<String, String>,
    durability: Durability,
    tls: Option<[PathBuf; 2]>,
    parent: Option<PathBuf>,
}

impl Default for MariaDbServerBuilder {
    /// Commits are [`Written`](Durability::Written).
    fn default() -> Self {
        let settings = [
            ("bind_address", "127.0.0.1"),
            // Relative to the data: a path of a socket may be only a hundred letters long.
            ("socket", "mariadbd.sock"),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let builder = Self {
            settings: settings.into(),
            users: BTreeMap::new(),
            durability: Durability::default(),
            tls: None,
            parent: None,
        };
        builder.durability(Durability::default())
    }
}

impl MariaDbServerBuilder {
    /// Sets a variable of the server's configuration, with underscores in its name.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Sets when a commit is answered. A server whose commits are late has its data in the folder
    /// for temporary files instead of in memory.
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        let (flush, seconds) = match durability {
            Durability::Flushed => ("1", "1"),
            Durability::Written => ("2", "1"),
            Durability::Late => ("0", "2700"),
        };
        self.setting("innodb_flush_log_at_trx_commit", flush)
            .setting("innodb_flush_log_at_timeout", seconds)
    }

    /// Sets how many clients may be connected; MariaDB takes 10 for less. One more is kept for
    /// `root`, as whom [`MariaDbServer::sql`] connects.
    pub fn max_connections(self, count: u16) -> Self {
        self.setting("max_connections", &count.to_string())
    }

    /// Refuses writes of all users but `root`.
    pub fn read_only(self) -> Self {
        self.setting("read_only", "ON")
    }

    /// Adds a user who needs a password, and has no rights. Grant some by [`MariaDbServer::sql`].
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.users.insert(name.to_owned(), password.to_owned());
        self
    }

    /// Accepts TLS too, with this certificate and its key, both in PEM.
    pub fn tls(mut self, certificate: &Path, key: &Path) -> Self {
        self.tls = Some([certificate.to_owned(), key.to_owned()]);
        self
    }

    /// Has the server's folder in this one, for example on a disk, instead of in memory.
    pub fn folder_in(mut self, parent: &Path) -> Self {
        self.parent = Some(parent.to_owned());
        self
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Errors
    ///
    /// [`ServerError::MariaDbMissing`], [`ServerError::Ended`] or [`ServerError::TimedOut`] with
    /// the server's log, [`ServerError::NoData`] with that of `mariadb-install-db`,
    /// [`ServerError::Refused`] if a user cannot be added, or [`ServerError::Io`].
    pub async fn start(self) -> Result<MariaDbServer, ServerError> {
        let installation = Installation::find()?;
        let mut attempts = 0;
        let server = loop {
            attempts += 1;
            match self.start_once(&installation).await {
                Err(error) if is_worth_another(attempts, &error) => {}
                started => break started?,
            }
        };
        if !self.users.is_empty() {
            let quoted = |text: &str| {
                let escaped = text.replace('\\', "\\\\").replace('\'', "\\'");
                format!("'{escaped}'")
            };
            let users = self.users.iter().map(|(name, password)| {
                let (name, password) = (quoted(name), quoted(password));
                format!("CREATE USER {name}@'%' IDENTIFIED BY {password};")
            });
            server.sql(&users.collect::<String>()).await?;
        }
        Ok(server)
    }

    async fn start_once(&self, installation: &Installation) -> Result<MariaDbServer, ServerError> {
        // A log in `/dev/shm` is mapped, and so written before anything is committed.
        let is_late = self.durability == Durability::Late;
        let elsewhere = is_late.then(std::env::temp_dir);
        let parent = self.parent.clone().or(elsewhere);
        let folder = Folder::new("mariadb-", parent.as_deref(), None)
            .map_err(ServerError::io("make the server's folder"))?;
        let template = installation.template().await?;
        template
            .write(&folder.data(), None, folder.is_on_disk)
            .map_err(ServerError::io("copy the data of a new server"))?;
        let daemon = Daemon::new(folder, MARIADB, installation.server())?;
        let configuration = self
            .configure(installation, &daemon)
            .map_err(ServerError::io("write the server's configuration"))?;
        let mut argument = OsString::from("--defaults-file=");
        argument.push(configuration);
        daemon.set_arguments(vec![argument]);
        daemon.start(serves).await?;
        Ok(MariaDbServer {
            daemon,
            installation: installation.clone(),
        })
    }

    fn configure(&self, installation: &Installation, daemon: &Daemon) -> std::io::Result<PathBuf> {
        let folder = &daemon.folder;
        let path = |path: PathBuf| path.display().to_string();
        let given = installation.settings().iter();
        let given = given.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let mut settings: BTreeMap<_, _> = given.collect();
        if installation.is_mysql() && self.tls.is_none() {
            // Otherwise it makes a certificate for itself.
            settings.insert("tls_version".to_owned(), "''".to_owned());
        }
        settings.extend(self.settings.clone());
        let mut add = |name: &str, value: String| settings.insert(name.to_owned(), value);
        add("port", daemon.port().to_string());
        add("datadir", path(folder.data()));
        // A server that is killed leaves its files there.
        add("tmpdir", path(folder.path().to_owned()));
        add("pid_file", path(folder.path().join("server.pid")));
        user().map(|it| add("user", it.to_owned()));
        if let Some([certificate, key]) = &self.tls {
            let certificate = folder.write("server.crt", &fs::read(certificate)?)?;
            let key = folder.write("server.key", &fs::read(key)?)?;
            add("ssl_cert", path(certificate));
            add("ssl_key", path(key));
        }
        let line = |(name, value): (&String, &String)| format!("{name} = {value}\n");
        let settings: String = settings.iter().map(line).collect();
        folder.write("my.cnf", format!("[mysqld]\n{settings}").as_bytes())
    }
}
