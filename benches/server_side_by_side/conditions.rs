//! The conditions of a run: when, where and how it was made.

use std::path::Path;

use tokio::time::Instant;

use super::facts::{load, machine, said};
use super::options::Options;

/// Lines of text, each with its subject.
#[derive(Debug)]
pub(crate) struct Conditions {
    pub(crate) lines: Vec<(&'static str, String)>,
    started: Instant,
}

impl Conditions {
    pub(crate) fn begin() -> Self {
        let lines = vec![
            ("date", said("date", &["-u", "+%Y-%m-%d %H:%M UTC"])),
            ("commit", said("git", &["describe", "--always", "--dirty"])),
            ("machine", machine()),
            ("system", said("uname", &["-sr"])),
            ("load before", load()),
            ("Rust", said("rustc", &["--version"])),
        ];
        Self {
            lines,
            started: Instant::now(),
        }
    }

    /// Seconds since the run began.
    pub(crate) fn seconds(&self) -> u64 {
        self.started.elapsed().as_secs()
    }

    pub(crate) fn end(&mut self, options: &Options) {
        let (rounds, length) = (options.rounds, options.length);
        let rounds = format!("{rounds} of {length:?} for each side, in turns");
        let took = self.seconds();
        let took = format!("{} min {} s", took / 60, took % 60);
        self.lines
            .extend([("rounds", rounds), ("load after", load()), ("took", took)]);
    }
}

/// The kind of file system that a folder is on.
pub(crate) fn file_system(folder: &Path) -> String {
    let folder = folder.display().to_string();
    said("stat", &["--file-system", "--format=%T", &folder])
}
