//! The file to which a server appends what it does.

use std::error::Error;
use std::fs::{OpenOptions, read_to_string};
use std::path::PathBuf;

use test_rig::RedisServer;

/// The end of the log at one time.
pub(super) struct Log {
    path: PathBuf,
    bytes: u64,
}

impl Log {
    pub(super) fn now(server: &RedisServer) -> Result<Self, Box<dyn Error>> {
        let folder = server.folder().join("appendonlydir");
        let manifest = read_to_string(folder.join("appendonly.aof.manifest"))?;
        // Lines of: file NAME seq NUMBER type KIND. The last is written to.
        let last = manifest.lines().rfind(|line| line.ends_with("type i"));
        let name = last.and_then(|line| line.split(' ').nth(1));
        let path = folder.join(name.ok_or("no file is written to")?);
        let bytes = path.metadata()?.len();
        Ok(Self { path, bytes })
    }

    /// Takes away what was written since. The server must be down.
    ///
    /// It writes whole commands, so what is left ends with one.
    pub(super) fn cut(self) -> Result<(), Box<dyn Error>> {
        // A copy of another server may have taken the place of the file.
        if self.path.exists() {
            let file = OpenOptions::new().write(true).open(&self.path)?;
            file.set_len(self.bytes)?;
        }
        Ok(())
    }
}
