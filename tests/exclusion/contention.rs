//! Exclusion, order and tokens under contention, judged outside the lock's code.

use std::sync::{Arc, Mutex};

use futures::future::join_all;
use lock_recipes::{FencingToken, InterProcessMutex, Session};
use test_rig::{TestEnsemble, on_every_ensemble};

const PATH: &str = "/locks/orders";
const TASKS: usize = 50;
/// Of all tasks, times `CONTENTION`.
const ROUNDS: usize = 250;

fn rounds() -> usize {
    ROUNDS * test_rig::asked_for("CONTENTION", 1)
}

/// What a visitor saw, recorded in the order of the visits.
#[derive(Debug)]
struct Visit {
    sequence: u32,
    token: FencingToken,
}

/// Judges visits independently of the lock.
#[derive(Debug, Default)]
struct Judge {
    inside: usize,
    visits: Vec<Visit>,
}

fn sequence(node_path: &str) -> u32 {
    node_path[node_path.len() - 10..].parse().unwrap()
}

async fn contend(lock: InterProcessMutex, judge: Arc<Mutex<Judge>>) {
    for _ in 0..rounds() / TASKS {
        let guard = lock.acquire().await.unwrap();
        let visit = Visit {
            sequence: sequence(&guard.members()[0].node_path),
            token: guard.fencing_token(),
        };
        {
            let mut judge = judge.lock().unwrap();
            judge.inside += 1;
            judge.visits.push(visit);
            assert_eq!(judge.inside, 1, "two are inside");
        }
        tokio::task::yield_now().await;
        judge.lock().unwrap().inside -= 1;
        guard.release().await.unwrap();
    }
}

on_every_ensemble!(fifty_tasks_over_five_sessions_take_turns_in_the_order_of_their_nodes);

async fn fifty_tasks_over_five_sessions_take_turns_in_the_order_of_their_nodes(
    ensemble: TestEnsemble,
) {
    let mut sessions: Vec<Session> = Vec::new();
    for _ in 0..5 {
        sessions.push(ensemble.session().await);
    }
    // Created explicitly, so that it is not reaped in a moment without contenders: the sequences of
    // another directory start again.
    ensemble.create(PATH, b"").await;
    let judge = Arc::new(Mutex::new(Judge::default()));
    let tasks = (0..TASKS).map(|n| {
        let lock = InterProcessMutex::new(&sessions[n % 5], PATH).unwrap();
        tokio::spawn(contend(lock, Arc::clone(&judge)))
    });
    join_all(tasks).await.into_iter().for_each(Result::unwrap);

    let visits = std::mem::take(&mut judge.lock().unwrap().visits);
    assert_eq!(visits.len(), rounds());
    for (earlier, later) in visits.iter().zip(&visits[1..]) {
        assert!(
            earlier.sequence < later.sequence,
            "{earlier:?}, then {later:?}"
        );
        assert!(earlier.token < later.token, "{earlier:?}, then {later:?}");
    }
    assert!(ensemble.children(PATH).await.is_empty());
}
