//! The latest deadline, in memory that `lockctl` and the supervisor share.
//!
//! Orders wait in line on the socket, and a socket that nobody reads becomes full. So a supervisor
//! that was halted finds old deadlines there first, and perhaps no others. Before it kills, it looks
//! here.
//!
//! The memory is a file without content. The deadline is in its two times, because a limit on the
//! size of files (`ulimit -f 0`) is for the content of such memory too.

use std::fs::{File, FileTimes};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{MemfdFlags, memfd_create};

use super::wire::Moment;

/// A record takes nanoseconds to be written.
const READS_MAX: u32 = 100;
/// Stands for no deadline. The kernel takes later seconds for too late.
const NEVER: u64 = u64::MAX / 2 - 1;
/// The fraction of a second in a time of a file.
const FRACTIONS: u64 = 1_000_000_000;

/// One time of the file: the nanoseconds of a moment as seconds, and a checksum over both moments as
/// the fraction. A record that is read while it is written does not match its checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    seconds: u64,
    checksum: u32,
}

#[derive(Debug)]
pub(crate) struct DeadlineFile(File);

impl DeadlineFile {
    pub(crate) fn create() -> io::Result<Self> {
        let memory = memfd_create("lockctl-deadline", MemfdFlags::CLOEXEC)?;
        let file = Self::from(memory);
        // No record has a checksum of zero.
        let nothing = Stamp {
            seconds: 0,
            checksum: 0,
        };
        file.set([nothing; 2])?;
        Ok(file)
    }

    pub(crate) fn write(&self, ask_at: Option<Moment>, kill_at: Option<Moment>) -> io::Result<()> {
        self.set(record(ask_at, kill_at))
    }

    fn set(&self, stamps: [Stamp; 2]) -> io::Result<()> {
        let [ask_at, kill_at] =
            stamps.map(|it| UNIX_EPOCH + Duration::new(it.seconds, it.checksum));
        let times = FileTimes::new().set_accessed(ask_at).set_modified(kill_at);
        self.0.set_times(times)
    }

    /// When to ask and when to kill. `None` if nothing was written yet.
    pub(crate) fn read(&self) -> Option<(Option<Moment>, Option<Moment>)> {
        (0..READS_MAX).find_map(|_| {
            let read = self.0.metadata().ok()?;
            let ask_at = stamp(read.atime(), read.atime_nsec())?;
            parse([ask_at, stamp(read.mtime(), read.mtime_nsec())?])
        })
    }
}

impl From<OwnedFd> for DeadlineFile {
    fn from(memory: OwnedFd) -> Self {
        Self(File::from(memory))
    }
}

impl AsFd for DeadlineFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn stamp(seconds: i64, fraction: i64) -> Option<Stamp> {
    Some(Stamp {
        seconds: seconds.try_into().ok()?,
        checksum: fraction.try_into().ok()?,
    })
}

fn record(ask_at: Option<Moment>, kill_at: Option<Moment>) -> [Stamp; 2] {
    let seconds = [ask_at, kill_at].map(|it| it.map_or(NEVER, |it| it.nanoseconds().min(NEVER)));
    let checksum = checksum(seconds);
    seconds.map(|seconds| Stamp { seconds, checksum })
}

fn checksum([ask_at, kill_at]: [u64; 2]) -> u32 {
    let mixed = ask_at.rotate_left(32) ^ kill_at;
    // It is less than a billion, and never zero.
    u32::try_from(mixed % (FRACTIONS - 1) + 1).unwrap_or_default()
}

/// `None` if it does not match its checksums.
fn parse(stamps: [Stamp; 2]) -> Option<(Option<Moment>, Option<Moment>)> {
    let expected = checksum(stamps.map(|it| it.seconds));
    let matches = stamps.iter().all(|it| it.checksum == expected);
    let moment = |it: Stamp| (it.seconds != NEVER).then(|| Moment::at_nanoseconds(it.seconds));
    let [ask_at, kill_at] = stamps.map(moment);
    matches.then_some((ask_at, kill_at))
}

#[cfg(test)]
mod tests {
    use super::{DeadlineFile, Moment, Stamp, parse, record};

    #[test]
    fn last_deadline_is_read_as_often_as_needed() {
        let file = DeadlineFile::create().unwrap();
        assert_eq!(file.read(), None);
        let [early, late] = [7, 1_000_000].map(Moment::at_nanoseconds);
        for deadline in [(Some(early), Some(late)), (None, Some(late)), (None, None)] {
            file.write(deadline.0, deadline.1).unwrap();
            assert_eq!(file.read(), Some(deadline));
            assert_eq!(file.read(), Some(deadline));
        }
    }

    #[test]
    fn half_a_deadline_is_none() {
        let [old, new] = [(1, 2), (3, 4)].map(|(ask_at, kill_at)| {
            let [ask_at, kill_at] = [ask_at, kill_at].map(Moment::at_nanoseconds);
            record(Some(ask_at), Some(kill_at))
        });
        // The kernel writes two numbers of each, one after the other.
        for written in 1_u32..16 {
            let has = |place: u32| written & (1 << place) != 0;
            let torn = [0, 1].map(|at| {
                let place = 2 * u32::try_from(at).unwrap();
                let of = |is_new: bool| if is_new { new[at] } else { old[at] };
                Stamp {
                    seconds: of(has(place)).seconds,
                    checksum: of(has(place + 1)).checksum,
                }
            });
            let is_old = torn == old;
            let is_new = torn == new;
            assert_eq!(parse(torn).is_some(), is_old || is_new, "{written}");
        }
    }
}
