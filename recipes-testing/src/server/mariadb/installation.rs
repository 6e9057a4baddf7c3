//! Where the programs of MariaDB or MySQL are, and the data that a new server begins with.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use tokio::sync::OnceCell;

use crate::server::daemon::prepare;
use crate::server::error::ServerError;
use crate::server::folder::Folder;
use crate::server::template::Template;

/// Where Debian has the server, and not everybody looks.
const DEBIAN: &str = "/usr/sbin";
/// A sixth of what it has otherwise, and enough.
const LOG_BYTES: &str = "16M";

/// What a server of MariaDB is set up with, unless it is told otherwise.
const OF_MARIADB: &[(&str, &str)] = &[
    ("innodb_log_file_size", LOG_BYTES),
    // Clients are not asked for by name, which takes seconds where no server answers. MySQL's `root` is from
    // `localhost` alone.
    ("skip_name_resolve", "ON"),
    // It is written in full at each start.
    ("innodb_temp_data_file_path", "ibtmp1:1M:autoextend"),
];
/// And one of MySQL.
const OF_MYSQL: &[(&str, &str)] = &[
    ("innodb_redo_log_capacity", LOG_BYTES),
    // As on MariaDB, and a log of its own would be flushed for each commit.
    ("disable_log_bin", "ON"),
    ("mysqlx", "OFF"),
];

/// Names the program `mysqld` of MySQL, to be started instead of MariaDB's. Its client `mysql` stands beside it.
const MYSQLD: &str = "MYSQLD";

/// The programs.
#[derive(Clone, Debug)]
pub(super) struct Installation {
    server: PathBuf,
    /// MySQL's server makes its data by itself.
    installer: Option<PathBuf>,
    client: PathBuf,
}

impl Installation {
    pub(super) fn find() -> Result<Self, ServerError> {
        if let Some(server) = std::env::var_os(MYSQLD).map(PathBuf::from) {
            let client = server.with_file_name("mysql");
            return match (server.is_file(), client.is_file()) {
                (true, true) => Ok(Self {
                    server,
                    installer: None,
                    client,
                }),
                (false, _) => Err(ServerError::MariaDbMissing { program: MYSQLD }),
                (true, false) => Err(ServerError::MariaDbMissing { program: "mysql" }),
            };
        }
        Ok(Self {
            server: find("mariadbd")?,
            installer: Some(find("mariadb-install-db")?),
            client: find("mariadb")?,
        })
    }

    /// Whether it is MySQL.
    pub(super) fn is_mysql(&self) -> bool {
        self.installer.is_none()
    }

    /// What the server is set up with, unless it is told otherwise.
    pub(super) fn settings(&self) -> &'static [(&'static str, &'static str)] {
        match self.is_mysql() {
            true => OF_MYSQL,
            false => OF_MARIADB,
        }
    }

    pub(super) fn server(&self) -> &Path {
        &self.server
    }

    pub(super) fn client(&self) -> &Path {
        &self.client
    }

    /// The data of a new server, with an empty database `locks`: made once, then copied.
    pub(super) async fn template(&self) -> Result<&'static Template, ServerError> {
        static TEMPLATE: OnceCell<Template> = OnceCell::const_new();
        TEMPLATE.get_or_try_init(|| self.make()).await
    }

    async fn make(&self) -> Result<Template, ServerError> {
        let folder = Folder::new("mariadb-template-", None, None)
            .map_err(ServerError::io("make a folder for the data"))?;
        let data = folder.data();
        let mut arguments = vec![
            OsString::from("--no-defaults"),
            format!("--datadir={}", data.display()).into(),
            // In the common one, installations that run at the same time delete each other's files.
            format!("--tmpdir={}", folder.path().display()).into(),
        ];
        arguments.extend(user().map(|it| OsString::from(format!("--user={it}"))));
        let Some(installer) = &self.installer else {
            arguments.push("--initialize-insecure".into());
            arguments.push(format!("--innodb-redo-log-capacity={LOG_BYTES}").into());
            let database = folder.write("locks.sql", b"CREATE DATABASE locks;\n");
            let database = database.map_err(ServerError::io("write what makes the database"))?;
            arguments.push(format!("--init-file={}", database.display()).into());
            prepare("mysqld", &folder, &self.server, &arguments).await?;
            return Template::read(&data).map_err(ServerError::io("read the data of a new server"));
        };
        arguments.extend([
            "--auth-root-authentication-method=normal".into(),
            "--skip-test-db".into(),
            "--skip-name-resolve".into(),
            format!("--innodb-log-file-size={LOG_BYTES}").into(),
        ]);
        prepare("mariadb-install-db", &folder, installer, &arguments).await?;
        // A database is a folder.
        fs::create_dir(data.join("locks")).map_err(ServerError::io("make the database"))?;
        Template::read(&data).map_err(ServerError::io("read the data of a new server"))
    }
}

/// It runs as root only if it is told to.
pub(super) fn user() -> Option<&'static str> {
    rustix::process::geteuid().is_root().then_some("root")
}

fn find(program: &'static str) -> Result<PathBuf, ServerError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut programs = std::env::split_paths(&path)
        .chain([PathBuf::from(DEBIAN)])
        .map(|folder| folder.join(program));
    programs
        .find(|program| program.is_file())
        .ok_or(ServerError::MariaDbMissing { program })
}
