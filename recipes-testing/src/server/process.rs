//! The process of one server.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::time::sleep;

/// Becomes the server, so that its process id is the server's and pausing and killing are exact.
///
/// It leaves a watcher behind, which waits for one line on the pipe from the test process. If the
/// pipe ends without that line, the test process was killed and no destructor ran. The watcher then
/// kills the server and removes the folder `$0`. It retries, because a dying server may still add a
/// file.
const SCRIPT: &str = r#"
exec 3<&0
{
    read -r line <&3 && exit
    kill -9 "$$"
    for attempt in 1 2 3 4 5 6 7 8 9; do
        rm -rf -- "$0" && exit
        sleep 0.1
    done
} 2>/dev/null &
exec "$@" 3<&- </dev/null
"#;

/// How often to poll the operating system for a change that takes milliseconds.
///
/// Children are waited for by polling, because several tests may share a server, and it then
/// outlives the runtime that started it. Waiting through tokio would tie it to that runtime.
const POLL: Duration = Duration::from_millis(2);

/// A running server; dropping it kills it and waits for its end.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    pid: Pid,
    paused: bool,
}

impl Process {
    /// Starts a program with the arguments. Its output is appended to the log, which is in the
    /// folder that goes with the server.
    pub(super) fn spawn(
        program: &Path,
        arguments: &[OsString],
        folder: &Path,
        log: &Path,
    ) -> io::Result<Self> {
        let log = OpenOptions::new().create(true).append(true).open(log)?;
        let child = Command::new("/bin/sh")
            .arg("-c")
            .arg(SCRIPT)
            .arg(folder)
            .arg(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let pid = Pid::from_child(&child);
        Ok(Self {
            child,
            pid,
            paused: false,
        })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    pub(super) fn has_ended(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Sends SIGSTOP and returns when no thread runs any more.
    pub(super) fn pause(&mut self) -> io::Result<()> {
        if !self.paused {
            kill_process(self.pid, Signal::STOP)?;
            // It also returns if the process ends instead. NOWAIT leaves the status to `Child`. The
            // kernel needs microseconds, so blocking the executor is harmless.
            let change = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while let Err(error) = waitid(WaitId::Pid(self.pid), change) {
                // A signal handler of the test process ran, and the wait goes on.
                if error != Errno::INTR {
                    return Err(error.into());
                }
            }
            self.paused = true;
        }
        Ok(())
    }

    /// Sends SIGCONT.
    pub(super) fn resume(&mut self) -> io::Result<()> {
        kill_process(self.pid, Signal::CONT)?;
        self.paused = false;
        Ok(())
    }

    /// Sends SIGTERM, which a paused process handles when it is resumed.
    pub(super) fn terminate(&mut self) -> io::Result<()> {
        kill_process(self.pid, Signal::TERM)?;
        self.resume()
    }

    /// Sends SIGKILL. [`Process::ended`] waits for the end.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }

    /// Waits for the end, without a limit.
    pub(super) async fn ended(&mut self) -> io::Result<()> {
        while !self.has_ended()? {
            sleep(POLL).await;
        }
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut pipe) = self.child.stdin.take() {
            // An error means that there is no watcher to notify.
            pipe.write_all(b"\n").ok();
        }
        // An error means that the process has ended already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
