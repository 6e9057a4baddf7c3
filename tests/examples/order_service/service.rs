//! Processes of the example service.

use std::process::Stdio;

use futures::future::join_all;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStderr, Command};

use crate::executable::executable;

/// Prints a service's log as the test's own, which is shown if the test fails.
async fn show(log: ChildStderr) {
    let mut lines = BufReader::new(log).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        eprintln!("{line}");
    }
}

/// A process of the service; killed when dropped.
pub(crate) struct Service {
    pub(crate) process: Child,
    pub(crate) url: String,
}

impl Service {
    pub(crate) async fn start(arguments: &[&str]) -> Self {
        let mut process = Command::new(executable("order_service"))
            .args(arguments)
            .env_remove("LOCKS_URL")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        tokio::spawn(show(process.stderr.take().unwrap()));
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let line = lines.next_line().await.unwrap();
        let Some(line) = line else {
            panic!("the service did not start")
        };
        let url = line.strip_prefix("listening on ").unwrap().to_owned();
        Self { process, url }
    }

    /// Starts one service for each list of arguments, all on one server.
    pub(crate) async fn start_on<const N: usize>(
        server: &str,
        arguments: [&[&str]; N],
    ) -> Vec<Self> {
        let starts = arguments.map(async |arguments| {
            Self::start(&[&["--connect", server], arguments].concat()).await
        });
        join_all(starts).await
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id().unwrap().try_into().unwrap()).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Requests the service to end, and waits until it has.
    pub(crate) async fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = self.process.wait().await.unwrap();
        assert!(status.success(), "{status}");
    }
}
