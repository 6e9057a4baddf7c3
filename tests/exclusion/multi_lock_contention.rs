//! Overlapping sets under contention, judged outside the lock's code.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use lock_recipes::{InterProcessMutex, LockGuard, Member, MultiLock, Session};
use test_rig::{TestEnsemble, on_every_ensemble};

const OWNERS: usize = 16;
/// Of all owners, times `CONTENTION`.
const ROUNDS: usize = 256;
const RESOURCES: usize = 8;
/// Far beyond what all rounds take, unless owners wait for each other in a circle.
const PATIENCE: Duration = Duration::from_secs(600);

fn rounds() -> usize {
    ROUNDS * test_rig::asked_for("CONTENTION", 1)
}

fn path(resource: usize) -> String {
    format!("/resources/{resource}")
}

/// Judges holders independently of the locks.
#[derive(Debug, Default)]
struct Judge {
    taken: [bool; RESOURCES],
    /// Sequences of the grants of each resource, in their order.
    granted: [Vec<u32>; RESOURCES],
}

impl Judge {
    fn take(&mut self, resources: &[usize], guard: &LockGuard) {
        let members = guard.members();
        assert_eq!(members.len(), resources.len(), "a partial grant");
        for resource in resources {
            assert!(!self.taken[*resource], "{resource} is taken twice");
            self.taken[*resource] = true;
            let member = members
                .iter()
                .find(|it| it.path == path(*resource))
                .unwrap();
            let node = &member.node_path;
            self.granted[*resource].push(node[node.len() - 10..].parse().unwrap());
        }
    }

    fn give_back(&mut self, resources: &[usize]) {
        resources
            .iter()
            .for_each(|resource| self.taken[*resource] = false);
    }
}

/// The resources that an owner wants: in turn pairs in opposite orders, fives that overlap, and
/// single ones in the order of their paths. The pattern is fixed, so a failure can be repeated.
fn wanted(owner: usize, round: usize) -> Vec<usize> {
    let first = (owner * 5 + round * 3) % RESOURCES;
    let next = |step: usize| (first + step) % RESOURCES;
    match (owner + round) % 3 {
        0 => vec![first, next(1)],
        1 => vec![next(1), first],
        _ => (0..5).map(|step| next(step * 3)).collect(),
    }
}

/// Checks now and then whether the ensemble agrees: each node exists and is the first of its
/// directory.
async fn sample(ensemble: &TestEnsemble, guard: &LockGuard) {
    for member in guard.members() {
        let sequence = |name: &String| name[name.len() - 10..].to_owned();
        let children = ensemble.children(&member.path).await;
        let first = children.into_iter().min_by_key(sequence);
        assert_eq!(
            first.map(|name| format!("{}/{name}", member.path)),
            Some(member.node_path)
        );
    }
}

async fn contend(
    ensemble: Arc<TestEnsemble>,
    session: Session,
    owner: usize,
    judge: Arc<Mutex<Judge>>,
) {
    for round in 0..rounds() / OWNERS {
        let resources = wanted(owner, round);
        let guard: LockGuard = if owner == 0 {
            one_by_one(&session, &resources).await
        } else {
            let members = resources
                .iter()
                .map(|resource| Member::mutex(path(*resource)));
            let set = MultiLock::new(&session, members).unwrap();
            set.acquire().await.unwrap().into()
        };
        judge.lock().unwrap().take(&resources, &guard);
        if round % 10 == owner % 10 {
            sample(&ensemble, &guard).await;
        }
        tokio::task::yield_now().await;
        judge.lock().unwrap().give_back(&resources);
        guard.release().await.unwrap();
    }
}

/// A client that does not use sets, and acquires plain locks in the order of their paths.
async fn one_by_one(session: &Session, resources: &[usize]) -> LockGuard {
    let mut resources = resources.to_vec();
    resources.sort_unstable();
    let mut guards = Vec::<LockGuard>::new();
    for resource in resources {
        let lock = InterProcessMutex::new(session, &path(resource)).unwrap();
        guards.push(lock.acquire().await.unwrap().into());
    }
    let mut guards = guards.into_iter();
    guards.next().unwrap().join(guards)
}

on_every_ensemble!(
    overlapping_sets_of_sixteen_owners_never_overlap_and_never_lock_up,
    sets_that_share_one_path_are_served_first_come_first_served,
);

async fn overlapping_sets_of_sixteen_owners_never_overlap_and_never_lock_up(
    ensemble: TestEnsemble,
) {
    // They are created explicitly, so that they are not reaped when empty and the sequences go
    // on.
    for resource in 0..RESOURCES {
        ensemble.create(&path(resource), b"").await;
    }
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(ensemble.session().await);
    }
    let ensemble = Arc::new(ensemble);
    let judge = Arc::new(Mutex::new(Judge::default()));
    let owners = (0..OWNERS).map(|owner| {
        let session = sessions[owner % sessions.len()].clone();
        tokio::spawn(contend(
            Arc::clone(&ensemble),
            session,
            owner,
            Arc::clone(&judge),
        ))
    });
    let all = join_all(owners.collect::<Vec<_>>());
    let done = tokio::time::timeout(PATIENCE, all).await;
    let done = done.unwrap_or_else(|_| panic!("locked up: {:?}", judge.lock().unwrap().taken));
    done.into_iter().for_each(Result::unwrap);
    for resource in 0..RESOURCES {
        let granted = &judge.lock().unwrap().granted[resource];
        assert!(
            granted.windows(2).all(|pair| pair[0] < pair[1]),
            "not first come first served"
        );
    }
    for resource in 0..RESOURCES {
        ensemble.await_children(&path(resource), 0).await;
    }
}

/// Two sets that conflict on only one path are granted in the order of their nodes there.
async fn sets_that_share_one_path_are_served_first_come_first_served(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let shared = InterProcessMutex::new(&session, &path(0)).unwrap();
    let held = shared.acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut owners = Vec::new();
    for owner in 1..6 {
        let members = [Member::mutex(path(0)), Member::mutex(path(owner))];
        let set = MultiLock::new(&session, members).unwrap();
        let order = Arc::clone(&order);
        owners.push(tokio::spawn(async move {
            let guard = set.acquire().await.unwrap();
            order.lock().unwrap().push(owner);
            guard.release().await.unwrap();
        }));
        ensemble.await_children(&path(0), owner + 1).await;
    }
    held.release().await.unwrap();
    join_all(owners).await.into_iter().for_each(Result::unwrap);
    assert_eq!(*order.lock().unwrap(), [1, 2, 3, 4, 5]);
}
