//! The examples in `packaging`, and the commands on the pages, fit `lockctl` and this repository.

#![cfg(target_os = "linux")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Parser as _;
use clap::error::ErrorKind;
use yaml_rust2::{Yaml, YamlLoader};

use super::{Arguments, RunArguments, StoreArguments, Task};
use crate::exit::code;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    let path = repository().join("packaging").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The run that a command line starts, if `lockctl` accepts it.
fn run(arguments: &[String]) -> (StoreArguments, RunArguments) {
    let arguments = Arguments::try_parse_from(arguments).unwrap();
    match arguments.command {
        Task::Run(run) => (arguments.store, run),
        other => panic!("{other:?}"),
    }
}

/// How long a stop may last in an outage, besides what the command itself needs.
fn stop_max(store: &StoreArguments) -> Duration {
    store.session_timeout / 2 + store.connect_timeout
}

/// The values of a key in a unit of systemd.
fn values(unit: &str, key: &str) -> Vec<String> {
    let key = format!("{key}=");
    let values = unit.lines().filter_map(|it| it.strip_prefix(&key));
    values.map(str::to_owned).collect()
}

/// The words of a line, of which some are in quotes.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (number, part) in line.split('"').enumerate() {
        match number % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

#[test]
fn unit_of_systemd_is_a_run_that_can_be_stopped() {
    let unit = read("systemd/nightly-export.service");
    let timer = read("systemd/nightly-export.timer");
    // A timer starts the service of its own name.
    assert_eq!(values(&timer, "Unit"), [""; 0]);
    let line = words(&values(&unit, "ExecStart").concat());
    assert_eq!(line[0], "/usr/bin/lockctl");
    let (store, run) = run(&line);
    assert_eq!(run.paths, ["/locks/nightly-export"]);
    // Otherwise a machine that waits would run the job after another.
    assert_eq!(run.timeout, Some(Duration::ZERO));
    assert_eq!(values(&unit, "Delegate"), ["yes"]);
    assert_eq!(values(&unit, "KillMode"), ["mixed"]);
    let stop = values(&unit, "TimeoutStopSec").concat();
    let stop: u64 = stop.strip_suffix('s').unwrap().parse().unwrap();
    assert!(Duration::from_secs(stop) > stop_max(&store) + store.session_timeout);
    let good = words(&values(&unit, "SuccessExitStatus").concat());
    let stopped = code::SIGNAL + 15;
    assert_eq!(good, [code::TIMED_OUT.to_string(), stopped.to_string()]);
}

#[test]
fn cron_job_of_kubernetes_is_a_run_that_can_be_stopped() {
    let cron_job = YamlLoader::load_from_str(&read("kubernetes/nightly-export.yaml")).unwrap();
    let job = &cron_job[0]["spec"]["jobTemplate"]["spec"];
    let pod = &job["template"]["spec"];
    let container = &pod["containers"][0];
    let texts = |list: &Yaml| -> Vec<String> {
        let texts = list.as_vec().unwrap().iter();
        texts.map(|it| it.as_str().unwrap().to_owned()).collect()
    };
    let mut line = texts(&container["command"]);
    // As options, because the environment of a test belongs to all tests.
    for variable in container["env"].as_vec().unwrap() {
        let name = variable["name"].as_str().unwrap();
        let name = name.strip_prefix("LOCKCTL_").unwrap();
        let option = name.to_lowercase().replace('_', "-");
        let value = variable["value"].as_str().unwrap_or("digest:from:secret");
        line.push(format!("--{option}={value}"));
    }
    line.extend(texts(&container["args"]));
    let (store, run) = run(&line);
    assert_eq!(run.paths, ["/locks/nightly-export"]);
    assert_eq!(run.timeout, Some(Duration::ZERO));
    let grace = pod["terminationGracePeriodSeconds"].as_i64().unwrap();
    let grace = Duration::from_secs(u64::try_from(grace).unwrap());
    assert!(
        grace > stop_max(&store) + store.session_timeout,
        "{grace:?}"
    );
    assert_eq!(pod["restartPolicy"].as_str(), Some("Never"));
    let rule = &job["podFailurePolicy"]["rules"][0];
    let codes = &rule["onExitCodes"];
    assert_eq!(rule["action"].as_str(), Some("FailJob"));
    assert_eq!(codes["values"][0].as_i64(), Some(code::TIMED_OUT.into()));
    assert_eq!(codes["containerName"], container["name"]);
}

