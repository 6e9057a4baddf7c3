//! One run: the servers of a store, several processes of contenders, and faults.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fastrand::Rng;
use lock_recipes::LockKind;
use tempfile::TempDir;
use test_rig::ZooKeeperEnsemble;
use test_rig::history::{Attempt, Confirmed, Happening, History};
use tokio::time::{Instant, sleep};

use crate::GRANTS_MIN;
use crate::members::Members;
use crate::orders::{PERMITS, Scenes, history_of, is_election};
use crate::servers::Servers;
use crate::stage::{PATIENCE, Stage, WAIT_MAX, WORKERS, events};
use crate::trouble::Schedule;

#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) histories: usize,
    pub(crate) attempts: usize,
    pub(crate) grants: usize,
    /// Grants of permits. Several that are acquired together count one by one.
    pub(crate) permits: usize,
    /// Semaphores of which all permits were certainly held at one time.
    pub(crate) full_semaphores: usize,
    /// Grants of terms.
    pub(crate) terms: usize,
    /// Writes that the log of the servers confirms, if there is one.
    pub(crate) writes: usize,
    pub(crate) nodes: usize,
    pub(crate) troubles: usize,
}

impl Outcome {
    pub(crate) fn add(&mut self, other: Self) {
        self.histories += other.histories;
        self.attempts += other.attempts;
        self.grants += other.grants;
        self.permits += other.permits;
        self.full_semaphores += other.full_semaphores;
        self.terms += other.terms;
        self.writes += other.writes;
        self.nodes += other.nodes;
        self.troubles += other.troubles;
    }

    /// Whether semaphores and elections were part of it, so that their rules were at stake.
    pub(crate) fn has_all_kinds(&self) -> bool {
        self.full_semaphores > 0 && self.terms > 0
    }
}

pub(crate) struct Run<S> {
    seed: u64,
    scenes: Scenes,
    stage: Stage<S>,
    folder: TempDir,
    hung: Vec<u32>,
}

impl Run<ZooKeeperEnsemble> {
    /// Runs on one server to the end, and judges.
    pub(crate) async fn judged(seed: u64, scenes: Scenes) -> Outcome {
        let mut random = Rng::with_seed(seed);
        let schedule = Schedule::random(&mut random, WORKERS, scenes.length());
        let ensemble = ZooKeeperEnsemble::start(1).await.unwrap();
        Self::on(ensemble, seed, scenes, schedule).await
    }
}

impl<M: Members> Run<M> {
    /// Runs on three servers to the end, and judges.
    pub(crate) async fn judged_on_three(seed: u64, scenes: Scenes) -> Outcome {
        let members = M::three().await.unwrap();
        let more = members.troubles().await.unwrap();
        let schedule = Schedule::of_three(&mut Rng::with_seed(seed), WORKERS, more);
        Self::on(members, seed, scenes, schedule).await
    }
}

impl<S: Servers> Run<S> {
    /// Runs to the end, and judges.
    pub(crate) async fn on(servers: S, seed: u64, scenes: Scenes, schedule: Schedule) -> Outcome {
        println!("HISTORIES_SEED={seed} {schedule}");
        let mut run = Self::new(servers, seed, scenes).await;
        let troubles = run.trouble(&schedule).await;
        run.finish().await;
        let sessions = run.stage.servers.sessions().await;
        run.judge(&schedule, troubles, &sessions)
    }

    async fn new(servers: S, seed: u64, scenes: Scenes) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            seed,
            scenes,
            stage: Stage::new(servers, seed, scenes, folder.path()).await,
            folder,
            hung: Vec::new(),
        }
    }

    /// Makes faults until the contenders finish. Returns how many there were.
    async fn trouble(&mut self, schedule: &Schedule) -> usize {
        let mut random = Rng::with_seed(self.seed);
        let begun = Instant::now();
        let mut count = 0;
        for step in &schedule.0 {
            sleep(step.calm).await;
            if begun.elapsed() > self.scenes.length() {
                break;
            }
            let prepared = self.stage.servers.prepare(step.trouble).await;
            prepared.unwrap();
            let brought = match step.unseen_by {
                Some(worker) => {
                    let stage = &mut self.stage;
                    stage.bring_unseen(step.trouble, worker, &mut random).await
                }
                None => self.stage.bring(step.trouble, &mut random).await,
            };
            brought.unwrap();
            count += 1;
        }
        count
    }

    /// Waits for the contenders.
    async fn finish(&mut self) {
        let deadline = Instant::now() + PATIENCE + self.scenes.length();
        for (worker, process) in &mut self.stage.workers {
            let left = deadline.saturating_duration_since(Instant::now());
            // The end of its input is the end of its orders.
            drop(process.child.stdin.take());
            match process.ended(left).await {
                Some(status) => assert!(status.success(), "seed {}: {worker}: {status}", self.seed),
                None => self.hung.push(*worker),
            }
        }
        self.stage.note(Happening::Over);
        for (_, process) in &mut self.stage.workers {
            process.kill().await;
        }
        self.stage.note_what_is_left().await;
    }

    fn judge(
        &self,
        schedule: &Schedule,
        troubles: usize,
        sessions: &BTreeMap<String, i64>,
    ) -> Outcome {
        let events = events(self.folder.path());
        let mut history = History::parse(&events).unwrap();
        let grants = history.grants().map(|(_, it)| (it.node.clone(), it.token));
        let tokens: BTreeMap<_, _> = grants.collect();
        history.learn(|node| Some((*tokens.get(node)?, *sessions.get(node)?)));
        let log = self.stage.servers.log();
        let (confirmed, mut violations) = match log.as_ref().map(|log| history.confirm(log)) {
            Some(Ok(confirmed)) => (confirmed, Vec::new()),
            Some(Err(violations)) => (Confirmed::default(), violations),
            None => (Confirmed::default(), Vec::new()),
        };
        violations.extend(history.check(WAIT_MAX));
        if !violations.is_empty() || !self.hung.is_empty() {
            let log = log.map(|log| format!("{:#?}", log.records()));
            let kept = keep(self.seed, &events, log.as_deref());
            let violations: Vec<_> = violations.iter().map(ToString::to_string).collect();
            panic!(
                "HISTORIES_SEED={} {schedule}\nhistory and log in {}\nprocesses that hang: {:?}\n{}",
                self.seed,
                kept.display(),
                self.hung,
                violations.join("\n")
            );
        }
        let mut grants = BTreeMap::new();
        for (attempt, _) in history.grants() {
            let of = history_of(&attempt.path).unwrap();
            *grants.entry(of).or_insert(0) += 1;
        }
        let count = |is: fn(&Attempt) -> bool| history.grants().filter(|(it, _)| is(it)).count();
        let all_permits = usize::try_from(PERMITS).unwrap();
        let most_permits = history.permits_at_once().into_values();
        Outcome {
            histories: grants.values().filter(|it| **it >= GRANTS_MIN).count(),
            attempts: history.attempts().len(),
            grants: history.grants().count(),
            permits: count(|it| it.kind == LockKind::Permit),
            full_semaphores: most_permits.filter(|most| *most == all_permits).count(),
            terms: count(|it| is_election(&it.path)),
            writes: confirmed.writes,
            nodes: confirmed.nodes,
            troubles,
        }
    }
}

/// Keeps the files on which the judgement rests.
fn keep(seed: u64, events: &str, log: Option<&str>) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("histories-{seed}"));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("history"), events).unwrap();
    if let Some(log) = log {
        std::fs::write(folder.join("log"), log).unwrap();
    }
    folder
}
