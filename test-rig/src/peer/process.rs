//! The peer's process: built when its sources changed, started, and driven over its pipes.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::PeerError;
use super::wire::{Command, Values};

/// Longer than any command takes that does not wait for a lock: `open` gives up after 50 s.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(60);
const EXIT_MAX: Duration = Duration::from_secs(10);
const STDERR_LINES_MAX: usize = 20;
/// The exit code of the build script when the machine lacks something.
const MISSING: i32 = 3;

/// A running peer, killed when dropped.
#[derive(Debug)]
pub(super) struct Process {
    program: String,
    child: Child,
    commands: mpsc::UnboundedSender<String>,
    next_id: AtomicU64,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared(Mutex<State>);

#[derive(Debug)]
enum State {
    Running(HashMap<u64, oneshot::Sender<String>>),
    /// It has ended, with the last lines of its standard error.
    Exited(String),
}

/// A command that was sent, and whose answer may be awaited.
#[derive(Debug)]
pub(super) struct Pending {
    command: Command,
    answer: oneshot::Receiver<String>,
    shared: Arc<Shared>,
}

impl Process {
    /// Starts the program, which speaks the peers' protocol.
    pub(super) fn start(mut program: tokio::process::Command) -> Result<Self, PeerError> {
        let name = program.as_std().get_program();
        let name = name.to_string_lossy().into_owned();
        let start_error = |source| failed(&name, source);
        let mut child = program
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(start_error)?;
        let (Some(stdin), Some(stdout), Some(stderr)) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(start_error(io::Error::other("the pipes are gone")));
        };
        let shared = Arc::new(Shared(Mutex::new(State::Running(HashMap::new()))));
        let last_words = tokio::spawn(keep_last_lines(stderr));
        tokio::spawn(read_answers(stdout, last_words, Arc::clone(&shared)));
        let (commands, lines) = mpsc::unbounded_channel();
        tokio::spawn(write_commands(stdin, lines));
        Ok(Self {
            program: name,
            child,
            commands,
            next_id: AtomicU64::new(1),
            shared,
        })
    }

    /// Sends the command now, whether or not the result is ever polled.
    pub(super) fn send(&self, command: Command) -> Pending {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        // It is registered before it is sent, so that the answer finds it. If the process has
        // ended, the sender is dropped here, and the answer is `Exited`.
        if let State::Running(waiting) = &mut *self.shared.lock() {
            waiting.insert(id, sender);
        }
        if self
            .commands
            .send(format!("{id} {}\n", command.as_str()))
            .is_err()
        {
            // The pipe is broken: the reader of answers sees the end of the peer and reports it.
            tracing::debug!(command = command.as_str(), "the peer has ended");
        }
        Pending {
            command,
            answer,
            shared: Arc::clone(&self.shared),
        }
    }

    pub(super) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    #[cfg(unix)]
    pub(super) fn signal(&self, signal: rustix::process::Signal) -> io::Result<()> {
        let id = self.id().and_then(|id| i32::try_from(id).ok());
        let pid = id.and_then(rustix::process::Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the peer has ended"))?;
        Ok(rustix::process::kill_process(pid, signal)?)
    }

    /// Waits for the peer to end by itself, and not for longer than it may take.
    pub(super) async fn wait(mut self) -> Result<(), PeerError> {
        let ended = match timeout(EXIT_MAX, self.child.wait()).await {
            Ok(ended) => ended.map(drop),
            Err(_) => self.child.kill().await,
        };
        ended.map_err(|source| failed(&self.program, source))
    }

    pub(super) async fn kill(mut self) -> Result<(), PeerError> {
        let killed = self.child.kill().await;
        killed.map_err(|source| failed(&self.program, source))
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    /// Waits, without a limit, for the answer to a command that may itself wait.
    pub(super) async fn values(self) -> Result<Values, PeerError> {
        match self.answer.await {
            Ok(answer) => Values::parse(self.command, answer),
            Err(_) => Err(PeerError::Exited {
                command: self.command.as_str().to_owned(),
                stderr: match &*self.shared.lock() {
                    State::Exited(stderr) => stderr.clone(),
                    State::Running(_) => String::new(),
                },
            }),
        }
    }

    pub(super) async fn values_within(self, waited: Duration) -> Result<Values, PeerError> {
        let command = self.command.as_str().to_owned();
        match timeout(waited, self.values()).await {
            Ok(answered) => answered,
            Err(_) => Err(PeerError::NoAnswer { command, waited }),
        }
    }
}

fn failed(program: &str, source: io::Error) -> PeerError {
    PeerError::Start {
        program: program.to_owned(),
        source,
    }
}

/// A file below `tests/peers`.
pub(super) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/peers")
        .join(name)
}

/// Runs a build script below `tests/peers`. Returns what it prints: by what the peer is started.
pub(super) async fn build(script: &str) -> Result<String, PeerError> {
    let script = source(script);
    if !script.exists() {
        let details = format!(
            "{} is only in the repository of this crate",
            script.display()
        );
        return Err(PeerError::Build { details });
    }
    let program = script.display().to_string();
    let output = tokio::process::Command::new(script)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|source| PeerError::Start { program, source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let details = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(match output.status.code() {
        Some(MISSING) => PeerError::Missing { details },
        _ => PeerError::Build { details },
    })
}

/// Ends when the process is dropped or the peer has closed the pipe.
async fn write_commands(mut stdin: ChildStdin, mut lines: mpsc::UnboundedReceiver<String>) {
    while let Some(line) = lines.recv().await {
        if let Err(error) = stdin.write_all(line.as_bytes()).await {
            tracing::debug!(%error, "the peer takes no more commands");
            return;
        }
    }
}

/// Ends with the peer's standard output, that is, with the peer.
async fn read_answers(
    stdout: impl AsyncRead + Unpin,
    last_words: JoinHandle<String>,
    shared: Arc<Shared>,
) {
    let mut lines = BufReader::new(stdout).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let (id, answer) = line.split_once(' ').unwrap_or((&line, ""));
        let waiting = match (&mut *shared.lock(), id.parse()) {
            (State::Running(waiting), Ok(id)) => waiting.remove(&id),
            _ => None,
        };
        // The caller may have dropped the future. The answer is of no use then.
        match waiting.map(|caller| caller.send(answer.to_owned())) {
            Some(Ok(())) => {}
            Some(Err(_)) | None => tracing::debug!(line, "an answer that nobody waits for"),
        }
    }
    let stderr = match timeout(EXIT_MAX, last_words).await {
        Ok(Ok(stderr)) => stderr,
        Ok(Err(_)) | Err(_) => String::new(),
    };
    let before = std::mem::replace(&mut *shared.lock(), State::Exited(stderr));
    drop(before); // after the state has changed: this wakes all who wait, and they read it
}

async fn keep_last_lines(stderr: impl AsyncRead + Unpin) -> String {
    let mut kept = VecDeque::new();
    let mut lines = BufReader::new(stderr).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        tracing::debug!(line, "peer");
        if kept.len() == STDERR_LINES_MAX {
            kept.pop_front();
        }
        kept.push_back(line);
    }
    Vec::from(kept).join("\n")
}
