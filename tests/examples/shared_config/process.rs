//! Processes of the example, and their output.

use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::executable;

/// An awaited event that takes longer never happens.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// What `write` prints about a version. No other process held the lock meanwhile.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) version: u64,
    pub(crate) checksum: String,
    pub(crate) held_us: [u64; 2],
}

/// What `serve` prints after each read.
#[derive(Clone, Debug)]
pub(crate) struct Read {
    pub(crate) version: u64,
    pub(crate) checksum: String,
    pub(crate) values: Vec<String>,
    pub(crate) held_us: [u64; 2],
    pub(crate) problem: Option<String>,
}

fn held_us(json: &Value) -> [u64; 2] {
    [0, 1].map(|index| json["held_us"][index].as_u64().unwrap())
}

fn string(json: &Value) -> String {
    json.as_str().unwrap().to_owned()
}

impl Written {
    pub(crate) fn all(output: &Output) -> Vec<Self> {
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {errors}", output.status);
        let text = String::from_utf8_lossy(&output.stdout);
        let written = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        written
            .map(|json| Self {
                version: json["version"].as_u64().unwrap(),
                checksum: string(&json["checksum"]),
                held_us: held_us(&json),
            })
            .collect()
    }
}

impl Read {
    fn parse(line: &str) -> Self {
        let json: Value = serde_json::from_str(line).unwrap();
        let values = json["values"].as_object().unwrap().values();
        Self {
            version: json["version"].as_u64().unwrap(),
            checksum: string(&json["checksum"]),
            values: values.map(string).collect(),
            held_us: held_us(&json),
            problem: json["problem"].as_str().map(str::to_owned),
        }
    }
}

/// A command that starts a process of the example, which is killed when dropped.
pub(crate) fn command(arguments: &[&str]) -> Command {
    static EXECUTABLE: LazyLock<PathBuf> =
        LazyLock::new(|| executable::executable("shared_config"));
    let mut command = Command::new(&*EXECUTABLE);
    command.args(arguments).env_remove("LOCKS_URL");
    command.stdout(Stdio::piped()).kill_on_drop(true);
    command
}

pub(crate) fn signal(process: &Child, signal: Signal) {
    let pid = Pid::from_raw(process.id().unwrap().try_into().unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// A process that reads as fast as it can; killed when dropped.
pub(crate) struct Reader {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    /// All its output that the test has read so far.
    pub(crate) reads: Vec<Read>,
}

impl Reader {
    pub(crate) fn start(server: &str) -> Self {
        let arguments = ["serve", "--connect", server, "--every-ms", "0"];
        let mut process = command(&arguments).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self {
            process,
            lines,
            reads: Vec::new(),
        }
    }

    /// Reads its output until `what` is true, and returns that read.
    pub(crate) async fn until(&mut self, what: impl Fn(&Read) -> bool) -> Read {
        let said = async {
            loop {
                let line = self.lines.next_line().await.unwrap();
                let read = Read::parse(&line.expect("the reader has ended"));
                self.reads.push(read.clone());
                if what(&read) {
                    return read;
                }
            }
        };
        let said = timeout(PATIENCE, said).await;
        said.unwrap_or_else(|_| panic!("not said within {PATIENCE:?}: {:?}", self.reads.last()))
    }

    /// Requests it to end, reads the rest of its output, and returns all reads.
    pub(crate) async fn stop(mut self) -> Vec<Read> {
        signal(&self.process, Signal::TERM);
        while let Some(line) = self.lines.next_line().await.unwrap() {
            self.reads.push(Read::parse(&line));
        }
        let status = self.process.wait().await.unwrap();
        assert!(status.success(), "{status}");
        self.reads
    }
}
