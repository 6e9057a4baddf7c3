//! A server: its process, its folder and its port.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{sleep, timeout};

use super::error::ServerError;
use super::folder::Folder;
use super::ports::{self, Port};
use super::process::{Launch, Process};
use super::slot::Slot;

/// Starting takes a tenth of a second, unless the machine is busy or much is recovered.
pub(super) const READY_MAX: Duration = Duration::from_secs(60);
/// How often a server that starts is looked at.
const READY_POLL: Duration = Duration::from_millis(2);
/// Losing a race for a port so often means another problem.
const ATTEMPTS_MAX: usize = 5;

/// What PostgreSQL, MariaDB and etcd have in common.
#[derive(Debug)]
pub(super) struct Daemon {
    /// None while stopped. Declared before the folder, so that the process ends first.
    process: Slot,
    /// Held while the process is started or ended.
    change: tokio::sync::Mutex<()>,
    pub(super) folder: Folder,
    port: Port,
    program: PathBuf,
    arguments: Mutex<Vec<OsString>>,
    /// How long the log was when the process was started.
    log_before: AtomicUsize,
    has_children: bool,
    /// How it is asked to end.
    end: Signal,
}

/// What a kind of server is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) has_children: bool,
    pub(super) end: Signal,
}

impl Daemon {
    pub(super) fn new(folder: Folder, kind: Kind, program: &Path) -> Result<Self, ServerError> {
        let port = ports::free(1).map_err(ServerError::io("find a free port"))?;
        let port = port.into_iter().next().ok_or_else(|| {
            ServerError::io("find a free port")(io::ErrorKind::AddrNotAvailable.into())
        })?;
        Ok(Self {
            process: Slot::default(),
            change: tokio::sync::Mutex::new(()),
            folder,
            port,
            program: program.to_owned(),
            arguments: Mutex::default(),
            log_before: AtomicUsize::new(0),
            has_children: kind.has_children,
            end: kind.end,
        })
    }

    /// Sets with what the process is started next.
    pub(super) fn set_arguments(&self, arguments: Vec<OsString>) {
        *self
            .arguments
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = arguments;
    }

    pub(super) fn port(&self) -> u16 {
        self.port.number()
    }

    /// Whether it can answer: it is running and not paused.
    pub(super) fn is_active(&self) -> bool {
        self.process.is_active()
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.process.running().as_ref().map(Process::id)
    }

    /// Starts the process unless it runs.
    pub(super) fn spawn(&self) -> Result<(), ServerError> {
        self.process.fill(|| {
            let log = std::fs::metadata(self.folder.log()).map_or(0, |it| it.len());
            let log = usize::try_from(log).unwrap_or(0);
            self.log_before.store(log, Ordering::Relaxed);
            Process::spawn(Launch {
                program: &self.program,
                arguments: &self
                    .arguments
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner),
                folder: self.folder.path(),
                log: &self.folder.log(),
                account: self.folder.account,
                has_children: self.has_children,
            })
        })
    }

    /// Starts the process unless it runs, and waits until it serves.
    pub(super) async fn start(
        &self,
        serves: impl Fn(&Self) -> bool + Sync,
    ) -> Result<(), ServerError> {
        let _change = self.change.lock().await;
        self.spawn()?;
        let looks = async {
            while !serves(self) {
                if self.pid().is_none() {
                    return Err(ServerError::Ended {
                        port: self.port(),
                        log: self.folder.log_tail(),
                    });
                }
                sleep(READY_POLL).await;
            }
            Ok(())
        };
        match timeout(READY_MAX, looks).await {
            Ok(ready) => ready,
            Err(_) => Err(self.timed_out("readiness", READY_MAX)),
        }
    }

    /// What this process has logged.
    pub(super) fn log(&self) -> String {
        let before = self.log_before.load(Ordering::Relaxed);
        self.folder.log_after(before)
    }

    pub(super) async fn kill(&self) -> Result<(), ServerError> {
        self.end(Process::kill).await
    }

    pub(super) async fn stop(&self) -> Result<(), ServerError> {
        self.end(|process| process.end_by(self.end)).await
    }

    async fn end(
        &self,
        ask: impl FnOnce(&mut Process) -> io::Result<()>,
    ) -> Result<(), ServerError> {
        let _change = self.change.lock().await;
        let late = |what, waited| self.timed_out(what, waited);
        self.process.end(ask, late).await
    }

    pub(super) fn pause(&self) -> Result<(), ServerError> {
        self.process
            .signal(self.port(), "pause the server", Process::pause)
    }

    pub(super) fn resume(&self) -> Result<(), ServerError> {
        self.process
            .signal(self.port(), "resume the server", Process::resume)
    }

    pub(super) fn timed_out(&self, what: &'static str, waited: Duration) -> ServerError {
        ServerError::TimedOut {
            port: self.port(),
            what,
            waited,
            log: self.folder.log_tail(),
        }
    }
}

/// Whether another server should be started, because this one did not get its port.
pub(super) fn is_worth_another(attempts: usize, error: &ServerError) -> bool {
    // etcd writes it small.
    let has_lost_port =
        matches!(error, ServerError::Ended { log, .. } if log.contains("ddress already in use"));
    has_lost_port && attempts < ATTEMPTS_MAX
}

/// Runs a program to its end that makes the data in the folder.
pub(super) async fn prepare(
    name: &'static str,
    folder: &Folder,
    program: &Path,
    arguments: &[OsString],
) -> Result<(), ServerError> {
    let log = folder.path().join(format!("{name}.log"));
    let mut process = Process::spawn(Launch {
        program,
        arguments,
        folder: folder.path(),
        log: &log,
        account: folder.account,
        has_children: true,
    })
    .map_err(ServerError::io("start the program that makes the data"))?;
    let ended = timeout(READY_MAX, process.ended()).await;
    let has_succeeded = matches!(ended, Ok(Ok(()))) && process.has_succeeded().unwrap_or(false);
    if has_succeeded {
        return Ok(());
    }
    let log = std::fs::read_to_string(&log).unwrap_or_else(|error| error.to_string());
    Err(ServerError::NoData { program: name, log })
}
