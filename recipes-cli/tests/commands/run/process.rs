//! Helpers for processes of the executable under test.

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;
use tokio::time::timeout;

use crate::lockctl::PATIENCE;

/// Waits for its end, and returns the exit code.
pub(crate) async fn ended(child: &mut Child) -> Option<i32> {
    let status = timeout(PATIENCE, child.wait()).await;
    status.expect("lockctl does not end").unwrap().code()
}

pub(crate) fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

pub(crate) fn pid(child: &Child) -> i32 {
    child.id().unwrap().try_into().unwrap()
}
