//! The files of one server.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::builder::ServerBuilder;
use super::config::{self, Membership};

/// Memory rather than disk: no file outlives the test.
const SHARED_MEMORY: &str = "/dev/shm";
/// The part of the log that an error quotes.
const LOG_TAIL_BYTES: u64 = 4096;

/// A folder that is removed on drop.
#[derive(Debug)]
pub(super) struct Home(TempDir);

impl Home {
    pub(super) fn new(options: &ServerBuilder, membership: &Membership) -> io::Result<Self> {
        let mut builder = tempfile::Builder::new();
        builder.prefix("zookeeper-");
        let home = Self(
            builder
                .tempdir_in(SHARED_MEMORY)
                .or_else(|_| builder.tempdir())?,
        );
        let data = home.path().join("data");
        fs::create_dir(&data)?;
        fs::write(data.join("myid"), membership.id().to_string())?;
        fs::write(home.config(), config::text(options, membership, &data))?;
        Ok(home)
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(super) fn config(&self) -> PathBuf {
        self.path().join("zoo.cfg")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path().join("server.log")
    }

    /// Where the server writes its transactions.
    pub(super) fn log_folder(&self) -> PathBuf {
        self.path().join("data").join("version-2")
    }

    /// The last lines of the log, or why there are none.
    pub(super) fn log_tail(&self) -> String {
        tail(&self.log()).unwrap_or_else(|error| format!("(no log: {error})"))
    }
}

fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
