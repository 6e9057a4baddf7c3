//! What the processes of `run` share: the names of the roles, and the messages between two of them,
//! which are lines of JSON on a pair of sockets.
//!
//! A process that is started has one of the sockets as its standard input. The descriptors that it
//! needs come over it first, the command's standard input foremost.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep_until};

use super::schedule::Schedule;
use crate::args::OnLost;
use crate::exit::code;

/// This executable, even if its file was replaced meanwhile.
pub(crate) const EXECUTABLE: &str = "/proc/self/exe";
/// The name under which the executable is started to keep the locks of a job in a terminal.
pub(crate) const KEEPER: &str = "lockctl-keep";
/// The name under which the executable is started as a supervisor.
pub(crate) const SUPERVISOR: &str = "lockctl-supervise";
/// The name under which the executable is started to become the command.
pub(crate) const COMMAND: &str = "lockctl-exec";

/// The arguments of the supervisor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) on_lost: OnLost,
    /// Whether the command leads a process group of its own.
    pub(crate) own_group: bool,
    /// The folder of the command's cgroup, if it has one.
    #[serde(default)]
    pub(crate) cgroup: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// When to do what, from now on.
    Schedule {
        ask_at: Option<Moment>,
        kill_at: Option<Moment>,
    },
    Lost,
    /// Kills everything, whatever `--on-lost` says.
    Kill,
    /// A signal for the command.
    Signal(i32),
}

impl From<Schedule> for Order {
    fn from(schedule: Schedule) -> Self {
        Self::Schedule {
            ask_at: schedule.ask_at.map(Moment::of),
            kill_at: schedule.kill_at.map(Moment::of),
        }
    }
}

/// A time on the machine's monotonic clock, in nanoseconds. All processes share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Moment(u64);

impl Moment {
    fn of(instant: Instant) -> Self {
        let now = (Instant::now(), now());
        let ahead = nanoseconds(instant.saturating_duration_since(now.0));
        let ago = nanoseconds(now.0.saturating_duration_since(instant));
        Self(now.1.saturating_add(ahead).saturating_sub(ago))
    }

    pub(crate) fn nanoseconds(self) -> u64 {
        self.0
    }

    pub(crate) fn at_nanoseconds(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    pub(crate) fn instant(self) -> Instant {
        Instant::now() + Duration::from_nanos(self.0.saturating_sub(now()))
    }
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::try_from(now).map(nanoseconds).unwrap_or_default()
}

/// Saturates after 584 years.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// How the command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct End {
    /// Its exit code, unless a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    /// Whether it got SIGTERM or SIGKILL because of the lock.
    pub(crate) for_the_lock: bool,
}

impl End {
    pub(crate) fn code(&self) -> u8 {
        match (self.code, self.signal) {
            (Some(code), _) => u8::try_from(code).unwrap_or(code::INTERNAL),
            (None, Some(signal)) => super::signal_code(signal),
            (None, None) => code::INTERNAL,
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, self.signal) {
            (Some(code), _) => write!(f, "ended with code {code}"),
            (None, Some(signal)) => write!(f, "was ended by signal {signal}"),
            (None, None) => f.write_str("ended"),
        }
    }
}

/// Completes at the moment; never for `None`.
pub(crate) async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// A byte that accompanies the descriptors, because a message must have one.
const HELLO: u8 = b'!';

/// Sends descriptors, two at most, to the process with the other socket.
pub(crate) fn hand_over(socket: impl AsFd, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("no space for the descriptors"));
    }
    sendmsg(
        socket,
        &[IoSlice::new(&[HELLO])],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Receives the descriptors: standard input, and another if one was sent. They are closed when
/// another program is executed.
pub(crate) fn take(socket: impl AsFd) -> io::Result<(OwnedFd, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut hello = [0];
    recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut hello)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(sent) = message {
            descriptors.extend(sent);
        }
    }
    let mut descriptors = descriptors.into_iter();
    let missing = || io::Error::other("no standard input came");
    Ok((descriptors.next().ok_or_else(missing)?, descriptors.next()))
}

pub(crate) fn line(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{End, Moment, Order, line};

    #[test]
    fn moments_survive_the_way() {
        let at = Instant::now() + Duration::from_secs(100);
        let again = Moment::of(at).instant();
        let error = at.max(again) - at.min(again);
        assert!(error < Duration::from_secs(1), "{error:?}");
        // A moment that has passed is due.
        let past = Moment::of(Instant::now() - Duration::from_secs(1));
        assert!(past.instant() <= Instant::now());
    }

    #[test]
    fn orders_are_lines() {
        for order in [
            Order::Lost,
            Order::Kill,
            Order::Signal(15),
            Order::Schedule {
                ask_at: None,
                kill_at: Some(Moment(u64::MAX)),
            },
        ] {
            let line = line(&order).unwrap();
            assert_eq!(line.iter().filter(|it| **it == b'\n').count(), 1);
            assert_eq!(serde_json::from_slice::<Order>(&line).unwrap(), order);
        }
    }

    #[test]
    fn signals_become_codes_as_in_shells() {
        let end = |code, signal| End {
            code,
            signal,
            for_the_lock: false,
        };
        assert_eq!(end(Some(7), None).code(), 7);
        assert_eq!(end(None, Some(9)).code(), 137);
    }
}
