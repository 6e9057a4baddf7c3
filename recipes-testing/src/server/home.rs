//! The files of one server.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::builder::ServerBuilder;
use super::config::{self, Membership};

/// Memory rather than disk: no file outlives the test.
const SHARED_MEMORY: &str = "/dev/shm";
/// The part of the log from which an error quotes, and how much it quotes.
const LOG_READ_BYTES: u64 = 1 << 20;
const LOG_TAIL_BYTES: usize = 4096;
/// Lines with these tell nothing: the polls of the test that starts the server, and stack frames. There
/// may be hundreds after the line that explains an end.
const NOISE: [&str; 2] = ["Processing srvr command", "\tat "];

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

    /// The last lines of the log that tell something, or why there are none.
    pub(super) fn log_tail(&self) -> String {
        tail(&self.log()).unwrap_or_else(|error| format!("(no log: {error})"))
    }
}

fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_READ_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(LOG_READ_BYTES).read_to_end(&mut bytes)?;
    Ok(telling(&String::from_utf8_lossy(&bytes)))
}

fn telling(log: &str) -> String {
    let mut bytes = 0;
    let mut lines: Vec<&str> = log
        .lines()
        .filter(|line| !NOISE.iter().any(|noise| line.contains(noise)))
        .rev()
        .take_while(|line| {
            bytes += line.len();
            bytes <= LOG_TAIL_BYTES
        })
        .collect();
    lines.reverse();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::telling;

    #[test]
    fn quoted_log_has_the_reason_of_an_end_however_often_the_server_was_polled() {
        let mut log = "ERROR java.net.BindException: Address already in use\n".to_owned();
        for port in 0..1_000 {
            log += &format!("\tat java.Frame{port}\nINFO Processing srvr command from /:{port}\n");
        }
        log += "ERROR Exiting JVM with code 14\n";
        let quoted = telling(&log);
        let [reason, end] = *quoted.lines().collect::<Vec<_>>() else {
            panic!("{quoted}");
        };
        assert!(reason.contains("Address already in use"));
        assert!(end.contains("code 14"));
    }
}
