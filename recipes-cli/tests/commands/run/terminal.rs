//! An interactive shell in a terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use rustix::process::Pid;
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::tcgetpgrp;
use test_rig::TestEnsemble;
use tokio::process::{Child, Command};

use super::family::Family;
use super::{LONG, PATH, server};
use crate::lockctl::set_environment;

pub(super) struct Terminal {
    /// The terminal's other end, for the keyboard.
    pub(super) keys: File,
    /// Everything that was printed.
    screen: Arc<Mutex<String>>,
    shell: Child,
    pub(super) family: Family,
    /// Of the lock.
    path: String,
}

impl Terminal {
    /// Ends the shell without a chance to look after its jobs.
    pub(super) fn kill_shell(&mut self) {
        self.shell.start_kill().unwrap();
    }

    pub(super) async fn open(ensemble: &TestEnsemble) -> Self {
        Self::open_for(ensemble, &server(ensemble).connect_string(), PATH).await
    }

    pub(super) async fn open_for(ensemble: &TestEnsemble, connect: &str, path: &str) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let keys = openpt(flags).unwrap();
        grantpt(&keys).unwrap();
        unlockpt(&keys).unwrap();
        let line: OwnedFd = ioctl_tiocgptpeer(&keys, flags).unwrap();
        let family = Family::new();
        let mut shell = Command::new("env");
        // A shell cannot take back that a signal is ignored.
        shell.args(["--default-signal", "setsid", "--ctty"]);
        shell.args(["bash", "--norc", "--noprofile", "-i"]);
        set_environment(&mut shell, connect);
        shell
            .env("lockctl", env!("CARGO_BIN_EXE_lockctl"))
            .current_dir(family.path("."))
            .stdin(Stdio::from(line.try_clone().unwrap()))
            .stdout(Stdio::from(line.try_clone().unwrap()))
            .stderr(Stdio::from(line))
            .kill_on_drop(true);
        let keys = File::from(keys);
        let terminal = Self {
            screen: drawn(keys.try_clone().unwrap()),
            keys,
            shell: shell.spawn().unwrap(),
            family,
            path: path.to_owned(),
        };
        terminal.prompt(ensemble).await;
        terminal
    }

    pub(super) fn type_in(&self, keys: &str) {
        (&self.keys).write_all(keys.as_bytes()).unwrap();
    }

    pub(super) fn start(&self, option: &str, script: &str) {
        self.start_by("", option, script);
    }

    /// Starts a script by a program and its arguments.
    pub(super) fn start_by(&self, program: &str, option: &str, script: &str) {
        std::fs::write(self.family.path("script"), script).unwrap();
        let path = &self.path;
        self.type_in(&format!(
            "$lockctl run {option} {path} -- {program} sh ./script\n"
        ));
    }

    /// Starts `lockctl run` of a script. Returns when the script has created the file `ready`.
    pub(super) async fn run(&self, ensemble: &TestEnsemble, script: &str) {
        self.start(LONG, script);
        self.written(ensemble, "ready", |_| true).await;
    }

    /// The same, with one more option.
    pub(super) async fn run_with(&self, ensemble: &TestEnsemble, option: &str, script: &str) {
        self.start(&format!("{LONG} {option}"), script);
        self.written(ensemble, "ready", |_| true).await;
    }

    /// Waits until the shell reads the input, and no job of it does.
    pub(super) async fn prompt(&self, ensemble: &TestEnsemble) {
        let shell = i32::try_from(self.shell.id().unwrap()).unwrap();
        let is_asking = async || (tcgetpgrp(&self.keys).ok() == Pid::from_raw(shell)).then_some(());
        ensemble.until("a prompt", is_asking).await;
    }

    /// The exit code of the job that was in the foreground.
    pub(super) async fn code(&self, ensemble: &TestEnsemble) -> i32 {
        self.prompt(ensemble).await;
        self.type_in("echo $? > code.new; mv code.new code\n");
        let code = self.written(ensemble, "code", |_| true).await;
        std::fs::remove_file(self.family.path("code")).unwrap();
        code.trim().parse().unwrap()
    }

    /// Waits until a file has the expected content.
    pub(super) async fn written(
        &self,
        ensemble: &TestEnsemble,
        name: &str,
        is_it: impl Fn(&str) -> bool,
    ) -> String {
        let file = async || {
            let text = std::fs::read_to_string(self.family.path(name)).ok()?;
            is_it(&text).then_some(text)
        };
        ensemble.until(name, file).await
    }
}

/// Prints the screen if a test fails.
impl Drop for Terminal {
    fn drop(&mut self) {
        println!("{}", self.screen.lock().unwrap());
    }
}

/// Reads a terminal to its end.
fn drawn(mut output: File) -> Arc<Mutex<String>> {
    let screen = Arc::new(Mutex::new(String::new()));
    let drawn = Arc::clone(&screen);
    std::thread::spawn(move || {
        let mut bytes = [0; 1024];
        while let Ok(count) = output.read(&mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..count]);
            drawn.lock().unwrap().push_str(&text);
        }
    });
    screen
}
