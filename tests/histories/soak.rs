//! Hours of histories: three servers, all recipes and Curator, and a fault every half minute.
//!
//! The run is divided into windows. At the end of each, contenders finish their attempts, and all
//! records are judged and dropped. The processes and their sessions go on.

mod curator;
mod figures;
mod tally;

use std::env;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use test_rig::history::{Happening, Journal, monotonic_now};
use test_rig::{WritesLog as _, ZooKeeperEnsemble};
use tokio::time::{Instant, sleep, timeout};

use crate::orders::Scenes;
use crate::stage::{PATIENCE, Stage, WORKERS, events};
use crate::trouble::Trouble;
use crate::worker::OVER;

use curator::Curators;
use figures::Figures;
pub(crate) use tally::Tally;
use tally::judge;

/// Sets of locks that are used at the same time.
const SIDE_BY_SIDE: u64 = 3;
const WINDOW: Duration = Duration::from_secs(120);
/// The time from one fault to the next.
const EVERY: Duration = Duration::from_secs(30);
const SAMPLE_EVERY: Duration = Duration::from_secs(5);
const SERVERS: usize = 3;
/// Violations of a window that are printed. A file has all of them.
const SHOWN: usize = 10;

/// How long to run, and how much goes wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    seed: u64,
    length: Duration,
    window: Duration,
    every: Duration,
}

impl Plan {
    /// Reads the environment: `SOAK_SECONDS`, `SOAK_SEED`, `SOAK_TROUBLE_SECONDS`, and
    /// `SOAK_FOLDER`, a new folder for the files that are kept.
    pub(crate) fn from_environment() -> Self {
        let number = |name| env::var(name).ok().map(|it| it.parse::<u64>().unwrap());
        let seconds = |name| number(name).map(Duration::from_secs);
        let length = seconds("SOAK_SECONDS").unwrap_or(Duration::from_secs(30));
        let window = WINDOW.min(length);
        Self {
            seed: number("SOAK_SEED").unwrap_or_else(|| monotonic_now() % 1_000_000_000),
            length,
            window,
            // A short run has some faults, too.
            every: seconds("SOAK_TROUBLE_SECONDS").unwrap_or(EVERY.min(window / 4)),
        }
    }

    fn scenes(self) -> Scenes {
        Scenes {
            count: 1,
            side_by_side: SIDE_BY_SIDE,
            length_ms: u64::try_from(self.window.as_millis()).unwrap(),
        }
    }
}

pub(crate) struct Soak {
    plan: Plan,
    stage: Stage<ZooKeeperEnsemble>,
    curators: Curators,
    folder: PathBuf,
    figures: Figures,
    judged: i64,
    random: Rng,
}

impl Soak {
    /// Runs as long as planned. Returns the results.
    pub(crate) async fn run(plan: Plan) -> Tally {
        let mut soak = Self::new(plan).await;
        let start = Instant::now();
        let mut all = Tally::default();
        for window in 1.. {
            let folder = soak.folder.join(format!("window-{window}"));
            if window > 1 {
                std::fs::create_dir_all(&folder).unwrap();
                let seed = plan.seed.wrapping_add(window);
                soak.stage.again(seed, &folder).await;
            }
            let tally = soak.window(window, &folder).await;
            let minutes = start.elapsed().as_secs_f64() / 60.0;
            println!("{minutes:.1} min, window {window}: {tally}");
            println!("    {}", soak.figures.last());
            soak.figures.write(&soak.folder);
            all.add(&tally);
            if start.elapsed() >= plan.length {
                break;
            }
        }
        println!("\nall: {all}\nmemory:\n{}", soak.figures.growth());
        println!("plot: {}/soak.svg", soak.folder.display());
        all
    }

    async fn new(plan: Plan) -> Self {
        // A new folder, because the same seed may have been run before.
        let folder = env::var("SOAK_FOLDER")
            .unwrap_or_else(|_| format!("target/soak/{}-{}", plan.seed, std::process::id()));
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(folder);
        println!("SOAK_SEED={} {plan:?}, in {}", plan.seed, folder.display());
        let first = folder.join("window-1");
        std::fs::create_dir_all(&first).unwrap();
        let ensemble = ZooKeeperEnsemble::builder()
            .links()
            .config("initLimit", "30")
            // A follower without its leader goes on for 3 s, longer than its clients' sessions.
            .config("syncLimit", "30")
            // Old logs of the servers are purged, so that they do not grow without a limit. Each
            // start also makes a snapshot and purges. The log of a window must still be there at
            // its end, however many starts are in it.
            .config("autopurge.purgeInterval", "1")
            .config("autopurge.snapRetainCount", "60")
            .config("snapCount", "20000");
        let ensemble = ensemble.start_ensemble(SERVERS).await.unwrap();
        let names = (0..WORKERS).map(|index| format!("worker {index}"));
        let names = names.chain((0..SERVERS).map(|index| format!("server {index}")));
        let others = ["Curator", "checker"].map(ToOwned::to_owned);
        Self {
            plan,
            curators: Curators::start(ensemble.connect_string(), SIDE_BY_SIDE).await,
            stage: Stage::new(ensemble, plan.seed, plan.scenes(), &first).await,
            folder,
            figures: Figures::new(names.chain(others).collect()),
            judged: i64::MIN,
            random: Rng::with_seed(plan.seed),
        }
    }

