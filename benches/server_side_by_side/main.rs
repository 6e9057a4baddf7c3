//! Compares the locks of this library with those of others, on a store that is one server: in one
//! run, in turns.
//!
//! `scripts/bench` runs it, with the store as its first option, and documents what it needs.
//!
//! | file | contents |
//! |---|---|
//! | `plan`, `work` | what is compared; a step of it |
//! | `side`, `ours`, `foreign` | the sides that are compared; those in programs of their own |
//! | `store` | what differs from store to store |
//! | `redis`, `postgres`, `mariadb`, `etcd` | a store: its server, its other sides, and what is aimed at |
//! | `sql` | locks made of SQL statements |
//! | `contest` | sessions that contend for one lock |
//! | `record`, `counts` | what was measured, what was counted |
//! | `goals`, `report` | what that means, in words |
//! | `options`, `conditions` | the options of the run; its conditions |
//! | `../support` | what the comparison on ZooKeeper has too |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a benchmark that cannot go on has failed, and it speaks to people"
)]

mod conditions;
mod contest;
mod counts;
mod etcd;
#[path = "../support/facts.rs"]
mod facts;
mod foreign;
#[path = "../support/goal.rs"]
mod goal;
mod goals;
#[path = "../support/loops.rs"]
mod loops;
mod mariadb;
#[path = "../support/numbers.rs"]
mod numbers;
mod options;
mod ours;
#[path = "../support/peer.rs"]
mod peer;
mod plan;
mod postgres;
mod record;
mod redis;
mod report;
mod side;
mod sql;
mod store;
mod work;

use std::time::Duration;

use conditions::Conditions;
use counts::Counts;
use options::Options;
use ours::OURS;
use plan::Case;
use record::{Record, operations};
use report::Measured;
use side::Side;
use store::Stage;
use work::{Place, Work};

#[tokio::main]
async fn main() {
    if std::env::args().any(|argument| argument == "--help") {
        return println!("{}", options::USAGE);
    }
    let options = Options::parse(std::env::args().skip(1)).unwrap_or_else(|wrong| {
        eprintln!("error: {wrong}\n{}", options::USAGE);
        std::process::exit(2);
    });
    let mut conditions = Conditions::begin();
    let (mut measured, mut counts) = (Vec::new(), Vec::new());
    for (number, says) in options.store.page().stages.iter().enumerate() {
        if !says.is_empty() {
            eprintln!("{says}");
        }
        let mut stage = options.store.start(number, &options).await;
        stage.sides.retain(|it| options.asks_for_side(it.name()));
        let is_first = number == 0;
        if is_first {
            conditions.lines.append(&mut stage.facts);
        }
        let mut bench = Bench {
            cases: cases_of(&options, &stage),
            stage,
            options: &options,
        };
        bench.warm_up().await;
        let record = bench
            .run(&conditions, is_first.then_some(&mut counts))
            .await;
        let sides = bench.stage.sides.iter().map(|it| it.name()).collect();
        measured.push(Measured { sides, record });
        for side in bench.stage.sides {
            side.close().await;
        }
    }
    conditions.end(&options);
    report::publish(&options, &conditions, &measured, &counts);
}

/// The cases that are asked for and that a side does.
fn cases_of(options: &Options, stage: &Stage) -> Vec<Case> {
    let mut cases = plan::cases(options.store.page().round_trip);
    cases.retain(|case| options.asks_for(case));
    let is_done = |case: &Case| {
        // Next to nobody, how long a queue takes says nothing.
        let is_compared = |side: &dyn Side| side.name() != OURS || !case.work.is_a_queue();
        let mut sides = stage.sides.iter();
        sides.any(|side| does(&**side, case.work) && is_compared(&**side))
    };
    cases.retain(is_done);
    cases
}

/// Whether a side takes part. Only ours has readers that share a node.
fn does(side: &dyn Side, work: Work) -> bool {
    let is_ours_alone = matches!(work, Work::ReadWrite { shares: true, .. });
    side.does(work) && (!is_ours_alone || side.name() == OURS)
}

