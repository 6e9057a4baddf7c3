//! `lockctl run` as a job of an interactive shell.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use recipes_testing::TestEnsemble;
use rustix::process::{Pid, Signal};
use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::tcgetpgrp;
use tokio::process::{Child, Command};

use super::family::{Family, SCRIPT, alive, gone, is_halted};
use super::process::signal;
use super::{LONG, PATH, SHORT, mutex, next_in_line, server, start, token};
use crate::lockctl::set_environment;

const CTRL_C: &str = "\u{3}";
const CTRL_Z: &str = "\u{1a}";

struct Terminal {
    /// The terminal's other end, for the keyboard.
    keys: File,
    /// Everything that was printed.
    screen: Arc<Mutex<String>>,
    shell: Child,
    family: Family,
}

impl Terminal {
    async fn open(ensemble: &TestEnsemble) -> Self {
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
        set_environment(&mut shell, &server(ensemble).connect_string());
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
        };
        terminal.prompt(ensemble).await;
        terminal
    }

    fn type_in(&self, keys: &str) {
        (&self.keys).write_all(keys.as_bytes()).unwrap();
    }

    fn start(&self, option: &str, script: &str) {
        std::fs::write(self.family.path("script"), script).unwrap();
        self.type_in(&format!("$lockctl run {option} {PATH} -- sh ./script\n"));
    }

    /// Starts `lockctl run` of a script. Returns when the script has created the file `ready`.
    async fn run(&self, ensemble: &TestEnsemble, script: &str) {
        self.start(LONG, script);
        self.written(ensemble, "ready", |_| true).await;
    }

    /// Waits until the shell reads the input, and no job of it does.
    async fn prompt(&self, ensemble: &TestEnsemble) {
        let shell = i32::try_from(self.shell.id().unwrap()).unwrap();
        let is_asking = async || (tcgetpgrp(&self.keys).ok() == Pid::from_raw(shell)).then_some(());
        ensemble.until("a prompt", is_asking).await;
    }

    /// The exit code of the job that was in the foreground.
    async fn code(&self, ensemble: &TestEnsemble) -> i32 {
        self.prompt(ensemble).await;
        self.type_in("echo $? > code.new; mv code.new code\n");
        let code = self.written(ensemble, "code", |_| true).await;
        std::fs::remove_file(self.family.path("code")).unwrap();
        code.trim().parse().unwrap()
    }

    /// Waits until a file has the expected content.
    async fn written(
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

/// Records each signal when it comes.
const HEEDFUL: &str = r#"
trap 'echo int >> got' INT
trap 'echo term >> got; exit 9' TERM
sleep 1000 &
: > ready
while :; do wait; done
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_reaches_the_command_once_and_its_code_is_passed_through() {
    let ensemble = start().await;
    let terminal = Terminal::open(&ensemble).await;
    terminal.run(&ensemble, HEEDFUL).await;
    terminal.type_in(CTRL_C);
    terminal.written(&ensemble, "got", |it| it == "int\n").await;
    // `lockctl` passes signals on in order.
    let job = tcgetpgrp(&terminal.keys).unwrap();
    signal(job.as_raw_nonzero().get(), Signal::TERM);
    assert_eq!(terminal.code(&ensemble).await, 9);
    assert_eq!(terminal.family.read("got"), "int\nterm\n");
    ensemble.await_children(PATH, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_ends_commands_that_do_not_heed_it_and_waits() {
    let ensemble = start().await;
    let terminal = Terminal::open(&ensemble).await;
    let script = ": > ready; exec sleep 1000";
    terminal.run(&ensemble, script).await;
    terminal.type_in(CTRL_C);
    assert_eq!(terminal.code(&ensemble).await, 128 + 2);
    ensemble.await_children(PATH, 0).await;

    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    terminal.type_in(&format!("$lockctl run {PATH} -- touch ran\n"));
    ensemble.await_children(PATH, 2).await;
    terminal.type_in(CTRL_C);
    assert_eq!(terminal.code(&ensemble).await, 128 + 2);
    assert_eq!(ensemble.children(PATH).await.len(), 1);
    held.release().await.unwrap();
    assert!(!terminal.family.path("ran").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_reads_from_the_terminal() {
    let ensemble = start().await;
    let terminal = Terminal::open(&ensemble).await;
    let script = "test -t 0 || exit 1; : > ready; read -r line; echo \"$line\" > line; exit 5";
    terminal.run(&ensemble, script).await;
    terminal.type_in("a word\n");
    assert_eq!(terminal.code(&ensemble).await, 5);
    assert_eq!(terminal.family.read("line"), "a word\n");

    // A shell with jobs of its own. When it ends, the terminal is given back.
    terminal.type_in(&format!("$lockctl run {PATH} -- bash --norc -i\n"));
    ensemble.await_children(PATH, 1).await;
    terminal.type_in("sh -c 'exit 7'; echo $? > inner; exit 4\n");
    assert_eq!(terminal.code(&ensemble).await, 4);
    assert_eq!(terminal.family.read("inner"), "7\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_that_goes_on_soon_after_ctrl_z_keeps_its_lock() {
    let ensemble = start().await;
    let terminal = Terminal::open(&ensemble).await;
    let script = "echo $$ > ready; until [ -e go ]; do sleep 0.05; done; exit 3";
    terminal.run(&ensemble, script).await;
    let held = ensemble.await_children(PATH, 1).await;
    let command = terminal.family.read("ready").trim().parse().unwrap();
    assert!(!is_halted(command));
    terminal.type_in(CTRL_Z);
    // The shell reports the first process that stops.
    assert_eq!(terminal.code(&ensemble).await, 128 + 20);
    let halted = async || is_halted(command).then_some(());
    ensemble.until("a halted command", halted).await;
    std::fs::write(terminal.family.path("go"), "").unwrap();
    assert_eq!(ensemble.children(PATH).await, held);
    terminal.type_in("fg\n");
    assert_eq!(terminal.code(&ensemble).await, 3);
    ensemble.await_children(PATH, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn job_that_ctrl_z_halts_for_long_loses_its_lock_and_is_killed_when_it_goes_on() {
    let ensemble = start().await;
    let terminal = Terminal::open(&ensemble).await;
    terminal.start(SHORT, SCRIPT);
    let members = terminal.family.members(&ensemble).await;
    let (_session, next) = next_in_line(&ensemble).await;
    terminal.type_in(CTRL_Z);
    let granted = next.await.unwrap();
    assert_eq!(alive(&members).len(), members.len());
    assert!(token(&granted) > terminal.family.token(), "the token tells");
    terminal.prompt(&ensemble).await;
    terminal.type_in("fg\n");
    gone(&ensemble, &members).await;
    assert_eq!(terminal.code(&ensemble).await, 76);
    granted.verify().await.unwrap();
}
