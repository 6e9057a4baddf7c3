//! Where a server's process is, if it runs.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

use super::error::ServerError;
use super::process::Process;

/// A server closes its files and ends within a few hundred milliseconds, unless the machine is busy.
pub(super) const STOP_MAX: Duration = Duration::from_secs(60);

/// The process of one server; empty while that is stopped.
#[derive(Debug, Default)]
pub(super) struct Slot(Mutex<Option<Process>>);

impl Slot {
    /// The process, or `None` if it has ended, by itself or on request.
    pub(super) fn running(&self) -> MutexGuard<'_, Option<Process>> {
        let mut process = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Only a child that was waited for elsewhere gives an error, and such a child has ended.
        if process
            .as_mut()
            .is_some_and(|process| process.has_ended().unwrap_or(true))
        {
            *process = None;
        }
        process
    }

    /// Whether it can answer: it is running and not paused.
    pub(super) fn is_active(&self) -> bool {
        let process = self.running();
        process.as_ref().is_some_and(|process| !process.is_paused())
    }

    /// Starts the process unless it runs.
    pub(super) fn fill(
        &self,
        start: impl FnOnce() -> io::Result<Process>,
    ) -> Result<(), ServerError> {
        let mut process = self.running();
        if process.is_none() {
            *process = Some(start().map_err(ServerError::io("start the server's process"))?);
        }
        Ok(())
    }

    /// Has the process end, and waits until it has.
    pub(super) async fn end(
        &self,
        ask: impl FnOnce(&mut Process) -> io::Result<()>,
        late: impl FnOnce(&'static str, Duration) -> ServerError,
    ) -> Result<(), ServerError> {
        let Some(mut process) = self.running().take() else {
            return Ok(());
        };
        if let Err(source) = ask(&mut process) {
            *self.running() = Some(process);
            return Err(ServerError::io("end the server's process")(source));
        }
        match timeout(STOP_MAX, process.ended()).await {
            Ok(ended) => ended.map_err(ServerError::io("wait for the end of the server")),
            Err(_) => Err(late("end of the process", STOP_MAX)),
        }
    }

    /// Sends a signal to the process of the server on this port.
    pub(super) fn signal(
        &self,
        port: u16,
        doing: &'static str,
        send: impl FnOnce(&mut Process) -> io::Result<()>,
    ) -> Result<(), ServerError> {
        match self.running().as_mut() {
            Some(process) => send(process).map_err(ServerError::io(doing)),
            None => Err(ServerError::NotRunning { port }),
        }
    }
}
