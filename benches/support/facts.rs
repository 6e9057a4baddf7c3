//! Facts about the machine and the programs on it.

use std::fs;
use std::path::Path;
use std::process::Command;

/// The first line of a program's output.
pub(crate) fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let output = output.map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
    let output = output.unwrap_or_default();
    output.lines().next().unwrap_or("unknown").to_owned()
}

pub(crate) fn machine() -> String {
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
pub(crate) fn load() -> String {
    let loads = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let minutes: Vec<_> = loads.split(' ').take(3).collect();
    format!("{} (1, 5, 15 minutes)", minutes.join(", "))
}

pub(crate) fn after<'a>(text: &'a str, name: &str) -> &'a str {
    let mut lines = text.lines();
    lines
        .find_map(|line| line.strip_prefix(name))
        .unwrap_or("unknown")
}

pub(crate) fn locked_version(package: &str) -> String {
    let lock = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join("Cargo.lock");
    let lock = fs::read_to_string(lock).unwrap_or_default();
    let entry = lock.split_once(&format!("name = \"{package}\"\n"));
    let version = entry.map_or("unknown", |(_, rest)| after(rest, "version = "));
    version.trim_matches('"').to_owned()
}
