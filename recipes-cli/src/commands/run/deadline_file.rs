//! The latest deadline, in memory that `lockctl` and the supervisor share.
//!
//! Orders wait in line on the socket, and a socket that nobody reads becomes full. So a supervisor
//! that was halted finds old deadlines there first, and perhaps no others. Before it kills, it looks
//! here.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use rustix::fs::{MemfdFlags, memfd_create};

use super::wire::Moment;

/// A deadline, and the same with all bits inverted: a record that is read while it is written does
/// not match itself.
const RECORD: usize = 4 * size_of::<u64>();
/// A record takes nanoseconds to be written.
const READS_MAX: u32 = 100;

#[derive(Debug)]
pub(crate) struct DeadlineFile(File);

impl DeadlineFile {
    pub(crate) fn create() -> io::Result<Self> {
        let memory = memfd_create("lockctl-deadline", MemfdFlags::CLOEXEC)?;
        Ok(Self::from(memory))
    }

    pub(crate) fn write(&self, ask_at: Option<Moment>, kill_at: Option<Moment>) -> io::Result<()> {
        self.0.write_all_at(&record(ask_at, kill_at), 0)
    }

    /// When to ask and when to kill. `None` if nothing was written yet.
    pub(crate) fn read(&self) -> Option<(Option<Moment>, Option<Moment>)> {
        (0..READS_MAX).find_map(|_| {
            let mut bytes = [0; RECORD];
            self.0.read_exact_at(&mut bytes, 0).ok()?;
            parse(&bytes)
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

fn record(ask_at: Option<Moment>, kill_at: Option<Moment>) -> Vec<u8> {
    let [ask_at, kill_at] = [ask_at, kill_at].map(|it| it.map_or(u64::MAX, Moment::nanoseconds));
    let numbers = [ask_at, kill_at, !ask_at, !kill_at];
    numbers.iter().flat_map(|it| it.to_ne_bytes()).collect()
}

/// `None` if it does not match itself.
fn parse(record: &[u8; RECORD]) -> Option<(Option<Moment>, Option<Moment>)> {
    let words = record.chunks_exact(size_of::<u64>());
    let numbers = words.filter_map(|it| it.try_into().ok().map(u64::from_ne_bytes));
    let numbers: Vec<_> = numbers.collect();
    let [ask_at, kill_at, not_ask_at, not_kill_at] = *numbers else {
        return None;
    };
    let moment = |it| (it != u64::MAX).then(|| Moment::at_nanoseconds(it));
    let matches = ask_at == !not_ask_at && kill_at == !not_kill_at;
    matches.then(|| (moment(ask_at), moment(kill_at)))
}

#[cfg(test)]
mod tests {
    use super::{DeadlineFile, Moment, parse, record};

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
        for written in 1..old.len() {
            let torn = [&new[..written], &old[written..]].concat();
            let read = parse(&torn.as_slice().try_into().unwrap());
            let is_old = torn == old;
            let is_new = torn == new;
            assert_eq!(read.is_some(), is_old || is_new, "{written}");
        }
    }
}
