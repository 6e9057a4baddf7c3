//! Nodes that are removed at random moments on a real server.
//!
//! A server notifies a session of a removal before it answers later requests of that session. So a
//! contender that has an answer from after the removal has been notified of it, however slow the
//! machine is.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use futures::future::join_all;
use lock_recipes::{InterProcessReadWriteLock, Session, ZooKeeper};
use test_rig::{ZooKeeperServer, asked_for};
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::{Client, Error};

use super::PATIENCE;
use super::contenders::{
    Cast, FIRST, MUTEXES, Process, READERS_BESIDE_WRITERS, READERS_THEN_WRITERS, SECOND,
    SETS_OF_ALL_KINDS, SETS_OF_MUTEXES, SETTLED, Stage, Victims, WRITERS_THEN_READERS, turns,
};
use super::judge::Judge;

/// For sessions that must survive on a busy machine.
const SESSION_TIMEOUT: Duration = Duration::from_secs(60);
/// Each cast with the locks that lose nodes, one in each trial.
const CASTS: [(Cast, &[&str]); 6] = [
    (MUTEXES, &[FIRST]),
    (WRITERS_THEN_READERS, &[FIRST]),
    (READERS_THEN_WRITERS, &[FIRST]),
    (READERS_BESIDE_WRITERS, &[FIRST]),
    (SETS_OF_MUTEXES, &[FIRST, SECOND]),
    (SETS_OF_ALL_KINDS, &[FIRST, SECOND]),
];
/// Trials at the same time.
const SIDE_BY_SIDE: usize = 16;
/// The longest that a contender holds its lock.
const SECTION_MS_MAX: u64 = 8;

struct Scene {
    operator: Client,
    ours: Session,
    others: Session,
    server: ZooKeeperServer,
}

#[derive(Clone, Copy, Debug)]
struct Trial {
    cast: usize,
    struck: &'static str,
    handoffs: u32,
    victims: Victims,
    section: Duration,
    /// How long after the first of them has a node.
    after: Duration,
}

impl Trial {
    fn random(random: &mut Rng) -> Self {
        let section_ms = random.u64(1..=SECTION_MS_MAX);
        let cast = random.usize(..CASTS.len());
        Self {
            cast,
            struck: random.choice(CASTS[cast].1).unwrap(),
            handoffs: random.choice([0, 9]).unwrap(),
            victims: random.choice(Victims::ALL).unwrap(),
            section: Duration::from_millis(section_ms),
            after: Duration::from_millis(random.u64(..6 * section_ms)),
        }
    }
}

#[derive(Default)]
struct Tally {
    removed: usize,
    faults: Vec<String>,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (removed, faults) = (self.removed, self.faults.len());
        write!(f, "{removed} nodes removed, {faults} faults")
    }
}

impl Scene {
    async fn set() -> Self {
        let server = ZooKeeperServer::start().await.unwrap();
        let connect = async || {
            let options = ZooKeeper::builder().session_timeout(SESSION_TIMEOUT);
            options.connect(&server.connect_string()).await.unwrap()
        };
        Self {
            operator: server.client().await.unwrap(),
            ours: connect().await,
            others: connect().await,
            server,
        }
    }

    /// Waits until both sessions have been notified of all earlier changes.
    async fn hear(&self) {
        for session in [&self.ours, &self.others] {
            let lock = InterProcessReadWriteLock::new(session, "/nobody").unwrap();
            lock.read_participants().await.unwrap();
        }
        turns(SETTLED).await;
    }

    async fn queue(&self, stage: &Stage, lock: &str) -> Vec<String> {
        match self.operator.list_children(&stage.path(lock)).await {
            Err(Error::NoNode) => Vec::new(),
            names => names.unwrap(),
        }
    }

    async fn strike(&self, stage: &Stage, trial: Trial) -> usize {
        let queue = self.queue(stage, trial.struck).await;
        let nodes = trial.victims.of(queue, stage, trial.struck);
        stage.judge().removing(&nodes);
        let mut removed = 0;
        // The deletes are sent together.
        let deletes = nodes.iter().map(|node| self.operator.delete(node, None));
        for deleted in join_all(deletes).await {
            match deleted {
                // The node was released meanwhile.
                Err(Error::NoNode) => {}
                deleted => {
                    deleted.unwrap();
                    removed += 1;
                }
            }
        }
        self.hear().await;
        stage.judge().settled(Instant::now());
        removed
    }

    async fn run(&self, number: usize, trial: Trial) -> Tally {
        let stage = Arc::new(Stage {
            directory: format!("/locks-{number}"),
            section: trial.section,
            handoffs: trial.handoffs,
            // A holder that has not waited checks its node only after a while, which other tests
            // cover.
            judge: Mutex::new(Judge::new(Duration::MAX)),
        });
        let (cast, _) = CASTS[trial.cast];
        let tasks = cast.iter().enumerate().map(|(name, contender)| {
            let session = match contender.0 {
                Process::Ours => &self.ours,
                Process::Other => &self.others,
            };
            stage.enter(session, name, *contender)
        });
        let tasks: Vec<_> = tasks.collect();
        while self.queue(&stage, FIRST).await.is_empty() {}
        sleep(trial.after).await;
        let removed = self.strike(&stage, trial).await;
        for task in join_all(tasks).await {
            task.unwrap();
        }
        let faults = std::mem::take(&mut stage.judge().faults);
        let faults = faults.iter().map(|fault| format!("{trial:?}: {fault}"));
        Tally {
            removed,
            faults: faults.collect(),
        }
    }
}

/// It runs on one thread, so that news reach all contenders a few turns after they arrive.
#[tokio::test]
async fn removed_node_is_not_granted_on_a_real_server() {
    let trials = asked_for("REMOVED_TRIALS", 250).div_ceil(4);
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    let scene = Scene::set().await;
    let mut sum = Tally::default();
    for first in (0..trials).step_by(SIDE_BY_SIDE) {
        let numbers = first..trials.min(first + SIDE_BY_SIDE);
        let some = numbers.map(|number| scene.run(number, Trial::random(&mut random)));
        for tally in timeout(PATIENCE, join_all(some)).await.unwrap() {
            sum.removed += tally.removed;
            sum.faults.extend(tally.faults);
        }
    }
    println!("{trials} trials, {sum}");
    drop(scene.server);
    assert!(sum.removed > 0, "nothing was removed");
    assert!(sum.faults.is_empty(), "{:#?}", sum.faults);
}
