//! The folder of a database server.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use super::account::Account;

/// Memory rather than disk: no file outlives the test.
const SHARED_MEMORY: &str = "/dev/shm";
/// The end of the log that an error quotes.
const LOG_TAIL_BYTES: usize = 4096;
/// The line of PostgreSQL's `postmaster.pid` with a segment of shared memory: its key, its number.
const SEGMENT_LINE: usize = 6;

/// A folder that is removed on drop.
#[derive(Debug)]
pub(super) struct Folder {
    folder: TempDir,
    pub(super) account: Option<Account>,
    pub(super) is_on_disk: bool,
}

impl Folder {
    /// Makes a folder in this one, or in memory.
    pub(super) fn new(
        prefix: &str,
        parent: Option<&Path>,
        account: Option<Account>,
    ) -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(prefix);
        let folder = match parent {
            Some(parent) => builder.tempdir_in(parent),
            None => builder
                .tempdir_in(SHARED_MEMORY)
                .or_else(|_| builder.tempdir()),
        };
        let folder = Self {
            folder: folder?,
            account,
            is_on_disk: parent.is_some(),
        };
        folder.give(folder.path())?;
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// What the server keeps.
    pub(super) fn data(&self) -> PathBuf {
        self.path().join("data")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path().join("server.log")
    }

    /// Writes a file, or replaces it, which only the server may read.
    pub(super) fn write(&self, name: &str, content: &[u8]) -> io::Result<PathBuf> {
        use std::os::unix::fs::PermissionsExt as _;

        let path = self.path().join(name);
        fs::write(&path, content)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        self.give(&path)?;
        Ok(path)
    }

    fn give(&self, path: &Path) -> io::Result<()> {
        self.account.map_or(Ok(()), |account| account.own(path))
    }

    /// What the log says from there on.
    pub(super) fn log_after(&self, bytes: usize) -> String {
        let log = fs::read(self.log()).unwrap_or_else(|error| error.to_string().into_bytes());
        String::from_utf8_lossy(log.get(bytes..).unwrap_or_default()).into_owned()
    }

    pub(super) fn log_tail(&self) -> String {
        let bytes = fs::metadata(self.log()).map_or(0, |it| it.len());
        let bytes = usize::try_from(bytes).unwrap_or(0);
        self.log_after(bytes.saturating_sub(LOG_TAIL_BYTES))
    }

    /// The segment of shared memory of a PostgreSQL that has not ended in good order.
    fn segment(&self) -> Option<String> {
        let running = fs::read_to_string(self.data().join("postmaster.pid")).ok()?;
        let segment = running.lines().nth(SEGMENT_LINE)?;
        segment.split_whitespace().nth(1).map(ToOwned::to_owned)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The kernel has room for some thousand of them, and keeps each until somebody removes it.
        if let Some(segment) = self.segment() {
            let mut command = Command::new("ipcrm");
            command.args(["-m", &segment]).stdin(Stdio::null());
            command.stdout(Stdio::null()).stderr(Stdio::null());
            // An error means that it is gone.
            command.status().ok();
        }
    }
}
