//! The conditions of a run: when, where and how it was made.

use recipes_testing::RedisServer;
use tokio::time::Instant;

use super::facts::{after, load, locked_version, machine, said};
use super::options::Options;
use super::side::Sides;

/// Lines of text, each with its subject.
#[derive(Debug)]
pub(crate) struct Conditions {
    pub(crate) lines: Vec<(&'static str, String)>,
    started: Instant,
}

impl Conditions {
    pub(crate) async fn of(server: &RedisServer, sides: &Sides, options: &Options) -> Self {
        let info: String = server.command(&["INFO", "server"]).await.unwrap();
        let version = after(&info, "redis_version:").to_owned();
        let (rounds, length) = (options.rounds, options.length);
        let lines = vec![
            ("date", said("date", &["-u", "+%Y-%m-%d %H:%M UTC"])),
            ("commit", said("git", &["describe", "--always", "--dirty"])),
            ("machine", machine()),
            ("system", said("uname", &["-sr"])),
            ("load before", load()),
            (
                "server",
                format!("one, Redis {version}; its data in memory, without a log"),
            ),
            ("Rust", said("rustc", &["--version"])),
            (
                "redis (the crate, for ours and the hashes)",
                locked_version("redis"),
            ),
            ("Java", said("java", &["--version"])),
            ("Redisson", sides.redisson.version()),
            ("rslock", sides.rslock.version()),
            (
                "rounds",
                format!("{rounds} of {length:?} for each side, in turns"),
            ),
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

    pub(crate) fn end(&mut self) {
        self.lines.push(("load after", load()));
        let took = self.seconds();
        let took = format!("{} min {} s", took / 60, took % 60);
        self.lines.push(("took", took));
    }
}
