//! One server or three, several processes of contenders, and trouble.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fastrand::Rng;
use recipes_testing::history::{Confirmed, Happening, History, Journal, monotonic_now};
use recipes_testing::{ServerError, TransactionLog, ZooKeeperEnsemble, ZooKeeperServer};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::{Acls, Client, CreateMode, Error};

use crate::GRANTS_MIN;
use crate::again::Again;
use crate::orders::{LOCKS, Orders, Scenes, path, register};
use crate::trouble::{Schedule, Trouble};
use crate::worker::SESSION_TIMEOUT;

/// Processes that contend at one time.
const WORKERS: usize = 4;
/// Within this, contenders that are left alone have come to an end, or never will.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a contender may wait with nobody ahead: until the session of a dead one has expired
/// and everybody has connected again, on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// A server that is asked while it is down or starts may not answer at all.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// What came of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) histories: usize,
    pub(crate) attempts: usize,
    pub(crate) grants: usize,
    /// Confirmed by the log of a server that is alone.
    pub(crate) writes: usize,
    pub(crate) nodes: usize,
    pub(crate) troubles: usize,
}

impl Outcome {
    pub(crate) fn add(&mut self, other: Self) {
        self.histories += other.histories;
        self.attempts += other.attempts;
        self.grants += other.grants;
        self.writes += other.writes;
        self.nodes += other.nodes;
        self.troubles += other.troubles;
    }
}

/// Everything that goes on at one time.
pub(crate) struct Run {
    seed: u64,
    scenes: Scenes,
    ensemble: ZooKeeperEnsemble,
    folder: TempDir,
    journal: Journal,
    start: u64,
    workers: Vec<(u32, Again)>,
    started: u32,
    /// Processes that did not come to an end.
    hung: Vec<u32>,
}

impl Run {
    /// Runs on one server to the end and judges.
    pub(crate) async fn judged(seed: u64, scenes: Scenes) -> Outcome {
        let mut random = Rng::with_seed(seed);
        let schedule = Schedule::random(&mut random, WORKERS, scenes.length());
        let ensemble = ZooKeeperEnsemble::start(1).await.unwrap();
        Self::on(ensemble, seed, scenes, schedule).await
    }

    /// The same on three servers.
    pub(crate) async fn judged_on_three(seed: u64, scenes: Scenes) -> Outcome {
        let schedule = Schedule::of_three(&mut Rng::with_seed(seed));
        // One that is elected and finds nobody who follows it tries again after 3 s, not 10.
        let builder = ZooKeeperEnsemble::builder()
            .links()
            .config("initLimit", "30");
        let ensemble = builder.start_ensemble(3).await.unwrap();
        Self::on(ensemble, seed, scenes, schedule).await
    }

    async fn on(
        ensemble: ZooKeeperEnsemble,
        seed: u64,
        scenes: Scenes,
        schedule: Schedule,
    ) -> Outcome {
        println!("HISTORIES_SEED={seed} {schedule}");
        let mut run = Self::new(ensemble, seed, scenes).await;
        let troubles = run.trouble(&schedule).await;
        run.finish().await;
        run.judge(&schedule, troubles)
    }