    async fn window(&mut self, window: u64, folder: &Path) -> Tally {
        let mut tally = Tally::default();
        let journal = Arc::new(Journal::open(&folder.join("curator")).unwrap());
        let seed = self.plan.seed.wrapping_add(window);
        self.curators.contend(&journal, seed, self.plan.window);
        self.trouble(&mut tally).await;
        if !self.curators.finish(&journal).await {
            println!("threads of Curator did not come to an end, and their JVM was replaced");
        }
        let hung = self.finish().await;
        tally.left = self.stage.note_what_is_left().await;
        self.sample().await;
        let leader = self.stage.servers.leader().await.unwrap();
        let end = self.stage.servers.server(leader).zxid().await.unwrap();
        let log = self.stage.servers.transaction_log_after(self.judged);
        let log = log.unwrap();
        self.judged = end;
        let violations = judge(&events(folder), &log, &mut tally);
        tally.violations += hung.len();
        for worker in hung {
            println!("worker {worker} does not come to an end");
        }
        for violation in violations.iter().take(SHOWN) {
            println!("{violation}");
        }
        if violations.is_empty() && tally.violations == 0 {
            std::fs::remove_dir_all(folder).unwrap();
        } else {
            let all: Vec<_> = violations.iter().map(ToString::to_string).collect();
            std::fs::write(folder.join("violations"), all.join("\n")).unwrap();
            std::fs::write(folder.join("log"), format!("{:#?}", log.records())).unwrap();
            println!("SOAK_SEED={} kept: {}", self.plan.seed, folder.display());
        }
        tally
    }

    /// Makes faults until the window ends.
    async fn trouble(&mut self, tally: &mut Tally) {
        let end = Instant::now() + self.plan.window;
        let mut next = Instant::now() + self.plan.every / 2;
        // A later fault would last longer than the window.
        while next + self.plan.every / 4 < end {
            self.sample_until(next).await;
            let trouble = Trouble::any(&mut self.random, WORKERS);
            println!("  {trouble:?}");
            let brought = self.stage.bring(trouble, &mut self.random).await;
            if let Err(error) = brought {
                self.mishap(trouble, &error.to_string(), tally).await;
            }
            *tally.troubles.entry(trouble.name().to_owned()).or_default() += 1;
            next = Instant::now().max(next + self.plan.every);
        }
        self.sample_until(end).await;
    }

    /// Goes on if the servers did not recover from a fault. That is not an error of the locks.
    async fn mishap(&mut self, trouble: Trouble, error: &str, tally: &mut Tally) {
        println!("  {error}; all servers are started again");
        *tally
            .troubles
            .entry("servers stuck".to_owned())
            .or_default() += 1;
        for (index, server) in self.stage.servers.servers().iter().enumerate() {
            let kept = self.folder.join(format!("server-{index}.log"));
            std::fs::copy(server.log_path(), kept).unwrap();
        }
        self.stage.mend(trouble).await;
    }

    async fn sample_until(&mut self, end: Instant) {
        loop {
            self.sample().await;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            sleep(left.min(SAMPLE_EVERY)).await;
        }
    }

    async fn sample(&mut self) {
        let workers = self.stage.workers.iter().map(|(_, it)| it.child.id());
        let servers = self.stage.servers.servers().iter().map(|it| it.pid());
        let others = [self.curators.process_id(), Some(std::process::id())];
        let processes: Vec<_> = workers.chain(servers).chain(others).collect();
        self.figures.take(&processes, &self.stage.servers).await;
    }

    /// Waits for the contenders, and kills those that do not finish.
    async fn finish(&mut self) -> Vec<u32> {
        let deadline = Instant::now() + PATIENCE;
        let mut hung = Vec::new();
        for (index, (worker, process)) in self.stage.workers.iter_mut().enumerate() {
            let left = deadline.saturating_duration_since(Instant::now());
            match timeout(left, process.says()).await {
                Ok(said) => assert_eq!(said, OVER),
                Err(_) => hung.push((index, *worker)),
            }
        }
        self.stage.note(Happening::Over);
        for (index, _) in &hung {
            self.stage.replace(*index).await;
            // A new process has finished its scenes when it starts.
            assert_eq!(self.stage.workers[*index].1.says().await, OVER);
        }
        hung.into_iter().map(|(_, worker)| worker).collect()
    }
}
