//! Compares the locks of this library on Redis with those of others: on one server, in one run, in
//! turns.
//!
//! `scripts/bench --redis` runs it and documents what it needs.
//!
//! | file | contents |
//! |---|---|
//! | `plan`, `work` | what is compared; a step of it |
//! | `side`, `ours`, `hash` | the sides that are compared |
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
#[path = "../support/facts.rs"]
mod facts;
#[path = "../support/goal.rs"]
mod goal;
mod goals;
mod hash;
#[path = "../support/loops.rs"]
mod loops;
#[path = "../support/numbers.rs"]
mod numbers;
mod options;
mod ours;
#[path = "../support/peer.rs"]
mod peer;
mod plan;
mod record;
mod report;
mod side;
mod work;

use std::time::Duration;

use recipes_testing::RedisServer;

use conditions::Conditions;
use counts::{Counter, Counts};
use options::Options;
use plan::Case;
use record::Record;
use side::{Kind, Sides};
use work::{Place, Work};

/// After this, Java's compilers are warm.
const WARM_UP: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() {
    if std::env::args().any(|argument| argument == "--help") {
        return println!("{}", options::USAGE);
    }
    let options = Options::parse(std::env::args().skip(1)).unwrap_or_else(|wrong| {
        eprintln!("error: {wrong}\n{}", options::USAGE);
        std::process::exit(2);
    });
    // A log would cost all sides the same, and so hide what they do not have in common.
    let server = RedisServer::builder().setting("appendonly", "no");
    let bench = Bench {
        server: server.start().await.unwrap(),
        sides: Sides::start().await,
        options,
    };
    bench.run().await;
}

struct Bench {
    server: RedisServer,
    sides: Sides,
    options: Options,
}

impl Bench {
    async fn run(mut self) {
        let mut conditions = Conditions::of(&self.server, &self.sides, &self.options).await;
        let mut cases = plan::cases();
        cases.retain(|case| self.options.asks_for(case));
        for case in &mut cases {
            case.sides.retain(|side| self.sides.has(*side));
        }
        self.warm_up(&cases).await;
        let (mut record, mut counts) = (Record::default(), Vec::new());
        for (number, case) in cases.iter().enumerate() {
            let (number, all) = (number + 1, cases.len());
            let seconds = conditions.seconds();
            eprintln!("[{number}/{all}, after {seconds} s] {}", case.name);
            counts.extend(self.count(case).await);
            self.measure(case, &mut record).await;
        }
        conditions.end();
        report::publish(&self.options, &conditions, &record, &counts);
        self.sides.close().await;
    }

    async fn warm_up(&mut self, cases: &[Case]) {
        eprintln!("warming up");
        for case in cases {
            for side in &case.sides {
                let is_java = matches!(side, Kind::Redisson | Kind::RedissonFair);
                let most = if is_java { WARM_UP } else { counts::LENGTH };
                let length = most.min(self.options.length * 3);
                self.once(case, *side, length).await;
            }
        }
    }

    /// Measures all sides in turns, in another order each time.
    async fn measure(&mut self, case: &Case, record: &mut Record) {
        let mut sides = case.sides.clone();
        for _ in 0..self.options.rounds {
            for side in &sides {
                let length = self.options.length * case.stretch();
                let figures = self.once(case, *side, length).await;
                record.add(case.name, *side, case.work, &figures);
                eprintln!("    {}", record.latest(case.name, *side));
            }
            sides.rotate_left(1);
        }
    }

    async fn once(&mut self, case: &Case, side: Kind, length: Duration) -> Vec<u64> {
        let place = self.place(case, side, length);
        self.prepare(case, side, &place).await;
        let figures = self.sides.perform(side, case.work, &place).await;
        self.clear_up(case, side, &place).await;
        figures
    }

    async fn prepare(&mut self, case: &Case, side: Kind, place: &Place) {
        if case.work == Work::Try {
            self.sides.perform(side, Work::Hold, place).await;
        }
    }

    /// Ends what `prepare` began.
    async fn clear_up(&mut self, case: &Case, side: Kind, place: &Place) {
        if case.work == Work::Try {
            self.sides.perform(side, Work::Free, place).await;
        }
    }

    async fn count(&mut self, case: &Case) -> Vec<Counts> {
        let mut all = Vec::new();
        for side in case.sides.clone() {
            // To warm up created sessions and directories, so they are not counted.
            let place = self.place(case, side, counts::LENGTH);
            self.prepare(case, side, &place).await;
            let counter = Counter::start(&self.server).await;
            let figures = self.sides.perform(side, case.work, &place).await;
            all.push(counter.end(case, side, &figures).await);
            self.clear_up(case, side, &place).await;
        }
        all
    }

    fn place(&self, case: &Case, side: Kind, length: Duration) -> Place {
        let lock = format!("{} {side}", case.name);
        Place {
            url: self.server.url(),
            lock: lock.replace(|it: char| !it.is_ascii_alphanumeric(), "_"),
            length,
        }
    }
}
