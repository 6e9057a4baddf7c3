//! What the locks of other languages have in common: scripts that each of them passes with us.

use std::time::Duration;

use futures::future::try_join_all;
use lock_recipes::{InterProcessMutex, LostReason, Session, Standing, inspect};
use test_rig::{ForeignPeer, Grant, GrantKind, Naming, TestEnsemble, check_grants};
use zookeeper_client::Client;

use crate::curator::{PATH, SESSION_TIMEOUT, count, increment, sequence};
use crate::peers_fail_here::{server, soon};

pub(crate) const COUNTER: &str = "/counter";
/// For a process that is killed: its nodes stay until this has passed.
const SHORT: Duration = Duration::from_secs(8);

/// A server, a session of ours and a client of the peer's named `c`.
pub(crate) struct Stage {
    pub(crate) ensemble: TestEnsemble,
    pub(crate) ours: Session,
    pub(crate) peer: ForeignPeer,
    naming: Naming,
}

impl Stage {
    pub(crate) async fn set_up(peer: ForeignPeer, naming: Naming) -> Self {
        Self::with_session(peer, naming, SESSION_TIMEOUT).await
    }

    async fn with_session(peer: ForeignPeer, naming: Naming, session_timeout: Duration) -> Self {
        let ensemble = test_rig::own::on_a_real_server().await;
        // The server would delete a container between two grants, and kazoo does not cope with it.
        ensemble.create(PATH, b"").await;
        let ours = ensemble.session().await;
        let at = server(&ensemble).connect_string();
        peer.open("c", &at, session_timeout).await.unwrap();
        Self {
            ensemble,
            ours,
            peer,
            naming,
        }
    }

    /// Makes a lock of the peer's on the path of ours.
    pub(crate) async fn theirs(&self, lock: &str) {
        let made = self.peer.lock(lock, "c", PATH, self.naming);
        made.await.unwrap();
    }

    pub(crate) fn mutex(&self) -> InterProcessMutex {
        InterProcessMutex::new(&self.ours, PATH).unwrap()
    }
}

/// A counter that no lock guards, at zero, and a client for it.
pub(crate) async fn counter(ensemble: &TestEnsemble) -> Client {
    ensemble.create(COUNTER, b"0").await;
    server(ensemble).client().await.unwrap()
}

/// Does what the peers' threads do: reads the counter under the lock and writes it back plus one.
pub(crate) async fn contend(lock: InterProcessMutex, store: Client, rounds: usize) -> Vec<Grant> {
    let mut grants = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        let guard = lock.acquire().await.unwrap();
        let value = increment(&store, COUNTER).await;
        let sequence = sequence(&guard.members()[0].node_path);
        grants.push(Grant {
            kind: GrantKind::Exclusive,
            value,
            sequence,
        });
        guard.release().await.unwrap();
    }
    grants
}

/// Contenders of both kinds are granted one after the other in the order of their nodes, and are
/// shown in that order.
pub(crate) async fn each_waits_for_the_other(stage: Stage) {
    let Stage { ensemble, peer, .. } = &stage;
    for lock in ["first", "third"] {
        stage.theirs(lock).await;
    }
    let lock = stage.mutex();
    let held = lock.acquire().await.unwrap();
    let first = peer.acquire("t1", "first", None);
    ensemble.await_children(PATH, 2).await;
    let second = tokio::spawn(lock.acquire());
    ensemble.await_children(PATH, 3).await;
    let third = peer.acquire("t3", "third", None);
    ensemble.await_children(PATH, 4).await;

    let participants = lock.participants().await.unwrap();
    let numbers: Vec<_> = participants.iter().map(|it| it.sequence).collect();
    assert_eq!(numbers, [0, 1, 2, 3].map(Some));
    let session = peer.session("c").await.unwrap();
    assert_eq!(participants[1].session_id, session);
    assert_eq!(participants[3].session_id, session);
    let seen = inspect(&stage.ours, PATH).await.unwrap();
    let ahead = |index: usize| Standing::WaitsFor(vec![participants[index].path.clone()]);
    let standings: Vec<_> = seen.contenders.iter().map(|it| &it.standing).collect();
    assert_eq!(
        standings,
        [&Standing::Holds, &ahead(0), &ahead(1), &ahead(2)]
    );

    held.release().await.unwrap();
    assert!(soon(first).await.unwrap());
    let node = peer.lock_path("t1", "first").await.unwrap();
    assert_eq!(node.as_ref(), Some(&participants[1].path));
    assert!(!second.is_finished());
    assert!(lock.try_acquire().await.unwrap().is_none());
    peer.release("t1", "first").await.unwrap();
    let held = soon(second).await.unwrap().unwrap();
    assert_eq!(held.members()[0].node_path, participants[2].path);
    ensemble.await_children(PATH, 2).await;
    assert!(held.verify().await.is_ok());
    held.release().await.unwrap();
    assert!(soon(third).await.unwrap());
    assert!(lock.try_acquire().await.unwrap().is_none());
    peer.release("t3", "third").await.unwrap();
    assert!(ensemble.children(PATH).await.is_empty());
}

