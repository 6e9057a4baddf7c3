//! The JVM of one server.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::time::sleep;

use super::home::Home;

/// Quick to start: one collector thread, no optimising compiler, no files in `/tmp`.
const JVM: [&str; 4] = [
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Djava.net.preferIPv4Stack=true",
];

/// Becomes the JVM, so that its process id is the JVM's and pausing and killing are exact.
///
/// It leaves a watcher behind, which waits for one line on the pipe from the test process. If the
/// pipe ends without that line, the test process was killed and no destructor ran: the watcher
/// kills the JVM and removes the folder `$0`. It tries again, as a dying JVM may still add a file.
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

/// How often the operating system is asked about a change that it makes within milliseconds.
///
/// Children are waited for by polling because a server outlives the runtime that started it when
/// several tests share it; waiting through tokio would tie it to that runtime.
const POLL: Duration = Duration::from_millis(2);

/// A running JVM; dropping it kills it and waits for its end.
#[derive(Debug)]
pub(super) struct Process {
    child: Child,
    pid: Pid,
    paused: bool,
}

impl Process {
    /// Starts `java` with the arguments; its output is appended to the log.
    pub(super) fn spawn(java: &Path, arguments: &[OsString], home: &Home) -> io::Result<Self> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(home.log())?;
        let child = Command::new("/bin/sh")
            .arg("-c")
            .arg(SCRIPT)
            .arg(home.path())
            .arg(java)
            .args(JVM)
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
            // Also returns if the process ends instead. NOWAIT leaves the status to `Child`. The
            // kernel needs microseconds, so the executor may as well wait.
            let change = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while let Err(error) = waitid(WaitId::Pid(self.pid), change) {
                // A signal handler of the test process ran; the wait is not over.
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

    /// Sends SIGTERM, which a paused process sees when it is resumed.
    pub(super) fn terminate(&mut self) -> io::Result<()> {
        kill_process(self.pid, Signal::TERM)?;
        self.resume()
    }

    /// Sends SIGKILL; the end is up to [`Process::ended`].
    pub(super) fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }

    /// Waits for the end, however long it takes.
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
            // Without a watcher there is nothing to tell.
            pipe.write_all(b"\n").ok();
        }
        // A failure here means that the process is gone already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
