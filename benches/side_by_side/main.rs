//! Compares locks of this library with those of others: on one server, in one run, in turn.
//!
//! `scripts/bench` runs it and documents what it needs.
//!
//! | file | contents |
//! |---|---|
//! | `plan`, `work` | what is compared; a step of it |
//! | `side`, `ours`, `client`, `herd` | the sides that are compared |
//! | `crowd` | waiters with a session each |
//! | `stage` | the server, and the ways to it |
//! | `record`, `counts` | what was measured, what was counted |
//! | `goals`, `report`, `pictures`, `plot` | what that means, in words and pictures |
//! | `options`, `conditions` | the options of the run; its conditions |
//! | `../support` | what the comparison on Redis has too |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark that cannot go on has failed, and it speaks to people"
)]

mod client;
mod conditions;
mod counts;
mod crowd;
#[path = "../support/facts.rs"]
mod facts;
#[path = "../support/goal.rs"]
mod goal;
mod goals;
mod herd;
#[path = "../support/loops.rs"]
mod loops;
#[path = "../support/numbers.rs"]
mod numbers;
mod options;
mod ours;
#[path = "../support/peer.rs"]
mod peer;
mod pictures;
mod plan;
#[path = "../../tests/support/plot.rs"]
mod plot;
mod record;
mod report;
mod side;
mod stage;
mod work;

use std::time::Duration;

use conditions::Conditions;
use counts::{Counter, Counts};
use options::Options;
use plan::Case;
use record::Record;
use side::{Kind, Sides};
use stage::{Stage, Way};
use work::{Place, Work};

/// After this, Java's compilers and all caches are warm.
const WARM_UP: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(stage::PROXY) {
        return stage::proxy(&arguments.next().unwrap()).await;
    }
    if std::env::args().any(|argument| argument == "--help") {
        return println!("{}", options::USAGE);
    }
    let options = Options::parse(std::env::args().skip(1)).unwrap_or_else(|wrong| {
        eprintln!("error: {wrong}\n{}", options::USAGE);
        std::process::exit(2);
    });
    let stage = Stage::set().await;
    let bench = Bench {
        sides: Sides::start().await,
        stage,
        options,
    };
    bench.run().await;
}

struct Bench {
    stage: Stage,
    sides: Sides,
    options: Options,
}

impl Bench {
    async fn run(mut self) {
        let mut conditions = Conditions::of(&self.stage, &self.sides, &self.options).await;
        let cases: Vec<_> = plan::cases()
            .into_iter()
            .filter(|it| self.options.asks_for(it))
            .collect();
        self.warm_up().await;
        let (mut record, mut counts) = (Record::default(), Vec::new());
        for (number, case) in cases.iter().enumerate() {
            for way in &case.ways {
                let (number, all) = (number + 1, cases.len());
                let seconds = conditions.seconds();
                eprintln!("[{number}/{all}, after {seconds} s] {}, {way}", case.name);
                self.measure(case, *way, &mut record).await;
            }
            if !case.is_long && !case.is_point {
                counts.extend(self.count(case).await);
            }
        }
        conditions.end();
        report::publish(&self.options, &conditions, &record, &counts);
        self.sides.close().await;
    }

    async fn warm_up(&mut self) {
        eprintln!("warming up");
        for work in [
            Work::Uncontended,
            Work::Contended {
                sessions: plan::CONTENDERS,
            },
        ] {
            for side in [Kind::Curator, Kind::Ours, Kind::BuiltIn, Kind::Kazoo] {
                if self.sides.has(side) {
                    let place = self.place(
                        "warm-up",
                        Way::Local,
                        side,
                        WARM_UP.min(self.options.length * 2),
                    );
                    self.sides.perform(side, work, &place).await;
                }
            }
        }
    }

    /// Measures all sides in turn, in another order each time.
    async fn measure(&mut self, case: &Case, way: Way, record: &mut Record) {
        let mut sides = case.sides.clone();
        sides.retain(|side| self.sides.has(*side));
        for repetition in 0..self.options.repetitions {
            for side in &sides {
                if repetition < case.repetitions(*side, self.options.repetitions) {
                    let figures = self.once(case, way, *side, self.options.length).await;
                    record.add(&case.name, way, *side, case.work, &figures);
                    eprintln!("    {}", record.latest(&case.name, way, *side));
                }
            }
            sides.rotate_left(1);
        }
    }

    async fn once(&mut self, case: &Case, way: Way, side: Kind, length: Duration) -> Vec<u64> {
        let place = self.place(&case.name, way, side, length);
        self.prepare(case, side, &place).await;
        let figures = self.sides.perform(side, main_work(case.work), &place).await;
        self.clear_up(case, side, &place).await;
        figures
    }

    /// Ends what `prepare` began and the work has left.
    async fn clear_up(&mut self, case: &Case, side: Kind, place: &Place) {
        let end = match case.work {
            Work::Try => Work::Free,
            Work::Crowd { .. } => Work::Disperse,
            _ => return,
        };
        self.sides.perform(side, end, place).await;
    }

    async fn prepare(&mut self, case: &Case, side: Kind, place: &Place) {
        if case.work == Work::Try {
            self.sides.perform(side, Work::Hold, place).await;
        }
        if let Work::Crowd { .. } = case.work {
            self.sides.perform(side, case.work, place).await;
        }
        if let Work::Queue { waiters, .. } = case.work {
            self.sides.perform(side, case.work, place).await;
            self.stage.queued(&place.path, waiters + 1).await;
        }
    }

    async fn count(&mut self, case: &Case) -> Vec<Counts> {
        let mut all = Vec::new();
        for side in case.sides.clone() {
            if !self.sides.has(side) {
                continue;
            }
            let place = self.place(&case.name, counts::WAY, side, counts::LENGTH);
            // A first run creates sessions and directories, so they are not counted. Those of a
            // crowd are ready when it waits.
            if !matches!(case.work, Work::Crowd { .. }) {
                self.once(case, counts::WAY, side, counts::LENGTH).await;
            }
            self.prepare(case, side, &place).await;
            if let Work::Crowd { .. } = case.work {
                // All waiters wait when nothing is sent any more.
                self.stage.noted().await;
            }
            let counter = Counter::start(&self.stage).await;
            let figures = self.sides.perform(side, main_work(case.work), &place).await;
            all.push(counter.end(case, side, &figures).await);
            self.clear_up(case, side, &place).await;
        }
        all
    }

    fn place(&self, case: &str, way: Way, side: Kind, length: Duration) -> Place {
        let words = format!("/bench/{case}/{way}/{side}");
        let path = words.replace(|it: char| !it.is_ascii_alphanumeric() && it != '/', "_");
        Place {
            at: self.stage.connect_string(way),
            path,
            length,
        }
    }
}

/// The work that is measured after the preparation.
fn main_work(work: Work) -> Work {
    match work {
        Work::Queue { .. } => Work::Drain,
        Work::Crowd { .. } => Work::Release,
        work => work,
    }
}