/// Eight of ours and eight of theirs over an unguarded counter.
pub(crate) async fn share_one_queue(stage: Stage) {
    const ROUNDS: u32 = 160;
    let store = counter(&stage.ensemble).await;
    let held = stage.mutex().acquire().await.unwrap();
    let load = (ROUNDS, 8);
    let theirs = stage.peer.contend("c", PATH, COUNTER, load, stage.naming);
    let ours = (0..8).map(|_| {
        let rounds = usize::try_from(ROUNDS / 8).unwrap();
        tokio::spawn(contend(stage.mutex(), store.clone(), rounds))
    });
    let ours: Vec<_> = ours.collect();
    stage.ensemble.await_children(PATH, 17).await;
    held.release().await.unwrap();

    let ours = try_join_all(ours).await.unwrap().concat();
    let all = [ours, theirs.await.unwrap()].concat();
    assert_eq!(all.len(), 320);
    check_grants(0, &all).unwrap();
    assert_eq!(count(&store, COUNTER).await, 320);
    assert!(stage.ensemble.children(PATH).await.is_empty());
}

/// A process of the peer's that is killed while it holds leaves the lock to us when its session
/// ends, and ours to it.
pub(crate) async fn lost_locks_pass_from_one_to_the_other(peers: [ForeignPeer; 2], naming: Naming) {
    let [killed, living] = peers;
    let stage = Stage::with_session(killed, naming, SHORT).await;
    stage.theirs("m").await;
    assert!(stage.peer.acquire("t", "m", None).await.unwrap());
    let lock = stage.mutex();
    let waiter = tokio::spawn(lock.acquire());
    stage.ensemble.await_children(PATH, 2).await;
    let (ensemble, ours) = (stage.ensemble, stage.ours);
    stage.peer.kill().await.unwrap();
    let held = soon(waiter).await.unwrap().unwrap();

    let at = server(&ensemble).connect_string();
    living.open("c", &at, SESSION_TIMEOUT).await.unwrap();
    living.lock("m", "c", PATH, naming).await.unwrap();
    let theirs = living.acquire("t", "m", None);
    ensemble.await_children(PATH, 2).await;
    ensemble.expire(&ours).await;
    // It is expired explicitly, so news of the node's deletion may arrive before the end of the
    // session.
    let reason = held.lost().await.reason;
    assert!(
        matches!(reason, LostReason::SessionExpired | LostReason::NodeRemoved),
        "{reason}"
    );
    assert!(soon(theirs).await.unwrap());
    assert!(lock.try_acquire().await.unwrap().is_none());
    living.release("t", "m").await.unwrap();
    living.exit().await.unwrap();
    soon(lock.acquire()).await.unwrap().release().await.unwrap();
}

/// A waiter of ours that gives up leaves the peer's in its place.
pub(crate) async fn waiter_that_gives_up_is_passed(stage: Stage) {
    let Stage { ensemble, peer, .. } = &stage;
    let lock = stage.mutex();
    stage.theirs("m").await;
    let held = lock.acquire().await.unwrap();
    let waiter = tokio::spawn(lock.acquire());
    ensemble.await_children(PATH, 2).await;
    let theirs = peer.acquire("t", "m", None);
    ensemble.await_children(PATH, 3).await;
    waiter.abort();
    ensemble.await_children(PATH, 2).await;
    assert!(held.is_valid());
    held.release().await.unwrap();
    assert!(soon(theirs).await.unwrap());
    peer.release("t", "m").await.unwrap();
}
