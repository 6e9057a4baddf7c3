//! The options of a run.

use std::path::PathBuf;
use std::time::Duration;

use super::plan::Case;

pub(crate) const USAGE: &str = "\
usage: scripts/bench --redis [OPTION...]
    --rounds N        how often each side does each case, in turns; 7
    --seconds S       how long each time; 0.8
    --only TEXT       only the cases with this in their names
    --output FOLDER   where the report goes; docs/benchmarks, or target/benchmarks for a part";

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) rounds: usize,
    pub(crate) length: Duration,
    only: Option<String>,
    pub(crate) output: PathBuf,
}

impl Options {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let (mut rounds, mut length) = (7, Duration::from_millis(800));
        let (mut only, mut output) = (None, None);
        while let Some(option) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{option} of what?"));
            match option.as_str() {
                "--rounds" => rounds = positive(&value()?)?,
                "--seconds" => length = Duration::from_secs_f64(positive(&value()?)?),
                "--only" => only = Some(value()?),
                "--output" => output = Some(PathBuf::from(value()?)),
                // cargo passes this to every benchmark.
                "--bench" => {}
                unknown => return Err(format!("unknown option: {unknown}")),
            }
        }
        let folder = match only {
            None => "docs/benchmarks",
            Some(_) => "target/benchmarks",
        };
        let output =
            output.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(folder));
        Ok(Self {
            rounds,
            length,
            only,
            output,
        })
    }

    pub(crate) fn asks_for(&self, case: &Case) -> bool {
        let part = self.only.as_ref();
        part.is_none_or(|part| case.name.contains(part))
    }
}

fn positive<T: std::str::FromStr + PartialOrd + Default>(word: &str) -> Result<T, String> {
    let number = word.parse().ok().filter(|number| *number > T::default());
    number.ok_or_else(|| format!("not a number above 0: {word}"))
}
