//! The options of a run.

use std::path::PathBuf;
use std::time::Duration;

use super::plan::Case;

pub(crate) const USAGE: &str = "\
usage: scripts/bench [OPTION...]
    --quick           stands alone: only counts what operations ask of the server, and fails if that
                      is more than it should be
    --repetitions N   how often each side does each case; 5
    --seconds S       how long each time, where a case has no length of its own; 0.8
    --short           without the queues of 1,000 and 10,000, which take half of the time
    --only TEXT       only the cases with this in their names
    --output FOLDER   where the report goes; docs/benchmarks, or target/benchmarks for a part";

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) repetitions: usize,
    pub(crate) length: Duration,
    is_short: bool,
    only: Option<String>,
    pub(crate) output: PathBuf,
}

impl Options {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let (mut repetitions, mut length) = (5, Duration::from_millis(800));
        let (mut is_short, mut only, mut output) = (false, None, None);
        while let Some(option) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{option} of what?"));
            match option.as_str() {
                "--repetitions" => repetitions = positive(&value()?)?,
                "--seconds" => length = Duration::from_secs_f64(positive(&value()?)?),
                "--short" => is_short = true,
                "--only" => only = Some(value()?),
                "--output" => output = Some(PathBuf::from(value()?)),
                // cargo passes this to every benchmark.
                "--bench" => {}
                unknown => return Err(format!("unknown option: {unknown}")),
            }
        }
        let is_whole = !is_short && only.is_none();
        Ok(Self {
            repetitions,
            length,
            is_short,
            only,
            output: output.unwrap_or_else(|| {
                let folder = if is_whole {
                    "docs/benchmarks"
                } else {
                    "target/benchmarks"
                };
                PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(folder)
            }),
        })
    }

    pub(crate) fn asks_for(&self, case: &Case) -> bool {
        let is_named = self
            .only
            .as_ref()
            .is_none_or(|part| case.name.contains(part));
        is_named && !(self.is_short && case.is_long)
    }
}

fn positive<T: std::str::FromStr + PartialOrd + Default>(word: &str) -> Result<T, String> {
    let number = word.parse().ok().filter(|number| *number > T::default());
    number.ok_or_else(|| format!("not a number above 0: {word}"))
}
