//! Many contenders keep to the number, with faults. What is held is counted by this file, from what
//! the guards say, not by the semaphore.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_recipes::{InterProcessSemaphore, SemaphorePermit, Session};
use test_rig::{TestEnsemble, on_every_ensemble};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{PATH, PATIENCE, nothing_is_left};

/// As many contenders as that, in as many sessions.
const CONTENDERS: usize = 32;
const SESSIONS: usize = 8;
const PERMITS: usize = 5;

/// Grants in all. `RUSH=5000` is the long form.
fn rounds() -> usize {
    std::env::var("RUSH").map_or(400, |it| it.parse().unwrap())
}

on_every_ensemble!(rush_for_single_permits, rush_for_several_permits);

async fn rush_for_single_permits(ensemble: TestEnsemble) {
    rush(ensemble, 1).await;
}

/// Each wants one to five.
async fn rush_for_several_permits(ensemble: TestEnsemble) {
    rush(ensemble, PERMITS).await;
}

/// What is held now.
#[derive(Default)]
struct Held {
    grants: Mutex<Vec<Grant>>,
    /// The session that the operator ends now. Its permits do not count: the next contender may be granted before its
    /// client hears of the end.
    ending: Mutex<Option<usize>>,
    /// The most that were valid at a time.
    most: AtomicUsize,
}

struct Grant {
    number: usize,
    session: usize,
    permit: Arc<SemaphorePermit>,
}

impl Held {
    /// Counts everything that is valid. A guard that is granted meanwhile is counted later.
    fn add(&self, grant: Grant) {
        let mut grants = self.grants.lock().unwrap();
        grants.push(grant);
        let ending = *self.ending.lock().unwrap();
        let valid = grants
            .iter()
            .filter(|it| Some(it.session) != ending && it.permit.is_valid());
        let valid: usize = valid.map(|it| it.permit.count()).sum();
        assert!(valid <= PERMITS, "{valid} permits of {PERMITS} are held");
        self.most.fetch_max(valid, Ordering::Relaxed);
    }

    fn remove(&self, number: usize) {
        self.grants.lock().unwrap().retain(|it| it.number != number);
    }

    fn note_ending(&self, session: Option<usize>) {
        *self.ending.lock().unwrap() = session;
    }
}

/// Ends sessions in the course of the rounds.
async fn end_sessions(
    ensemble: &TestEnsemble,
    sessions: &[Session],
    held: &Held,
    round: &AtomicUsize,
) {
    let mut random = fastrand::Rng::with_seed(7);
    for turn in 1..=SESSIONS / 2 {
        while round.load(Ordering::Relaxed) < turn * rounds() / SESSIONS {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let number = random.usize(..SESSIONS);
        let session = &sessions[number];
        let id = ensemble
            .until("a session", async || session.session_id())
            .await;
        held.note_ending(Some(number));
        ensemble.expire(session).await;
        // In memory the client may not have heard of it yet.
        let is_over = async || (session.session_id() != Some(id)).then_some(());
        ensemble.until("the end of a session", is_over).await;
        held.note_ending(None);
    }
}

async fn rush(ensemble: TestEnsemble, at_once: usize) {
    let rounds = rounds();
    let (held, round) = (Arc::new(Held::default()), Arc::new(AtomicUsize::new(0)));
    let lost = Arc::new(AtomicUsize::new(0));
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        sessions.push(ensemble.session().await);
    }
    let mut contenders = JoinSet::new();
    for contender in 0..CONTENDERS {
        let session = contender % SESSIONS;
        let limit = InterProcessSemaphore::new(&sessions[session], PATH, PERMITS).unwrap();
        let (held, round, lost) = (Arc::clone(&held), Arc::clone(&round), Arc::clone(&lost));
        contenders.spawn(async move {
            let mut random = fastrand::Rng::with_seed(contender as u64);
            loop {
                let number = round.fetch_add(1, Ordering::Relaxed);
                if number >= rounds {
                    return;
                }
                let acquire = limit.acquire_many(random.usize(1..=at_once)).unwrap();
                if random.usize(0..16) == 0 {
                    // Gives up, wherever it stands.
                    let some = Duration::from_micros(random.u64(0..3_000));
                    drop(timeout(some, acquire).await);
                    continue;
                }
                let permit = Arc::new(timeout(PATIENCE, acquire).await.unwrap().unwrap());
                held.add(Grant {
                    number,
                    session,
                    permit: Arc::clone(&permit),
                });
                tokio::time::sleep(Duration::from_micros(random.u64(0..2_000))).await;
                held.remove(number);
                let permit = Arc::into_inner(permit).unwrap();
                if permit.release().await.is_err() {
                    lost.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }
    let faults = end_sessions(&ensemble, &sessions, &held, &round);
    let all = async {
        while let Some(contender) = contenders.join_next().await {
            contender.unwrap();
        }
    };
    tokio::join!(faults, all);
    let most = held.most.load(Ordering::Relaxed);
    if matches!(ensemble, TestEnsemble::Memory(_)) {
        // Elsewhere a grant may take longer than a permit is held.
        assert_eq!(most, PERMITS, "never full");
    }
    nothing_is_left(&ensemble).await;
    eprintln!(
        "{rounds} rounds of {CONTENDERS} contenders for {PERMITS} permits, up to {at_once} at once: \
         {most} at a time, {} lost with the {} sessions that ended",
        lost.load(Ordering::Relaxed),
        SESSIONS / 2,
    );
}
