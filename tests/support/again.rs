//! Runs this very test executable again, as a process of its own.

use std::env;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// The variable with the orders of a process. Without it the test does nothing.
const ORDERS: &str = "RECIPES_TEST_ORDERS";

/// Orders for this process, if [`Again`] started it. It then ends when its parent does.
pub(crate) fn orders() -> Option<String> {
    let orders = env::var(ORDERS).ok()?;
    // Drop kills it. But a test that is killed drops nothing, and a paused process never ends.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    Some(orders)
}

/// A process that runs one test of this executable; killed when dropped.
#[derive(Debug)]
pub(crate) struct Again {
    pub(crate) child: Child,
}

impl Again {
    /// Starts the test with this full name, which is ignored in normal runs.
    pub(crate) fn start(test: &str, orders: &str) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args([test, "--exact", "--ignored", "--nocapture"]);
        command.env(ORDERS, orders).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().unwrap();
        Self { child }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.child.id().unwrap().try_into().unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Kills it as `kill -9` does, and waits until it has ended.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Waits for its end. `None` if it does not come in time.
    pub(crate) async fn ended(&mut self, patience: Duration) -> Option<ExitStatus> {
        let status = timeout(patience, self.child.wait()).await.ok()?;
        Some(status.unwrap())
    }
}
