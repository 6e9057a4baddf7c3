//! Processes of the example.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::time::timeout;

use crate::executable::executable;

/// An awaited event that takes longer never happens.
const PATIENCE: Duration = Duration::from_secs(300);

/// Prints a process's log as the test's own, which is shown if the test fails.
async fn show(log: ChildStderr) {
    let mut lines = BufReader::new(log).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        eprintln!("{line}");
    }
}

/// A process of the example; killed when dropped.
pub(crate) struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

/// The output of a process, and how it ended.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) lines: Vec<String>,
    pub(crate) code: Option<i32>,
}

impl Process {
    /// Starts the process with arguments that contain no spaces.
    pub(crate) fn start(words: &str) -> Self {
        let mut child = Command::new(executable("batch_reservation"))
            .args(words.split_whitespace())
            .env_remove("LOCKS_URL")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        tokio::spawn(show(child.stderr.take().unwrap()));
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Starts a command on a server and a database.
    pub(crate) fn on(server: &str, db: &Path, words: &str) -> Self {
        let db = db.to_str().unwrap();
        Self::start(&format!("{words} --connect {server} --db {db}"))
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.child.id().unwrap().try_into().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Waits until it holds its locks and has found its seats free.
    pub(crate) async fn is_holding(&mut self) {
        let line = timeout(PATIENCE, self.lines.next_line()).await;
        assert_eq!(line.unwrap().unwrap().as_deref(), Some("holding"));
    }

    pub(crate) async fn go_on(mut self) -> Answer {
        let input = self.child.stdin.as_mut().unwrap();
        input.write_all(b"\n").await.unwrap();
        self.answer().await
    }

    pub(crate) async fn answer(mut self) -> Answer {
        let ended = async {
            let mut lines = Vec::new();
            while let Some(line) = self.lines.next_line().await.unwrap() {
                lines.push(line);
            }
            let code = self.child.wait().await.unwrap().code();
            Answer { lines, code }
        };
        timeout(PATIENCE, ended).await.unwrap()
    }
}
