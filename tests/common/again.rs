//! This very test executable, run again as a process of its own.

use std::env;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Where a process is told what to do, so that its test does nothing when nobody started it so.
const ORDERS: &str = "RECIPES_TEST_ORDERS";
/// How often the operating system is asked whether a process has ended.
const POLL: Duration = Duration::from_millis(10);

/// Orders for this process, if it was started by [`Again`]; it ends when that one does.
pub(crate) fn orders() -> Option<String> {
    let orders = env::var(ORDERS).ok()?;
    // Drop kills it, but a test that is killed drops nothing, and a paused process never ends.
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    Some(orders)
}

/// A process that runs one test of this executable; killed when dropped.
#[derive(Debug)]
pub(crate) struct Again {
    child: Child,
}

impl Again {
    /// Starts the test with this full name, which is ignored by others.
    pub(crate) fn start(test: &str, orders: &str) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args([test, "--exact", "--ignored", "--nocapture"]);
        command.env(ORDERS, orders);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.spawn().unwrap();
        Self { child }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Kills it as `kill -9` does, and waits until it is gone.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end, `None` if it does not come in time.
    pub(crate) async fn ended(&mut self, patience: Duration) -> Option<ExitStatus> {
        let ended = async {
            loop {
                if let Some(status) = self.child.try_wait().unwrap() {
                    return status;
                }
                tokio::time::sleep(POLL).await;
            }
        };
        tokio::time::timeout(patience, ended).await.ok()
    }
}

impl Drop for Again {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
