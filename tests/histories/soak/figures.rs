//! How much memory the processes take, and how many nodes and watches the servers keep.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use test_rig::ZooKeeperEnsemble;
use tokio::time::{Instant, timeout};

use crate::plot::{Chart, Line, Scale, svg};

/// A server that is paused does not answer.
const ANSWER_MAX: Duration = Duration::from_millis(500);

/// The figures of the servers.
const COUNTS: [(&str, &str); 3] = [
    ("znodes", "zk_znode_count"),
    ("ephemeral nodes", "zk_ephemerals_count"),
    ("watches", "zk_watch_count"),
];

struct Sample {
    at: Duration,
    /// MB, in the order of the processes' names.
    memory: Vec<Option<f64>>,
    /// In the order of [`COUNTS`].
    counts: [Option<f64>; COUNTS.len()],
}

/// Figures over time. Each time takes some hundred bytes.
pub(crate) struct Figures {
    start: Instant,
    names: Vec<String>,
    samples: Vec<Sample>,
}

impl Figures {
    pub(crate) fn new(names: Vec<String>) -> Self {
        Self {
            start: Instant::now(),
            names,
            samples: Vec::new(),
        }
    }

    /// Takes the figures of these processes, in the order of their names, and of the servers.
    pub(crate) async fn take(&mut self, processes: &[Option<u32>], ensemble: &ZooKeeperEnsemble) {
        let mut counts = [None; COUNTS.len()];
        for server in ensemble.servers() {
            let Ok(Ok(reply)) = timeout(ANSWER_MAX, server.four_letter("mntr")).await else {
                continue;
            };
            for (index, (_, key)) in COUNTS.iter().enumerate() {
                let Some(count) = value(&reply, key).and_then(|it| it.parse::<f64>().ok()) else {
                    continue;
                };
                let so_far = counts[index].unwrap_or(0.0);
                // Each server has all nodes, and the watches of its own clients.
                counts[index] = Some(match *key {
                    "zk_watch_count" => so_far + count,
                    _ => count.max(so_far),
                });
            }
        }
        self.samples.push(Sample {
            at: self.start.elapsed(),
            memory: processes.iter().map(|it| resident_mb((*it)?)).collect(),
            counts,
        });
    }

    pub(crate) fn last(&self) -> String {
        let Some(sample) = self.samples.last() else {
            return String::new();
        };
        let mut text = "MB:".to_owned();
        for (name, memory) in self.names.iter().zip(&sample.memory) {
            write!(text, " {name} {}", number(*memory)).unwrap();
        }
        for ((name, _), count) in COUNTS.iter().zip(sample.counts) {
            write!(text, "; {name} {}", number(count)).unwrap();
        }
        text
    }

    /// How the memory of each process has grown: its first and its last tenth.
    pub(crate) fn growth(&self) -> String {
        let tenth = self.samples.len().div_ceil(10);
        let mean = |samples: &[Sample], index: usize| {
            let all: Vec<f64> = samples.iter().filter_map(|it| it.memory[index]).collect();
            let count = u32::try_from(all.len()).unwrap();
            (count > 0).then(|| all.iter().sum::<f64>() / f64::from(count))
        };
        let mut text = String::new();
        for (index, name) in self.names.iter().enumerate() {
            let first = mean(&self.samples[..tenth], index);
            let last = mean(&self.samples[self.samples.len() - tenth..], index);
            writeln!(text, "  {name}: {} to {} MB", number(first), number(last)).unwrap();
        }
        text
    }

    /// Writes them as a table and as a picture.
    pub(crate) fn write(&self, folder: &Path) {
        let counts = COUNTS.map(|(name, _)| name.to_owned());
        let mut table = format!("seconds,{},{}\n", self.names.join(","), counts.join(","));
        for sample in &self.samples {
            let seconds = sample.at.as_secs_f64();
            let figures = sample.memory.iter().chain(&sample.counts);
            let figures: Vec<_> = figures.map(|it| number(*it)).collect();
            writeln!(table, "{seconds:.1},{}", figures.join(",")).unwrap();
        }
        std::fs::write(folder.join("figures.csv"), table).unwrap();
        let line = |name: &String, figure: &dyn Fn(&Sample) -> Option<f64>| {
            let points = self.samples.iter();
            let points =
                points.filter_map(|sample| Some((sample.at.as_secs_f64() / 60.0, figure(sample)?)));
            Line {
                name: name.clone(),
                points: points.collect(),
            }
        };
        let memory = self.names.iter().enumerate();
        let memory = memory.map(|(index, name)| line(name, &move |it| it.memory[index]));
        let counted = counts.iter().enumerate();
        let counted = counted.map(|(index, name)| line(name, &move |it| it.counts[index]));
        let charts = [
            Chart {
                title: "resident memory, MB, over minutes".to_owned(),
                scales: [Scale::Linear; 2],
                lines: memory.collect(),
            },
            Chart {
                title: "nodes and watches on the servers, over minutes".to_owned(),
                scales: [Scale::Linear; 2],
                lines: counted.collect(),
            },
        ];
        std::fs::write(folder.join("soak.svg"), svg(&charts)).unwrap();
    }
}

fn number(figure: Option<f64>) -> String {
    figure.map_or_else(|| "-".to_owned(), |it| format!("{it:.0}"))
}

/// The value of a line `key<tab>value`.
fn value<'a>(reply: &'a str, key: &str) -> Option<&'a str> {
    let mut fields = reply.lines().filter_map(|line| line.split_once('\t'));
    fields
        .find(|(name, _)| *name == key)
        .map(|(_, it)| it.trim())
}

/// Physical memory of a process.
fn resident_mb(process_id: u32) -> Option<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process_id}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: f64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kilobytes / 1024.0)
}
