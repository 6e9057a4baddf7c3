//! A side in a process of its own.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

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
    pub(crate) fn start(mut command: Command) -> Result<Self, String> {
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

    /// Performs an order that is answered with numbers.
    pub(crate) async fn perform(&mut self, order: &str) -> Result<Vec<u64>, String> {
        let answer = self.ask(order).await?;
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
