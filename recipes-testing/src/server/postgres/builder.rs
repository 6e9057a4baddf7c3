//! How a PostgreSQL server is set up.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use super::installation::Installation;
use super::{PostgresServer, identity, serves};
use crate::server::account::Account;
use crate::server::daemon::{Daemon, Kind, is_worth_another};
use crate::server::durability::Durability;
use crate::server::error::ServerError;
use crate::server::folder::Folder;

/// It has a process for each connection, and ends at once when it is interrupted. When it is
/// terminated, it waits for its clients.
const POSTGRES: Kind = Kind {
    has_children: true,
    end: Signal::INT,
};

/// Options of a [`PostgresServer`]; the defaults suit short tests.
#[derive(Clone, Debug)]
#[must_use = "call `start` to get a server"]
pub struct PostgresServerBuilder {
    settings: BTreeMap<String, String>,
    users: BTreeMap<String, String>,
    primary: Option<u16>,
    tls: Option<[PathBuf; 2]>,
    parent: Option<PathBuf>,
}

impl Default for PostgresServerBuilder {
    /// Commits are [`Written`](Durability::Written).
    fn default() -> Self {
        let settings = [
            ("listen_addresses", "127.0.0.1"),
            ("unix_socket_directories", ""),
            // Elsewhere, files would stay behind when the server is killed.
            ("dynamic_shared_memory_type", "mmap"),
            // Those who cut a replica off want it to come back.
            ("wal_keep_size", "1GB"),
            ("wal_retrieve_retry_interval", "50ms"),
            // A server that ends waits so long for a client that has connected meanwhile and says
            // nothing, such as one that was halted. Whoever waits for the end is more patient.
            ("authentication_timeout", "10s"),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let builder = Self {
            settings: settings.into(),
            users: BTreeMap::new(),
            primary: None,
            tls: None,
            parent: None,
        };
        builder.durability(Durability::default())
    }
}

impl PostgresServerBuilder {
    /// Sets a line of `postgresql.conf`.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Sets when a commit is answered.
    pub fn durability(self, durability: Durability) -> Self {
        let (fsync, synchronous_commit, delay) = match durability {
            Durability::Flushed => ("on", "on", "200ms"),
            Durability::Written => ("off", "on", "200ms"),
            Durability::Late => ("off", "off", "10s"),
        };
        self.setting("fsync", fsync)
            .setting("synchronous_commit", synchronous_commit)
            .setting("wal_writer_delay", delay)
    }

    /// Sets how many clients may be connected. As many again as
    /// `superuser_reserved_connections` (3) are kept for [`PostgresServer::sql`] and other
    /// superusers.
    pub fn max_connections(self, count: u16) -> Self {
        let reserved = 3;
        self.setting("superuser_reserved_connections", &reserved.to_string())
            .setting(
                "max_connections",
                &(count.saturating_add(reserved)).to_string(),
            )
    }

    /// Makes all transactions read-only unless they say otherwise.
    pub fn read_only(self) -> Self {
        self.setting("default_transaction_read_only", "on")
    }

    /// Adds a user who needs a password, and has no rights but those of everybody. Grant others by
    /// [`PostgresServer::sql`].
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

    /// Makes it a streaming replica of another server, which must be running. It has the users of
    /// that server, and asks those it is told of for their passwords.
    pub fn replica_of(mut self, primary: &PostgresServer) -> Self {
        self.primary = Some(primary.port());
        let primary = format!("host=127.0.0.1 port={} user=postgres", primary.port());
        self.setting("primary_conninfo", &primary)
    }

    /// Starts the server and waits until it answers.
    ///
    /// # Errors
    ///
    /// [`ServerError::PostgresMissing`], [`ServerError::Ended`] or [`ServerError::TimedOut`] with
    /// the server's log, [`ServerError::NoData`] with that of `initdb` or `pg_basebackup`,
    /// [`ServerError::Refused`] if a user cannot be added, or [`ServerError::Io`].
    pub async fn start(self) -> Result<PostgresServer, ServerError> {
        let installation = Installation::find().ok_or(ServerError::PostgresMissing)?;
        let mut attempts = 0;
        let server = loop {
            attempts += 1;
            match self.start_once(&installation).await {
                Err(error) if is_worth_another(attempts, &error) => {}
                started => break started?,
            }
        };
        if self.primary.is_none() && !self.users.is_empty() {
            let quoted = |text: &str, mark: char| {
                let doubled = text.replace(mark, &format!("{mark}{mark}"));
                format!("{mark}{doubled}{mark}")
            };
            let users = self.users.iter().map(|(name, password)| {
                let (name, password) = (quoted(name, '"'), quoted(password, '\''));
                format!("CREATE ROLE {name} LOGIN PASSWORD {password};")
            });
            server.sql(&users.collect::<String>()).await?;
        }
        Ok(server)
    }

    async fn start_once(&self, installation: &Installation) -> Result<PostgresServer, ServerError> {
        let account = Account::instead_of_root().map_err(ServerError::io("find a user"))?;
        let folder = Folder::new("postgres-", self.parent.as_deref(), account)
            .map_err(ServerError::io("make the server's folder"))?;
        match self.primary {
            Some(primary) => installation.copy_from(primary, &folder).await?,
            None => {
                let template = installation.template().await?;
                template
                    .write(&folder.data(), folder.account, folder.is_on_disk)
                    .and_then(|()| identity::renew(&folder.data()))
                    .map_err(ServerError::io("copy the data of a new server"))?;
            }
        }
        let daemon = Daemon::new(folder, POSTGRES, &installation.program("postgres"))?;
        self.configure(&daemon)
            .map_err(ServerError::io("write the server's configuration"))?;
        daemon.set_arguments(vec![
            OsString::from("-D"),
            daemon.folder.data().into(),
            OsString::from("-p"),
            daemon.port().to_string().into(),
        ]);
        daemon.start(serves).await?;
        Ok(PostgresServer {
            daemon,
            installation: installation.clone(),
        })
    }

    fn configure(&self, daemon: &Daemon) -> std::io::Result<()> {
        let folder = &daemon.folder;
        let mut settings = self.settings.clone();
        if let Some([certificate, key]) = &self.tls {
            // The server reads a key only if it is its own.
            let certificate = folder.write("server.crt", &fs::read(certificate)?)?;
            let key = folder.write("server.key", &fs::read(key)?)?;
            settings.insert("ssl".to_owned(), "on".to_owned());
            let path = |path: PathBuf| path.display().to_string();
            settings.insert("ssl_cert_file".to_owned(), path(certificate));
            settings.insert("ssl_key_file".to_owned(), path(key));
        }
        let line = |(name, value): (&String, &String)| {
            format!("{name} = '{}'\n", value.replace('\'', "''"))
        };
        let settings: String = settings.iter().map(line).collect();
        folder.write("data/postgresql.conf", settings.as_bytes())?;

        let of_user = |name: &String| {
            format!("host all \"{name}\" all scram-sha-256\nlocal all \"{name}\" scram-sha-256\n")
        };
        let mut access: String = self.users.keys().map(of_user).collect();
        access.push_str(
            "host all all all trust\nlocal all all trust\nhost replication all all trust\n",
        );
        folder.write("data/pg_hba.conf", access.as_bytes())?;
        if self.primary.is_some() {
            folder.write("data/standby.signal", b"")?;
        }
        Ok(())
    }
}
