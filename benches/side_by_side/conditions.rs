//! The conditions of a run: when, where and how it was made.

use tokio::time::Instant;

use super::facts::{after, load, locked_version, machine, said};
use super::options::Options;
use super::side::Sides;
use super::stage::Stage;

/// Lines of text, each with its subject.
#[derive(Debug)]
pub(crate) struct Conditions {
    pub(crate) lines: Vec<(&'static str, String)>,
    started: Instant,
}

impl Conditions {
    pub(crate) async fn of(stage: &Stage, sides: &Sides, options: &Options) -> Self {
        let srvr = stage.server.four_letter("srvr").await.unwrap();
        let zookeeper = after(&srvr, "Zookeeper version: ");
        let zookeeper = zookeeper
            .split([',', '-'])
            .next()
            .unwrap_or_default()
            .to_owned();
        let log = stage.server.log_path();
        let is_in_memory = log.starts_with("/dev/shm");
        let disk = log
            .parent()
            .map_or_else(String::new, |it| it.display().to_string());
        let data = match is_in_memory {
            true => "tmpfs (/dev/shm)".to_owned(),
            false => format!("**no tmpfs here: {disk}**"),
        };
        let kazoo = match &sides.kazoo_version {
            Ok(version) => version.clone(),
            Err(reason) => format!("left out: {reason}"),
        };
        let lines = vec![
            ("date", said("date", &["-u", "+%Y-%m-%d %H:%M UTC"])),
            ("commit", said("git", &["describe", "--always", "--dirty"])),
            ("machine", machine()),
            ("system", said("uname", &["-sr"])),
            ("load before", load()),
            (
                "server",
                format!("one, ZooKeeper {zookeeper}; its data on {data}, no fsync"),
            ),
            ("Java", said("java", &["--version"])),
            ("Rust", said("rustc", &["--version"])),
            ("zookeeper-client", locked_version("zookeeper-client")),
            ("Curator", sides.curator_version.clone()),
            ("kazoo", kazoo),
            (
                "repetitions",
                format!(
                    "{} of {:?} for each side, in turn",
                    options.repetitions, options.length
                ),
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
        self.lines
            .push(("took", format!("{} min {} s", took / 60, took % 60)));
    }
}