    async fn new(ensemble: ZooKeeperEnsemble, seed: u64, scenes: Scenes) -> Self {
        let client = ensemble.client().await.unwrap();
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        client.mkdir("/registers", &options).await.unwrap();
        for lock in locks(scenes) {
            client
                .create(&register(&lock), b"", &options)
                .await
                .unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(&folder.path().join("trouble")).unwrap();
        let mut run = Self {
            seed,
            scenes,
            ensemble,
            folder,
            journal,
            start: monotonic_now(),
            workers: Vec::new(),
            started: 0,
            hung: Vec::new(),
        };
        for _ in 0..WORKERS {
            let worker = run.start_worker();
            run.workers.push(worker);
        }
        run
    }

    fn start_worker(&mut self) -> (u32, Again) {
        let worker = self.started;
        self.started += 1;
        let orders = Orders {
            worker,
            seed: self.seed.wrapping_add(u64::from(worker) << 48),
            connect_string: self.ensemble.connect_string(),
            journal: self.folder.path().join(format!("worker-{worker}")),
            start: self.start,
            scenes: self.scenes,
        };
        (worker, Again::start("worker_process", &orders.to_string()))
    }

    fn note(&self, what: Happening) {
        self.journal.write(monotonic_now(), what).unwrap();
    }

    /// Brings the trouble about until the contenders come to an end; says how much there was.
    async fn trouble(&mut self, schedule: &Schedule) -> usize {
        let mut random = Rng::with_seed(self.seed);
        let begun = Instant::now();
        let mut count = 0;
        for (calm, trouble) in &schedule.0 {
            sleep(*calm).await;
            if begun.elapsed() > self.scenes.length() {
                break;
            }
            self.bring(*trouble, &mut random).await.unwrap();
            count += 1;
        }
        count
    }

    async fn bring(&mut self, trouble: Trouble, random: &mut Rng) -> Result<(), ServerError> {
        match trouble {
            Trouble::RestartServer
            | Trouble::KillServer
            | Trouble::PauseServer(_)
            | Trouble::RestartAll
            | Trouble::LoseQuorum(_)
            | Trouble::CutFollower(_)
            | Trouble::CutLeader(_) => {
                self.note(Happening::Down);
                self.bring_to_servers(trouble).await?;
                self.note(Happening::Up);
            }
            Trouble::PauseWorker(index, pause) => {
                self.note(Happening::Paused(self.workers[index].0));
                self.workers[index].1.signal(Signal::STOP);
                sleep(pause).await;
                self.workers[index].1.signal(Signal::CONT);
                self.note(Happening::Resumed(self.workers[index].0));
            }
            Trouble::KillWorker(index) => {
                self.workers[index].1.kill().await;
                self.note(Happening::Killed(self.workers[index].0));
                self.workers[index] = self.start_worker();
            }
            Trouble::Evict => {
                let session = timeout(ANSWER_MAX, self.somebody(random)).await;
                if let Ok(Ok(Some(session))) = session {
                    self.note(Happening::Evicted(session));
                    match self.ensemble.expire(session).await {
                        Err(ServerError::NoSession { .. }) => {}
                        done => done?,
                    }
                }
            }
        }
        Ok(())
    }

    /// All servers serve again when it is over.
    async fn bring_to_servers(&self, trouble: Trouble) -> Result<(), ServerError> {
        let servers = self.ensemble.servers();
        let count = servers.len();
        let chief = match count {
            1 => 0,
            _ => self.ensemble.leader().await?,
        };
        match trouble {
            Trouble::RestartServer => self.ensemble.restart(chief).await?,
            Trouble::KillServer => {
                self.ensemble.kill(chief).await?;
                self.ensemble.start_again(chief).await?;
            }
            Trouble::PauseServer(pause) => {
                servers[chief].pause()?;
                sleep(pause).await;
                servers[chief].resume()?;
            }
            Trouble::RestartAll => {
                for index in 0..count {
                    self.ensemble.restart(index).await?;
                }
            }
            Trouble::LoseQuorum(pause) => {
                for index in 1..count {
                    self.ensemble.kill((chief + index) % count).await?;
                }
                sleep(pause).await;
                for index in 1..count {
                    self.ensemble.start_again((chief + index) % count).await?;
                }
            }
            Trouble::CutFollower(pause) | Trouble::CutLeader(pause) => {
                let is_leader = matches!(trouble, Trouble::CutLeader(_));
                let cut = if is_leader {
                    chief
                } else {
                    (chief + 1) % count
                };
                self.ensemble.cut_off(cut);
                sleep(pause).await;
                self.ensemble.join_again(cut);
            }
            Trouble::PauseWorker(..) | Trouble::KillWorker(_) | Trouble::Evict => {}
        }
        for server in servers {
            await_service(server).await;
        }
        Ok(())
    }

    /// The session of somebody who has a node now.
    async fn somebody(&self, random: &mut Rng) -> Result<Option<i64>, Error> {
        let client = Client::connect(&self.ensemble.connect_string()).await?;
        let mut locks = locks(self.scenes);
        random.shuffle(&mut locks);
        for lock in locks {
            let Ok(nodes) = client.list_children(&lock).await else {
                continue;
            };
            if let Some(node) = random.choice(nodes) {
                let stat = client.check_stat(&format!("{lock}/{node}")).await?;
                return Ok(stat.map(|stat| stat.ephemeral_owner));
            }
        }
        Ok(None)
    }

    /// Waits for the contenders, and until what dead ones had has gone with their sessions.
    async fn finish(&mut self) {
        let deadline = Instant::now() + PATIENCE + self.scenes.length();
        for (worker, process) in &mut self.workers {
            let left = deadline.saturating_duration_since(Instant::now());
            match process.ended(left).await {
                Some(status) => assert!(status.success(), "seed {}: {worker}: {status}", self.seed),
                None => self.hung.push(*worker),
            }
        }
        self.note(Happening::Over);
        for (_, process) in &mut self.workers {
            process.kill().await;
        }
        let client = self.ensemble.client().await.unwrap();
        let mut left = Vec::new();
        let until = Instant::now() + SESSION_TIMEOUT + PATIENCE / 3;
        for lock in locks(self.scenes) {
            loop {
                let nodes = client.list_children(&lock).await.unwrap_or_default();
                if nodes.is_empty() || Instant::now() > until {
                    left.extend(nodes.iter().map(|node| format!("{lock}/{node}")));
                    break;
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
        left.into_iter()
            .for_each(|node| self.note(Happening::Left(node)));
    }

    fn judge(&self, schedule: &Schedule, troubles: usize) -> Outcome {
        let mut events = String::new();
        for file in self.folder.path().read_dir().unwrap() {
            events += &std::fs::read_to_string(file.unwrap().path()).unwrap();
        }
        let mut history = History::parse(&events).unwrap();
        // Of several servers, each also has in its log what the others did not agree to.
        let log = match self.ensemble.servers() {
            [alone] => Some(alone.transaction_log().unwrap()),
            _ => None,
        };
        let confirmed = log
            .as_ref()
            .map_or_else(|| Ok(Confirmed::default()), |log| history.confirm(log));
        let mut violations = confirmed.as_ref().err().cloned().unwrap_or_default();
        violations.extend(history.check(WAIT_MAX));
        if !violations.is_empty() || !self.hung.is_empty() {
            let kept = keep(self.seed, &events, log.as_ref());
            let violations: Vec<_> = violations.iter().map(ToString::to_string).collect();
            panic!(
                "HISTORIES_SEED={} {schedule}\nhistory and log in {}\nprocesses that hang: {:?}\n{}",
                self.seed,
                kept.display(),
                self.hung,
                violations.join("\n")
            );
        }
        let confirmed = confirmed.unwrap();
        let mut grants = BTreeMap::new();
        for (attempt, _) in history.grants() {
            let (directory, _) = attempt.path.rsplit_once('/').unwrap();
            *grants.entry(directory).or_insert(0) += 1;
        }
        Outcome {
            histories: grants.values().filter(|it| **it >= GRANTS_MIN).count(),
            attempts: history.attempts().len(),
            grants: history.grants().count(),
            writes: confirmed.writes,
            nodes: confirmed.nodes,
            troubles,
        }
    }
}

/// Until it takes clients; without a leader it closes their connections.
async fn await_service(server: &ZooKeeperServer) {
    let served = async {
        // Which itself waits a while for a server that does not answer.
        while !matches!(timeout(ANSWER_MAX, server.client()).await, Ok(Ok(_))) {}
    };
    timeout(2 * PATIENCE, served).await.unwrap();
}

fn locks(scenes: Scenes) -> Vec<String> {
    let all = (0..scenes.histories()).flat_map(|history| LOCKS.map(|lock| path(history, lock)));
    all.collect()
}

/// Keeps what the judgement is made of.
fn keep(seed: u64, events: &str, log: Option<&TransactionLog>) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("histories-{seed}"));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("history"), events).unwrap();
    if let Some(log) = log {
        std::fs::write(folder.join("log"), format!("{:#?}", log.records())).unwrap();
    }
    folder
}
