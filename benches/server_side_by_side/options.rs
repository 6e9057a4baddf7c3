//! The options of a run.

use std::path::PathBuf;
use std::time::Duration;

use super::etcd::Etcd;
use super::mariadb::MariaDb;
use super::plan::Case;
use super::postgres::Postgres;
use super::redis::Redis;
use super::store::Store;

pub(crate) const USAGE: &str = "\
usage: scripts/bench --redis|--postgres|--mariadb|--etcd [OPTION...]
    --rounds N        how often each side does each case, in turns; 7
    --seconds S       how long each time; 0.8
    --only TEXT       only the cases with this in their names
    --without TEXT    not the sides with this in their names; may be repeated
    --disk FOLDER     where a database has its data if it is to be on a disk; /var/tmp
    --output FOLDER   where the report goes; docs/benchmarks, or target/benchmarks for a part";

pub(crate) struct Options {
    pub(crate) store: Box<dyn Store>,
    pub(crate) rounds: usize,
    pub(crate) length: Duration,
    only: Option<String>,
    without: Vec<String>,
    pub(crate) disk: PathBuf,
    pub(crate) output: PathBuf,
}

impl Options {
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut store: Option<Box<dyn Store>> = None;
        let (mut rounds, mut length) = (7, Duration::from_millis(800));
        let (mut only, mut without, mut output) = (None, Vec::new(), None);
        // A folder for temporary files that are kept, and so on a disk. /tmp may be in memory.
        let mut disk = PathBuf::from("/var/tmp");
        while let Some(option) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{option} of what?"));
            match option.as_str() {
                "--store" => {
                    store = Some(match value()?.as_str() {
                        "redis" => Box::new(Redis),
                        "postgres" => Box::new(Postgres),
                        "mariadb" => Box::new(MariaDb),
                        "etcd" => Box::new(Etcd),
                        unknown => return Err(format!("unknown store: {unknown}")),
                    });
                }
                "--rounds" => rounds = positive(&value()?)?,
                "--seconds" => length = Duration::from_secs_f64(positive(&value()?)?),
                "--only" => only = Some(value()?),
                "--without" => without.push(value()?),
                "--disk" => disk = PathBuf::from(value()?),
                "--output" => output = Some(PathBuf::from(value()?)),
                // cargo passes this to every benchmark.
                "--bench" => {}
                unknown => return Err(format!("unknown option: {unknown}")),
            }
        }
        let folder = match only.is_none() && without.is_empty() {
            true => "docs/benchmarks",
            false => "target/benchmarks",
        };
        let output = output.unwrap_or_else(|| {
            PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(folder)
        });
        Ok(Self {
            store: store.ok_or("which --store?")?,
            rounds,
            length,
            only,
            without,
            disk,
            output,
        })
    }

    pub(crate) fn asks_for(&self, case: &Case) -> bool {
        let part = self.only.as_ref();
        part.is_none_or(|part| case.name.contains(part))
    }

    pub(crate) fn asks_for_side(&self, name: &str) -> bool {
        !self.without.iter().any(|part| name.contains(part))
    }
}

fn positive<T: std::str::FromStr + PartialOrd + Default>(word: &str) -> Result<T, String> {
    let number = word.parse().ok().filter(|number| *number > T::default());
    number.ok_or_else(|| format!("not a number above 0: {word}"))
}
