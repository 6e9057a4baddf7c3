//! The conditions of a run: when, where and how it was made.

use std::io::Write as _;
use std::path::Path;

use tokio::time::Instant;

use super::facts::{load, machine, said};
use super::numbers::grouped;
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

/// The file system that a folder is on, and how long it takes to have something on the disk. That
/// varies much if others write to the disk.
pub(crate) fn disk(folder: &Path) -> String {
    let kind = said(
        "stat",
        &[
            "--file-system",
            "--format=%T",
            &folder.display().to_string(),
        ],
    );
    let mut file = tempfile::tempfile_in(folder).unwrap();
    let mut micros: Vec<_> = (0..200)
        .map(|_| {
            let begun = Instant::now();
            file.write_all(&[7; 512]).unwrap();
            file.sync_data().unwrap();
            begun.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    micros.sort_by(f64::total_cmp);
    let [middle, long] = [micros[100], micros[190]].map(grouped);
    format!("{kind}; 512 bytes are on it after {middle} µs (95 %: {long} µs)")
}
