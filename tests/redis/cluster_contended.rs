//! Contenders of a lock while the primary that has its keys fails over, and while they are moved to another one.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_recipes::{MutexGuard, Session};
use recipes_core::LockKind;
use test_rig::history::{AttemptId, Event, Happening, History, Rule, Step, monotonic_now};
use test_rig::{RedisCluster, asked_for, slot_of};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::cluster::KEY;
use super::{PATH, PATIENCE, mutex, options, until};

/// A quarantine of 6 s follows each change of the primary. One that is killed is replaced within half of this.
const SESSION_TIMEOUT: Duration = Duration::from_secs(8);
const SESSIONS: usize = 3;
const CONTENDERS: u32 = 6;

/// What the contenders did and saw.
#[derive(Default)]
struct Seen {
    events: Mutex<Vec<Event>>,
    is_over: AtomicBool,
    /// Attempts that ended with an error.
    failed: Mutex<Vec<String>>,
    /// The names of all nodes that were granted.
    granted: Mutex<BTreeSet<String>>,
    /// How often each contender was granted the lock.
    grants: Mutex<[u64; CONTENDERS as usize]>,
}

impl Seen {
    fn note(&self, at: u64, id: AttemptId, step: Step) {
        let what = Happening::Of(id, step);
        self.events.lock().unwrap().push(Event { at, what });
    }

    /// Notes a step if the guard was valid after the stamp was taken.
    fn note_if_valid(&self, guard: &MutexGuard, id: AttemptId, step: Step) -> bool {
        let at = monotonic_now();
        let is_valid = guard.is_valid();
        self.note(at, id, if is_valid { step } else { Step::Lost });
        is_valid
    }

    /// Takes the lock and gives it back, again and again.
    async fn contend(self: Arc<Self>, session: Session, worker: u32) {
        let lock = mutex(&session);
        let mut number = 0;
        while !self.is_over.load(Ordering::Relaxed) {
            number += 1;
            let id = AttemptId {
                worker,
                number,
                member: 0,
            };
            let (kind, path) = (LockKind::Mutex, PATH.to_owned());
            let party = (u64::from(worker) << 32) | u64::from(number);
            let invoked = Step::Invoked {
                kind,
                permits: 1,
                party,
                path,
            };
            self.note(monotonic_now(), id, invoked);
            match lock.acquire().await {
                Ok(guard) => self.hold(guard, id).await,
                Err(error) => {
                    self.note(monotonic_now(), id, Step::Ended);
                    self.failed.lock().unwrap().push(error.to_string());
                }
            }
        }
    }

    async fn hold(&self, guard: MutexGuard, id: AttemptId) {
        let node = guard.members()[0].node_path.clone();
        let at = monotonic_now();
        if !guard.is_valid() {
            return self.note(at, id, Step::Ended);
        }
        self.granted
            .lock()
            .unwrap()
            .insert(super::name(&node).to_owned());
        let token = guard.fencing_token().as_i64();
        self.note(at, id, Step::Granted { token, node });
        self.grants.lock().unwrap()[id.worker as usize] += 1;
        let mut is_held = true;
        for _ in 0..3 {
            sleep(Duration::from_millis(2)).await;
            is_held = is_held && self.note_if_valid(&guard, id, Step::Valid);
        }
        is_held = is_held && self.note_if_valid(&guard, id, Step::Releasing);
        let released = guard.release().await;
        let end = if is_held && released.is_ok() {
            Step::Released
        } else {
            Step::LetGo
        };
        self.note(monotonic_now(), id, end);
    }
}

/// Contenders of several sessions.
struct Crowd {
    cluster: RedisCluster,
    sessions: Vec<Session>,
    seen: Arc<Seen>,
    contenders: Vec<JoinHandle<()>>,
    /// Nodes that waited when something happened, and those of them that were granted.
    waited: usize,
    kept: usize,
    took: Vec<Duration>,
}

