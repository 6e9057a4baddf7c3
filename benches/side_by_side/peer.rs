//! Sides in processes of their own: Curator in a JVM, kazoo in Python.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use super::work::{Order, Place, Work};

/// Draining its longest queue takes Curator a minute.
const ANSWER_MAX: Duration = Duration::from_secs(300);
const EXIT_MAX: Duration = Duration::from_secs(10);

/// A process that reads one order per line and answers each with a line. It is killed when dropped.
pub(crate) struct Peer {
    process: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    pub(crate) async fn curator() -> Result<Self, String> {
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/build");
        let built = Command::new(build).output().await;
        let built = built.map_err(|error| error.to_string())?;
        if !built.status.success() {
            return Err(String::from_utf8_lossy(&built.stderr).into_owned());
        }
        let class_path = String::from_utf8_lossy(&built.stdout).trim().to_owned();
        let mut java = Command::new("java");
        java.args(["-Xmx512m", "-cp", &class_path, "CuratorBench"]);
        Self::start(java)
    }

    /// Starts kazoo with the Python that has it; `scripts/bench` sets `KAZOO_PYTHON`.
    pub(crate) fn kazoo() -> Result<Self, String> {
        let python = std::env::var("KAZOO_PYTHON");
        let python = python.map_err(|_| "KAZOO_PYTHON names no Python that has it".to_owned())?;
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/kazoo/bench.py");
        let mut command = Command::new(python);
        command.arg(program);
        Self::start(command)
    }

    fn start(mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let started = command.kill_on_drop(true).spawn();
        let mut process = started.map_err(|error| format!("{command:?}: {error}"))?;
        let (orders, answers) = (
            process.stdin.take().unwrap(),
            process.stdout.take().unwrap(),
        );
        Ok(Self {
            process,
            orders,
            answers: BufReader::new(answers).lines(),
        })
    }

    pub(crate) async fn version(&mut self) -> Result<String, String> {
        self.ask("version").await
    }

    pub(crate) async fn perform(&mut self, work: Work, place: &Place) -> Result<Vec<u64>, String> {
        let answer = self.ask(&Order(work, place).to_string()).await?;
        let figures: Result<_, _> = answer.split_whitespace().map(str::parse::<u64>).collect();
        figures.map_err(|error| format!("{error}: {answer}"))
    }

    async fn ask(&mut self, order: &str) -> Result<String, String> {
        let asked = async {
            let line = format!("{order}\n");
            self.orders.write_all(line.as_bytes()).await?;
            let answer: std::io::Result<_> = self.answers.next_line().await;
            answer
        };
        match timeout(ANSWER_MAX, asked).await {
            Ok(Ok(Some(answer))) => match answer.strip_prefix("ok") {
                Some(answer) => Ok(answer.trim().to_owned()),
                None => Err(format!("{order}: {answer}")),
            },
            Ok(Ok(None)) => Err(format!("{order}: the process has ended")),
            Ok(Err(error)) => Err(format!("{order}: {error}")),
            Err(_) => Err(format!("{order}: no answer within {ANSWER_MAX:?}")),
        }
    }

    /// Lets the process close its sessions.
    pub(crate) async fn close(mut self) {
        drop(self.orders);
        // The process is killed when dropped, if it has not ended.
        timeout(EXIT_MAX, self.process.wait()).await.ok();
    }
}
