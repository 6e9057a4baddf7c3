//! Signals that `lockctl` passes on to the command.

use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};
use tokio::sync::mpsc;

/// The signals that request a process to end.
pub(crate) const PASSED_ON: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

/// Whether a terminal controls this process. If so, the command stays in its process group, which
/// is a job of a shell. Then it may read from the terminal, and Ctrl-C and Ctrl-Z reach all of it.
pub(crate) fn have_terminal() -> bool {
    File::open("/dev/tty").is_ok()
}

#[derive(Debug)]
pub(crate) struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
    /// Those of the job that this process keeps locks for, if any. Then its own signals are not
    /// meant for the command.
    of_job: Option<mpsc::Receiver<Signal>>,
}

impl Signals {
    /// Stops these signals from ending this process.
    ///
    /// A signal that the process was started to ignore (by `nohup`, or by a shell in the
    /// background) stays ignored, here and in the command.
    pub(crate) fn listen() -> io::Result<Self> {
        let ignored = ignored();
        defuse()?;
        let mut streams = Vec::new();
        for passed_on in PASSED_ON {
            if ignored & bit(passed_on) == 0 {
                let kind = SignalKind::from_raw(passed_on.as_raw());
                streams.push((passed_on, signal(kind)?));
            }
        }
        let of_job = None;
        Ok(Self { streams, of_job })
    }

    /// Stops these signals from ending this process, and passes on those of its job.
    pub(crate) fn of_job(of_job: mpsc::Receiver<Signal>) -> io::Result<Self> {
        let own = Self::listen()?;
        let of_job = Some(of_job);
        Ok(Self { of_job, ..own })
    }

    /// The next signal. Dropping the future loses no signal.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|cx| {
            if let Some(of_job) = &mut self.of_job {
                return match of_job.poll_recv(cx) {
                    Poll::Ready(Some(signal)) => Poll::Ready(signal),
                    // The last one has said that the job has ended.
                    Poll::Ready(None) | Poll::Pending => Poll::Pending,
                };
            }
            for (signal, stream) in &mut self.streams {
                if let Poll::Ready(Some(())) = stream.poll_recv(cx) {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// Handles the signals with which a caller could make this process fail. A handler stays until the
/// process ends, and is not passed on: the command gets the default action.
pub(super) fn defuse() -> io::Result<()> {
    // Where SIGCHLD is ignored, as some daemons pass it on, the kernel keeps no exit status.
    drop(signal(SignalKind::child())?);
    // Under `ulimit -f`, a message that does not fit into a file is no reason to end. The command
    // inherits that the signal is ignored.
    if ignored() & bit(Signal::XFSZ) == 0 {
        drop(signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?);
    }
    Ok(())
}

/// Whether a terminal sends the signal to all of a job, for Ctrl-C or Ctrl-\.
pub(crate) fn is_typed(signal: Signal) -> bool {
    matches!(signal, Signal::INT | Signal::QUIT)
}

/// Whether SIGCONT follows the signal, as after `kill` in a shell: a halted process heeds the signal
/// only when it goes on.
pub(crate) fn resumes(signal: Signal) -> bool {
    matches!(signal, Signal::TERM | Signal::HUP)
}

fn bit(signal: Signal) -> u64 {
    let place = u32::try_from(signal.as_raw() - 1).unwrap_or_default();
    1_u64.checked_shl(place).unwrap_or_default()
}

/// The set of signals that this process ignores.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|it| it.strip_prefix("SigIgn:"));
    line.and_then(|it| u64::from_str_radix(it.trim(), 16).ok())
        .unwrap_or_default()
}
