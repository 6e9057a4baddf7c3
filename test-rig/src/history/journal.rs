//! The file to which a process writes its events.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use rustix::time::{ClockId, clock_gettime};

use super::event::{AttemptId, Event, Happening, Step};

/// Nanoseconds of the machine's monotonic clock, the same in all processes of the machine.
#[must_use]
pub fn monotonic_now() -> u64 {
    u64::try_from(nanoseconds(ClockId::Monotonic)).unwrap_or(0)
}

/// Nanoseconds by which the wall clock is ahead of the monotonic one. Valid until it is set.
pub(super) fn wall_ahead() -> i64 {
    // The reading that was interrupted least.
    let readings = (0..100).map(|_| {
        let before = nanoseconds(ClockId::Monotonic);
        let wall = nanoseconds(ClockId::Realtime);
        let after = nanoseconds(ClockId::Monotonic);
        (after - before, wall - (before + (after - before) / 2))
    });
    readings.min().map_or(0, |(_, ahead)| ahead)
}

fn nanoseconds(clock: ClockId) -> i64 {
    let now = clock_gettime(clock);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

/// A file of events, one line each. If a process is killed, no line is written in part.
///
/// Several processes may append to one file.
#[derive(Debug)]
pub struct Journal(File);

impl Journal {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        Ok(Self(options.create(true).append(true).open(path)?))
    }

    /// Writes one contender's step. `at` must be taken before the state that the step reports was
    /// read.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn step(&self, at: u64, id: AttemptId, step: Step) -> io::Result<()> {
        self.write(at, Happening::Of(id, step))
    }

    /// Writes what happened.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, at: u64, what: Happening) -> io::Result<()> {
        // One call appends the whole line. So lines do not mix, and a kill leaves all of it or
        // nothing.
        let line = format!("{}\n", Event { at, what });
        (&self.0).write_all(line.as_bytes())
    }
}
