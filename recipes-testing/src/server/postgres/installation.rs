//! Where PostgreSQL's programs are, and the data that a new server begins with.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tokio::sync::OnceCell;

use crate::server::account::Account;
use crate::server::daemon::prepare;
use crate::server::error::ServerError;
use crate::server::folder::Folder;
use crate::server::template::Template;

/// Where Debian has a folder for each version.
const DEBIAN: &str = "/usr/lib/postgresql";
const PROGRAMS: [&str; 4] = ["postgres", "initdb", "pg_basebackup", "psql"];

/// A folder with all programs of one version.
#[derive(Clone, Debug)]
pub(super) struct Installation(PathBuf);

impl Installation {
    /// The first of PATH, or else the newest of Debian. What Debian has in PATH asks for a cluster
    /// of Debian's kind, and takes ten times as long.
    pub(super) fn find() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let in_path = std::env::split_paths(&path);
        let mut versions: Vec<_> = std::fs::read_dir(DEBIAN)
            .into_iter()
            .flatten()
            .filter_map(|version| {
                let folder = version.ok()?.path();
                let number: f64 = folder.file_name()?.to_str()?.parse().ok()?;
                Some((number, folder.join("bin")))
            })
            .collect();
        versions.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let mut folders = in_path.chain(versions.into_iter().map(|(_, folder)| folder));
        let is_whole = |folder: &PathBuf| {
            PROGRAMS
                .iter()
                .all(|program| folder.join(program).is_file())
        };
        folders.find(is_whole).map(Self)
    }

    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The data of a new server: made once, then copied.
    pub(super) async fn template(&self) -> Result<&'static Template, ServerError> {
        static TEMPLATE: OnceCell<Template> = OnceCell::const_new();
        TEMPLATE.get_or_try_init(|| self.make()).await
    }

    async fn make(&self) -> Result<Template, ServerError> {
        let account = Account::instead_of_root().map_err(ServerError::io("find a user"))?;
        let folder = Folder::new("postgres-template-", None, account)
            .map_err(ServerError::io("make a folder for the data"))?;
        let data = folder.data();
        let options = [
            "--no-sync",
            "--auth=trust",
            "--username=postgres",
            "--encoding=UTF8",
            "--locale=C",
        ];
        let mut arguments: Vec<_> = options.map(OsString::from).into();
        arguments.extend([OsString::from("--pgdata"), data.clone().into()]);
        prepare("initdb", &folder, &self.program("initdb"), &arguments).await?;
        Template::read(&data).map_err(ServerError::io("read the data of a new server"))
    }

    /// Copies the data of a server that runs.
    pub(super) async fn copy_from(&self, port: u16, folder: &Folder) -> Result<(), ServerError> {
        let data = folder.data();
        let options = [
            "--no-sync",
            "--no-password",
            "--checkpoint=fast",
            "--wal-method=stream",
            "--username=postgres",
            "--host=127.0.0.1",
        ];
        let mut arguments: Vec<_> = options.map(OsString::from).into();
        arguments.push(format!("--port={port}").into());
        arguments.extend([OsString::from("--pgdata"), data.into()]);
        let program: &Path = &self.program("pg_basebackup");
        prepare("pg_basebackup", folder, program, &arguments).await
    }
}