impl Crowd {
    async fn gather() -> Self {
        let cluster = RedisCluster::start().await.unwrap();
        let (mut sessions, mut contenders) = (Vec::new(), Vec::new());
        let seen = Arc::<Seen>::default();
        for _ in 0..SESSIONS {
            let opened = options(SESSION_TIMEOUT).connect(&cluster.url()).await;
            sessions.push(opened.unwrap());
        }
        for (worker, session) in (0..CONTENDERS).zip(sessions.iter().cycle()) {
            let contend = Arc::clone(&seen).contend(session.clone(), worker);
            contenders.push(tokio::spawn(contend));
        }
        Self {
            cluster,
            sessions,
            seen,
            contenders,
            waited: 0,
            kept: 0,
            took: Vec::new(),
        }
    }

    /// Something happens to the cluster. It is over when each contender has had the lock since.
    async fn round(&mut self, happens: impl AsyncFnOnce(&RedisCluster)) {
        let primary = self.cluster.primary(KEY).await;
        self.cluster.replica_of(primary).await;
        let queue = format!("{{locks}}:c:{PATH}");
        let queue: Vec<String> = primary
            .command(&["ZRANGE", &queue, "0", "-1"])
            .await
            .unwrap();
        let begun = Instant::now();
        happens(&self.cluster).await;
        let before = *self.seen.grants.lock().unwrap();
        until("a grant for each", async || {
            let now = *self.seen.grants.lock().unwrap();
            let mut all = before.iter().zip(now);
            all.all(|(before, now)| now >= before + 2).then_some(())
        })
        .await;
        self.took.push(begun.elapsed());
        let granted = self.seen.granted.lock().unwrap();
        self.waited += queue.len();
        self.kept += queue.iter().filter(|it| granted.contains(*it)).count();
    }

    async fn judge(self, what: &str) {
        self.seen.is_over.store(true, Ordering::Relaxed);
        for contender in self.contenders {
            timeout(PATIENCE, contender).await.unwrap().unwrap();
        }
        let events = std::mem::take(&mut *self.seen.events.lock().unwrap());
        let history = History::new(events).unwrap();
        let grants = history.grants().count();
        let lost = history.grants().filter(|(_, it)| it.is_lost).count();
        let broken = history.check(SESSION_TIMEOUT * 2).into_iter();
        // How long each waits is the quarantine's matter.
        let broken: Vec<_> = broken.filter(|it| it.rule != Rule::Wake).collect();
        let epochs: Vec<_> = self.sessions.iter().map(Session::epoch).collect();
        let (rounds, mut took) = (self.took.len(), self.took);
        took.sort();
        eprintln!(
            "{rounds} {what}: {grants} grants, {lost} lost, {} broken rules; {} of {} nodes that waited were granted; \
             epochs {epochs:?}; until each had the lock again: {:?} in the middle, {:?} at most; errors {:?}",
            broken.len(),
            self.kept,
            self.waited,
            took[rounds / 2],
            took[rounds - 1],
            self.seen.failed.lock().unwrap(),
        );
        assert!(broken.is_empty(), "{broken:?}");
        assert!(self.kept > 0, "nobody kept a place");
    }
}

fn rounds() -> usize {
    asked_for("CLUSTER_ROUNDS", 2)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contenders_exclude_each_other_over_failovers() {
    let mut crowd = Crowd::gather().await;
    for round in 0..rounds() {
        crowd
            .round(async |cluster| {
                let primary = cluster.primary(KEY).await;
                if round % 2 == 1 {
                    return cluster.fail_over(primary, "").await.unwrap();
                }
                primary.kill().await.unwrap();
                cluster.primary(KEY).await;
                primary.start_again().await.unwrap();
            })
            .await;
    }
    crowd.judge("failovers").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contenders_exclude_each_other_while_their_slot_is_moved() {
    let mut crowd = Crowd::gather().await;
    for _ in 0..rounds() {
        crowd
            .round(async |cluster| {
                let (from, to) = (
                    cluster.primary(KEY).await,
                    cluster.another_primary(KEY).await,
                );
                let slot = slot_of(from, KEY).await.unwrap();
                cluster.move_slot(&slot, from, to).await.unwrap();
            })
            .await;
    }
    crowd.judge("moved slots").await;
}