/// What is compared on one server.
struct Bench<'a> {
    cases: Vec<Case>,
    stage: Stage,
    options: &'a Options,
}

impl Bench<'_> {
    async fn warm_up(&mut self) {
        eprintln!("warming up");
        for case in self.cases.clone() {
            for side in self.sides(&case) {
                let most = self.stage.sides[side].warm_up();
                let length = most.min(self.options.length * 3);
                self.once(&case, side, length).await;
            }
        }
    }

    /// Measures all cases, and counts them if there is a list to add to.
    async fn run(
        &mut self,
        conditions: &Conditions,
        mut counts: Option<&mut Vec<Counts>>,
    ) -> Record {
        let mut record = Record::default();
        for (number, case) in self.cases.clone().iter().enumerate() {
            let (number, all) = (number + 1, self.cases.len());
            let seconds = conditions.seconds();
            eprintln!("[{number}/{all}, after {seconds} s] {}", case.name);
            if let Some(counts) = &mut counts {
                counts.extend(self.count(case).await);
            }
            self.measure(case, &mut record).await;
        }
        record
    }

    /// The sides that do a case.
    fn sides(&self, case: &Case) -> Vec<usize> {
        let sides = self.stage.sides.iter().enumerate();
        let sides = sides.filter(|(_, side)| does(&***side, case.work));
        sides.map(|(number, _)| number).collect()
    }

    /// Measures all sides in turns, in another order each time.
    async fn measure(&mut self, case: &Case, record: &mut Record) {
        let mut sides = self.sides(case);
        for _ in 0..self.options.rounds {
            for side in &sides {
                let length = self.options.length * case.stretch();
                let figures = self.once(case, *side, length).await;
                let name = self.stage.sides[*side].name();
                record.add(case.name, name, case.work, &figures);
                eprintln!("    {}", record.latest(case.name, name));
            }
            sides.rotate_left(1);
        }
    }

    async fn once(&mut self, case: &Case, side: usize, length: Duration) -> Vec<u64> {
        let place = self.place(case, side, length);
        let side = &mut self.stage.sides[side];
        prepare(case, side, &place).await;
        let figures = side.perform(case.work, &place).await;
        clear_up(case, side, &place).await;
        figures
    }

    async fn count(&mut self, case: &Case) -> Vec<Counts> {
        let mut all = Vec::new();
        self.stage.server.count(true).await;
        for side in self.sides(case) {
            // To warm up created sessions and directories, so they are not counted.
            let place = self.place(case, side, counts::LENGTH);
            let (server, side) = (&self.stage.server, &mut self.stage.sides[side]);
            prepare(case, side, &place).await;
            let before = server.counted(side.name()).await;
            let figures = side.perform(case.work, &place).await;
            let after = server.counted(side.name()).await;
            clear_up(case, side, &place).await;
            let operations = operations(case.work, &figures);
            let names = (case.name, side.name());
            all.push(Counts::new(names, operations, [before, after]));
        }
        self.stage.server.count(false).await;
        all
    }

    fn place(&self, case: &Case, side: usize, length: Duration) -> Place {
        let lock = format!("{} {}", case.name, self.stage.sides[side].name());
        Place {
            url: self.stage.server.url(),
            lock: lock.replace(|it: char| !it.is_ascii_alphanumeric(), "_"),
            length,
        }
    }
}

async fn prepare(case: &Case, side: &mut Box<dyn Side>, place: &Place) {
    let work = match case.work {
        Work::Try => Work::Hold,
        Work::Drain { sessions, waiters } => Work::Queue { sessions, waiters },
        _ => return,
    };
    side.perform(work, place).await;
}

/// Ends what `prepare` began.
async fn clear_up(case: &Case, side: &mut Box<dyn Side>, place: &Place) {
    if case.work == Work::Try {
        side.perform(Work::Free, place).await;
    }
}