/// What the Dockerfile copies from the repository.
fn copied() -> Vec<String> {
    let dockerfile = read("Dockerfile");
    let copies = dockerfile.lines().filter_map(|it| it.strip_prefix("COPY "));
    let copies = copies.filter(|it| !it.starts_with("--from="));
    let sources = copies.flat_map(|it| {
        let mut words = words(it);
        words.pop();
        words
    });
    sources.collect()
}

#[test]
fn image_is_built_from_what_cargo_asks_for() {
    let copied = copied();
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("cp");
    command.arg("--archive").args(&copied).arg(folder.path());
    assert!(
        command
            .current_dir(repository())
            .status()
            .unwrap()
            .success()
    );
    let read = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&read.stderr);
    assert!(read.status.success(), "{errors}");
}

/// Otherwise a build sends all of the repository to the daemon, or misses a folder.
#[test]
fn image_is_built_from_what_is_not_ignored() {
    let ignored = read("Dockerfile.dockerignore");
    assert!(ignored.lines().any(|it| it == "*"));
    let let_through: Vec<_> = ignored
        .lines()
        .filter_map(|it| it.strip_prefix('!'))
        .collect();
    for source in copied() {
        let has_pattern = let_through
            .iter()
            .any(|&pattern| match pattern.strip_suffix('*') {
                Some(start) => source.starts_with(start),
                None => source == pattern,
            });
        assert!(has_pattern, "{source} is ignored");
    }
}

/// The pages of the repository for people who run `lockctl`.
fn pages(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            pages(&path, found);
        } else if path.extension().is_some_and(|it| it == "md") {
            found.push(fs::read_to_string(path).unwrap());
        }
    }
}

/// Why `lockctl` does not take this command line.
fn not_understood(line: &str) -> Option<ErrorKind> {
    let error = Arguments::try_parse_from(words(line)).err()?;
    Some(error.kind()).filter(|it| *it != ErrorKind::DisplayHelp)
}

#[test]
fn commands_on_the_pages_are_understood() {
    let mut found = vec![fs::read_to_string(repository().join("README.md")).unwrap()];
    pages(&repository().join("docs"), &mut found);
    let (mut in_blocks, mut in_texts) = (0, 0);
    for page in found {
        for line in page.lines().filter(|it| it.trim().starts_with("lockctl ")) {
            let command = line.split(['#', '>', '|']).next().unwrap();
            // A line of running text may begin so, too.
            if command.split_whitespace().count() > 1 && !line.contains('`') {
                assert_eq!(not_understood(command), None, "{line}");
                in_blocks += 1;
            }
        }
        for code in page.split("`lockctl ").skip(1) {
            let command = format!("lockctl {}", code.split('`').next().unwrap());
            if ["...", "|", "COMMAND", "\n"]
                .iter()
                .all(|it| !command.contains(it))
            {
                // A text may leave out what is not its point.
                let why = not_understood(&command);
                let names_an_option = words(&command).last().unwrap().starts_with("--");
                let is_part = why == Some(ErrorKind::MissingRequiredArgument)
                    || why == Some(ErrorKind::InvalidValue) && names_an_option;
                assert!(why.is_none() || is_part, "{command}: {why:?}");
                in_texts += 1;
            }
        }
    }
    assert!(in_blocks >= 10 && in_texts >= 20, "{in_blocks}, {in_texts}");
}
