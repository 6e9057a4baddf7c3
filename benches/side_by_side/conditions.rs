//! The conditions of a run: when, where and how it was made.

use std::fs;
use std::path::Path;
use std::process::Command;

use tokio::time::Instant;

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

/// The first line of a program's output.
fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
    let output = output.unwrap_or_default();
    output.lines().next().unwrap_or("unknown").to_owned()
}

fn machine() -> String {
    let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = after(&processor, "model name")
        .trim_start_matches([' ', '\t', ':'])
        .to_owned();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib: u64 = after(&memory, "MemTotal:")
        .trim_end_matches(" kB")
        .trim()
        .parse()
        .unwrap_or(0);
    format!("{cores} cores of {model}, {} GiB", kib >> 20)
}

/// The load of the machine, by this run and by other programs.
fn load() -> String {
    let loads = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let minutes: Vec<_> = loads.split(' ').take(3).collect();
    format!("{} (1, 5, 15 minutes)", minutes.join(", "))
}

fn after<'a>(text: &'a str, name: &str) -> &'a str {
    let mut lines = text.lines();
    lines
        .find_map(|line| line.strip_prefix(name))
        .unwrap_or("unknown")
}

fn locked_version(package: &str) -> String {
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.lock");
    let lock = fs::read_to_string(lock).unwrap_or_default();
    let entry = lock.split_once(&format!("name = \"{package}\"\n"));
    let version = entry.map_or("unknown", |(_, rest)| after(rest, "version = "));
    version.trim_matches('"').to_owned()
}
