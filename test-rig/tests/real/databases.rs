//! Databases start, fail, halt, restart and end, and forget what they may.
#![cfg(unix)]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, test_kill_process};
use test_rig::ServerError;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

mod mariadb;
mod postgres;

type Outcome = Result<(), Box<dyn Error>>;

/// Far more than anything here takes, so that a test that hangs fails.
const PATIENCE: Duration = Duration::from_secs(300);
/// Many times what a server takes that runs.
const A_WHILE: Duration = Duration::from_millis(300);
/// Between two looks.
const A_MOMENT: Duration = Duration::from_millis(50);
const MARK: &str = "folder of the server: ";

/// How many processes have this folder in their command line, or are children of such. The watcher
/// is not counted.
fn processes_of(folder: &Path) -> Result<usize, Box<dyn Error>> {
    let folder = folder.display().to_string();
    let (mut servers, mut parents) = (Vec::new(), Vec::new());
    for process in std::fs::read_dir("/proc")? {
        let process = process?.path();
        // Either may be gone meanwhile.
        let read = |what: &str| std::fs::read(process.join(what)).unwrap_or_default();
        let (command, stat) = (read("cmdline"), read("stat"));
        let (command, stat) = (
            String::from_utf8_lossy(&command),
            String::from_utf8_lossy(&stat),
        );
        let pid = stat.split(' ').next().unwrap_or_default().to_owned();
        let parent = stat.rsplit(") ").next().and_then(|it| it.split(' ').nth(1));
        if command.contains(&folder) && !command.contains("read -r line") {
            servers.push(pid);
        } else {
            parents.extend(parent.map(ToOwned::to_owned));
        }
    }
    let children = parents.iter().filter(|it| servers.contains(it)).count();
    Ok(servers.len() + children)
}

fn is_running(pid: u32) -> Result<bool, Box<dyn Error>> {
    let pid = Pid::from_raw(pid.try_into()?).ok_or("no pid")?;
    Ok(test_kill_process(pid).is_ok())
}

/// A MariaDB speaks first. Returns whether it did in this time.
async fn greets(port: u16, time: Duration) -> Result<bool, Box<dyn Error>> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    let greeting = timeout(time, stream.read_u8()).await;
    Ok(greeting.is_ok_and(|it| it.is_ok()))
}

pub(crate) fn refusal<T>(answer: Result<T, ServerError>) -> String {
    match answer {
        Err(ServerError::Refused { answer, .. }) => answer,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("not refused"),
    }
}

/// A certificate that nobody else knows, and its key.
pub(crate) fn certificate(folder: &Path) -> Result<[PathBuf; 2], Box<dyn Error>> {
    let [certificate, key] = ["a.crt", "a.key"].map(|it| folder.join(it));
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-subj",
            "/CN=localhost",
        ])
        .args(["-out".as_ref(), certificate.as_os_str()])
        .args(["-keyout".as_ref(), key.as_os_str()])
        .output()?;
    assert!(made.status.success(), "{made:?}");
    Ok([certificate, key])
}

/// Runs the test that prints its server's folder and never ends, and kills it.
async fn server_is_gone_after_a_kill_of(test: &str) -> Outcome {
    let mut process = tokio::process::Command::new(std::env::current_exe()?)
        .args(["--ignored", "--exact", "--nocapture", test])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(process.stdout.take().ok_or("no output")?).lines();
    let folder = loop {
        let line = lines.next_line().await?.ok_or("no server")?;
        // The harness prints the name of the test before it on the same line.
        if let Some((_, folder)) = line.split_once(MARK) {
            break PathBuf::from(folder);
        }
    };
    assert!(folder.exists() && processes_of(&folder)? > 0);
    process.kill().await?;
    let gone = async {
        // The watcher, which removes the folder after the server's end, is no child of this
        // process. Its `rm` names the folder until it ends.
        while folder.exists() || processes_of(&folder)? > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    };
    timeout(PATIENCE, gone).await?
}
