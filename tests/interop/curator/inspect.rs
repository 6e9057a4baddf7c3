//! Inspection of locks that our contenders and Curator's share.

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;

use lock_recipes::{
    Basis, InterProcessMutex, InterProcessReadWriteLock, LockKind, Owner, Party, Standing,
    WaitForGraph, inspect, scan,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::{PATH, PATIENCE, Stage};

/// Contenders of both kinds. Each reports when it is granted, and holds until it is notified to
/// release.
struct Crowd {
    granted: mpsc::UnboundedSender<String>,
    told: mpsc::UnboundedReceiver<String>,
    release: Vec<(String, oneshot::Sender<()>)>,
}

impl Crowd {
    fn new() -> Self {
        let (granted, told) = mpsc::unbounded_channel();
        let release = Vec::new();
        Self {
            granted,
            told,
            release,
        }
    }

    /// Puts one of our contenders into the queue. `acquire` gives its node, and the release.
    async fn ours<G: Send + 'static, R: Future<Output = ()> + Send>(
        &mut self,
        stage: &Stage,
        path: &str,
        acquire: impl Future<Output = (String, G)> + Send + 'static,
        release: impl FnOnce(G) -> R + Send + 'static,
    ) {
        let (granted, (goes, go)) = (self.granted.clone(), oneshot::channel());
        let contender = async move {
            let (node, guard) = acquire.await;
            granted.send(node).unwrap();
            go.await.unwrap();
            release(guard).await;
        };
        let before = stage.ensemble.children(path).await;
        drop(tokio::spawn(contender));
        self.note(stage, path, &before, goes).await;
    }

    /// Notes the node of a new contender.
    async fn note(
        &mut self,
        stage: &Stage,
        path: &str,
        before: &[String],
        goes: oneshot::Sender<()>,
    ) {
        let after = stage.ensemble.await_children(path, before.len() + 1).await;
        let name = after.iter().find(|it| !before.contains(it)).unwrap();
        self.release.push((format!("{path}/{name}"), goes));
    }

    /// Puts a thread of Curator into the queue.
    async fn theirs(&mut self, stage: &Arc<Stage>, path: &str, thread: &str, lock: &str) {
        let (granted, (goes, go)) = (self.granted.clone(), oneshot::channel());
        let (thread, lock) = (thread.to_owned(), lock.to_owned());
        let before = stage.ensemble.children(path).await;
        let peer = Arc::clone(stage);
        drop(tokio::spawn(async move {
            let curator = &peer.curator;
            assert!(curator.acquire(&thread, &lock, None).await.unwrap());
            let node = curator.lock_path(&thread, &lock).await.unwrap().unwrap();
            granted.send(node).unwrap();
            go.await.unwrap();
            curator.release(&thread, &lock).await.unwrap();
        }));
        self.note(stage, path, &before, goes).await;
    }

    /// Releases the holders, again and again, and compares each grant with the contender that was
    /// shown as the next. Returns how many rounds it took until no contender was left.
    async fn drain(mut self, stage: &Stage, path: &str) -> usize {
        let mut rounds = 0;
        while !self.release.is_empty() {
            rounds += 1;
            let seen = inspect(&stage.ours, path).await.unwrap();
            let holders: BTreeSet<_> = seen
                .holders()
                .map(|it| it.participant.path.clone())
                .collect();
            assert!(!holders.is_empty(), "{seen:?}");
            let mut granted = BTreeSet::new();
            while granted.len() < holders.len() {
                let told = timeout(PATIENCE, self.told.recv()).await;
                granted.insert(told.unwrap().unwrap());
            }
            assert_eq!(granted, holders, "{seen:?}");
            assert!(self.told.try_recv().is_err(), "granted beside {holders:?}");
            let (go, stay): (Vec<_>, Vec<_>) = self
                .release
                .drain(..)
                .partition(|(node, _)| holders.contains(node));
            self.release = stay;
            let left = seen.contenders.len() - go.len();
            go.into_iter().for_each(|(_, go)| go.send(()).unwrap());
            stage.ensemble.await_children(path, left).await;
        }
        rounds
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutex_is_granted_in_the_order_that_was_shown() {
    let stage = Arc::new(Stage::set_up().await);
    stage
        .ensemble
        .create(&format!("{PATH}/zstranger"), b"")
        .await;
    let mut crowd = Crowd::new();
    for round in 0..4 {
        let lock = stage.mutex();
        let acquire = async move {
            let guard = lock.acquire().await.unwrap();
            (guard.members()[0].node_path.clone(), guard)
        };
        let release = async |guard: lock_recipes::MutexGuard| {
            guard.release().await.unwrap();
        };
        crowd.ours(&stage, PATH, acquire, release).await;
        crowd.theirs(&stage, PATH, &format!("t{round}"), "m").await;
    }
    let seen = inspect(&stage.ours, PATH).await.unwrap();
    let shown: Vec<_> = seen
        .contenders
        .iter()
        .map(|it| it.participant.path.clone())
        .collect();
    let queued: Vec<_> = crowd.release.iter().map(|(node, _)| node.clone()).collect();
    assert_eq!(shown[..8], queued[..]);
    assert_eq!(seen.contenders[8].standing, Standing::Stranger);
    // Curator's data is an address, which must not be taken for a record.
    assert!(seen.contenders[0].participant.identity().is_some());
    let theirs = &seen.contenders[1].participant;
    assert_eq!(
        (theirs.identity(), theirs.revocation_requested()),
        (None, false)
    );
    assert!(!theirs.data.is_empty());
    assert_eq!(crowd.drain(&stage, PATH).await, 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_writers_are_granted_as_was_shown() {
    const SETTINGS: &str = "/locks/settings";
    let stage = Arc::new(Stage::set_up().await);
    stage
        .curator
        .read_write_lock("rw", "c", SETTINGS)
        .await
        .unwrap();
    let lock = InterProcessReadWriteLock::new(&stage.ours, SETTINGS).unwrap();
    let mut crowd = Crowd::new();
    // r R w r W R r w, with ours in small letters: four groups of readers, four writers.
    for (index, kind) in ["r", "R", "w", "r", "W", "R", "r", "w"].iter().enumerate() {
        let lock = lock.clone();
        match *kind {
            "r" => {
                let acquire = async move {
                    let guard = lock.read().await.unwrap();
                    (guard.members()[0].node_path.clone(), guard)
                };
                let release = async |guard: lock_recipes::ReadGuard| {
                    guard.release().await.unwrap();
                };
                crowd.ours(&stage, SETTINGS, acquire, release).await;
            }
            "w" => {
                let acquire = async move {
                    let guard = lock.write().await.unwrap();
                    (guard.members()[0].node_path.clone(), guard)
                };
                let release = async |guard: lock_recipes::WriteGuard| {
                    guard.release().await.unwrap();
                };
                crowd.ours(&stage, SETTINGS, acquire, release).await;
            }
            "R" => {
                crowd
                    .theirs(&stage, SETTINGS, &format!("t{index}"), "rw.read")
                    .await
            }
            _ => {
                crowd
                    .theirs(&stage, SETTINGS, &format!("t{index}"), "rw.write")
                    .await
            }
        }
    }
    let seen = inspect(&stage.ours, SETTINGS).await.unwrap();
    let modes: Vec<_> = seen.contenders.iter().map(|it| it.mode.unwrap()).collect();
    let (read, write) = (LockKind::Read, LockKind::Write);
    assert_eq!(modes, [read, read, write, read, write, read, read, write]);
    assert_eq!(crowd.drain(&stage, SETTINGS).await, 6);
}

/// Two of our contenders and one of Curator's. Each holds one of three locks and wants the next.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadlock_of_three_over_three_locks_is_found_and_named() {
    let stage = Stage::set_up().await;
    let other = stage.ensemble.session().await;
    let (first, second) = (Owner::new(), Owner::new());
    let lock =
        |session, name: &str| InterProcessMutex::new(session, &format!("/dead/{name}")).unwrap();
    for (name, path) in [("la", "/dead/a"), ("lc", "/dead/c")] {
        stage.curator.mutex(name, "c", path).await.unwrap();
    }
    let held_a = lock(&stage.ours, "a")
        .acquire()
        .owner(&first)
        .await
        .unwrap();
    let held_b = lock(&other, "b").acquire().owner(&second).await.unwrap();
    assert!(stage.curator.acquire("t", "lc", None).await.unwrap());
    let (b, c) = (lock(&stage.ours, "b"), lock(&other, "c"));
    let (owner_one, owner_two) = (first.clone(), second.clone());
    let wants_b = tokio::spawn(b.acquire().owner(&owner_one));
    stage.ensemble.await_children("/dead/b", 2).await;
    let wants_c = tokio::spawn(c.acquire().owner(&owner_two));
    stage.ensemble.await_children("/dead/c", 2).await;
    let cycles = async || {
        let seen = scan(&stage.ours, "/").await.unwrap();
        WaitForGraph::of(&seen.locks).cycles()
    };
    assert!(cycles().await.is_empty());
    let wants_a = stage.curator.acquire("t", "la", None);
    stage.ensemble.await_children("/dead/a", 2).await;

    let found = cycles().await;
    let [cycle] = &found[..] else {
        panic!("{found:?}")
    };
    let theirs = Party::Session(stage.curator.session("c").await.unwrap());
    let party = |owner: &Owner, session: &lock_recipes::Session| Party::Owner {
        id: owner.id(),
        session_id: session.session_id().unwrap(),
    };
    let (first, second) = (party(&first, &stage.ours), party(&second, &other));
    let told: Vec<_> = cycle
        .iter()
        .map(|it| (it.lock.as_str(), &it.waiter, &it.holder, it.basis))
        .collect();
    assert_eq!(
        told,
        [
            ("/dead/a", &theirs, &first, Basis::Session),
            ("/dead/b", &first, &second, Basis::Owner),
            ("/dead/c", &second, &theirs, Basis::Session),
        ]
    );

    // One of them releases, and all go on.
    held_a.release().await.unwrap();
    assert!(wants_a.await.unwrap());
    assert!(cycles().await.is_empty());
    stage.curator.release("t", "la").await.unwrap();
    stage.curator.release("t", "lc").await.unwrap();
    wants_c.await.unwrap().unwrap().release().await.unwrap();
    held_b.release().await.unwrap();
    wants_b.await.unwrap().unwrap().release().await.unwrap();
}
