//! The process of one server.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use tokio::time::sleep;

use super::account::Account;
use super::children;

/// Becomes the server, so that its process id is the server's and pausing and killing are exact.
///
/// It leaves a watcher behind, which waits for one line on the pipe from the test process. If the
/// pipe ends without that line, the test process was killed and no destructor ran. The watcher then
/// kills the server with the processes that it has started, and removes the folder `$0`. It retries,
/// because a dying server may still add a file.
///
/// It ignores the signals that a terminal sends to all. The kernel sends one too: to a group of
/// processes that has lost its last parent and in which one is halted, as the server is by then.
///
/// The watcher is no child of the server: a server takes notice of its children, and they are
/// killed. A segment of shared memory is what a PostgreSQL that was killed leaves behind.
const SCRIPT: &str = r#"
exec 3<&0
({
    trap "" HUP INT TERM
    read -r line <&3 && exit
    kill -STOP "$$"
    for stat in /proc/[0-9]*/stat; do
        read -r line <"$stat" || continue
        case "$line" in *") "?" $$ "*) kill -9 "${line%% *}" ;; esac
    done
    kill -9 "$$"
    segment="$(sed -n '7s/.* //p' "$0/data/postmaster.pid")" && ipcrm -m "$segment"
    for attempt in 1 2 3 4 5 6 7 8 9; do
        rm -rf -- "$0" && exit
        sleep 0.1
    done
} 2>/dev/null &)
exec "$@" 3<&- </dev/null
"#;

/// No server is started in an environment that has this variable. By it a test suite shows that some of
/// its tests need none.
const NO_SERVERS: &str = "RECIPES_NO_SERVERS";

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
    has_children: bool,
}

/// How a process is started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch<'a> {
    pub(super) program: &'a Path,
    pub(super) arguments: &'a [OsString],
    /// The folder that goes with the process.
    pub(super) folder: &'a Path,
    /// Output is appended to this file in the folder.
    pub(super) log: &'a Path,
    /// Whom it runs as, if not as the tests.
    pub(super) account: Option<Account>,
    /// Whether it starts processes of its own that must halt and end with it.
    pub(super) has_children: bool,
}

impl Process {
    pub(super) fn spawn(launch: Launch<'_>) -> io::Result<Self> {
        if std::env::var_os(NO_SERVERS).is_some() {
            let refused = format!("{NO_SERVERS} is set, and this needs a server");
            return Err(io::Error::other(refused));
        }
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(launch.log)?;
        let mut command = Command::new("/bin/sh");
        if let Some(account) = launch.account {
            // Where the tests run, it may not look.
            command.current_dir(launch.folder);
            command.uid(account.user).gid(account.group);
        }
        let child = command
            .arg("-c")
            .arg(SCRIPT)
            .arg(launch.folder)
            .arg(launch.program)
            .args(launch.arguments)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let pid = Pid::from_child(&child);
        Ok(Self {
            child,
            pid,
            paused: false,
            has_children: launch.has_children,
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

    /// Whether it has ended as a program does that has done its work.
    pub(super) fn has_succeeded(&mut self) -> io::Result<bool> {
        Ok(self
            .child
            .try_wait()?
            .is_some_and(|status| status.success()))
    }

    /// Sends SIGSTOP and returns when no thread runs any more, of its children neither.
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
            if self.has_children {
                children::pause(self.pid)?;
            }
        }
        Ok(())
    }

    /// Sends SIGCONT.
    pub(super) fn resume(&mut self) -> io::Result<()> {
        if self.has_children && self.paused {
            children::resume(self.pid)?;
        }
        kill_process(self.pid, Signal::CONT)?;
        self.paused = false;
        Ok(())
    }

    /// Sends SIGTERM, which a paused process handles when it is resumed.
    pub(super) fn terminate(&mut self) -> io::Result<()> {
        self.end_by(Signal::TERM)
    }

    /// As [`terminate`](Self::terminate), for a server that ends by another signal.
    pub(super) fn end_by(&mut self, signal: Signal) -> io::Result<()> {
        kill_process(self.pid, signal)?;
        self.resume()
    }

    /// Sends SIGKILL. [`Process::ended`] waits for the end; children have ended already.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        if self.has_children && !self.has_ended()? {
            self.pause()?;
            children::kill(self.pid)?;
        }
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
        // An error means that the process has ended already, or that its children are not to be had.
        self.kill().ok();
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
