//! Messages between a process and its parent, one line each.

use std::io::{self, BufRead as _};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::ChildStdout;
use tokio::time::timeout;

use crate::again::Again;

/// The prefix of a message. The rest of the output is the test harness's.
const SAYS: &str = "> ";

/// An awaited event that takes longer never happens.
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) fn say(words: &str) {
    println!("{SAYS}{words}");
}

/// Waits for a message of the parent. It blocks this thread, so everything that must go on
/// meanwhile needs other threads.
pub(crate) fn listen() -> String {
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// A process that exchanges messages.
#[derive(Debug)]
pub(crate) struct Talk {
    process: Again,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Talk {
    /// Starts the test with this full name, which is ignored in normal runs.
    pub(crate) fn start(test: &str, orders: &str) -> Self {
        let mut process = Again::start(test, orders);
        let lines = BufReader::new(process.child.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    /// The next message of the process.
    pub(crate) async fn says(&mut self) -> String {
        let said = async {
            loop {
                let line = self.lines.next_line().await.unwrap();
                // The end of its output is the end of the process.
                let line = line.expect("the process has ended");
                // The harness does not end its own line.
                if let Some((_, words)) = line.split_once(SAYS) {
                    return words.to_owned();
                }
            }
        };
        timeout(PATIENCE, said)
            .await
            .expect("the process says nothing")
    }

    pub(crate) async fn tell(&mut self, words: &str) {
        let input = self.process.child.stdin.as_mut().unwrap();
        input
            .write_all(format!("{words}\n").as_bytes())
            .await
            .unwrap();
    }
}

impl Deref for Talk {
    type Target = Again;

    fn deref(&self) -> &Again {
        &self.process
    }
}

impl DerefMut for Talk {
    fn deref_mut(&mut self) -> &mut Again {
        &mut self.process
    }
}
