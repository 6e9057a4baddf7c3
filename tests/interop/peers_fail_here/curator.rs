//! Faults of the recipes of Curator 5.4, and which of them later releases have.

use std::pin::pin;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{StreamExt, poll};
use lock_recipes::{
    AcquireError, Error, InterProcessReadWriteLock, Owner, ReleaseError, SessionHealth, ZooKeeper,
};
use test_rig::{CuratorPeer, Cut, Direction, Fault, FaultProxy, Opcode, TestEnsemble};
use tokio::time::timeout;
use zookeeper_client::{Acls, CreateMode};

use super::{
    MOMENT, OURS, PATIENCE, THEIRS, before_the_dead_session_ends, client, mutex, proxy, server,
    session_through, soon,
};
use crate::is_older_than;

pub(super) const SESSION_TIMEOUT: Duration = Duration::from_secs(20);
/// Curator gives up a session after four thirds of it.
pub(super) const SHORT: Duration = Duration::from_secs(10);

/// Curator with a client named `c`, through a proxy, and another named `d`. The first has the mutex
/// `m` and the pair `m.read` and `m.write`. The other has those of `n`. All are on one path.
pub(super) struct Stage {
    pub(super) ensemble: TestEnsemble,
    pub(super) curator: CuratorPeer,
    pub(super) proxy: FaultProxy,
}

impl Stage {
    pub(super) async fn set_up(session_timeout: Duration, patience: Duration) -> Self {
        let ensemble = test_rig::own::on_a_real_server().await;
        let proxy = proxy(&ensemble).await;
        let curator = CuratorPeer::start().await.unwrap();
        let direct = server(&ensemble).connect_string();
        for (client, lock, connect_string) in
            [("c", "m", proxy.connect_string()), ("d", "n", direct)]
        {
            let opened =
                curator.open_with_patience(client, &connect_string, session_timeout, patience);
            opened.await.unwrap();
            curator.mutex(lock, client, THEIRS).await.unwrap();
            curator.read_write_lock(lock, client, THEIRS).await.unwrap();
        }
        Self {
            ensemble,
            curator,
            proxy,
        }
    }

    pub(super) async fn await_state(&self, wanted: &str) {
        let told = async || (self.curator.state("c").await.unwrap() == wanted).then_some(());
        self.ensemble.until(wanted, told).await;
    }
}

/// D2: the lock object is not notified of what its client knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_is_not_told_of_its_loss_where_ours_is() {
    let stage = Stage::set_up(SESSION_TIMEOUT, PATIENCE).await;
    let (ensemble, curator) = (&stage.ensemble, &stage.curator);
    assert!(curator.acquire("t", "m", None).await.unwrap());
    let next = curator.acquire("u", "n", Some(PATIENCE));
    ensemble.await_children(THEIRS, 2).await;

    let session = curator.session("c").await.unwrap();
    server(ensemble).expire(session).await.unwrap();
    assert!(next.await.unwrap());
    // The client has noticed.
    stage.await_state("RECONNECTED").await;
    for lock in ["m", "n"] {
        assert!(curator.held(lock).await.unwrap(), "two holders");
    }
    let reentered = curator.acquire("t", "m", Some(Duration::ZERO));
    assert!(reentered.await.unwrap());
    for _ in 0..2 {
        curator.release("t", "m").await.unwrap();
    }

    let (holding, waiting) = (ensemble.session().await, ensemble.session().await);
    let owner = Owner::new();
    let held = mutex(&holding, OURS).acquire().owner(&owner).await.unwrap();
    let waiter = mutex(&waiting, OURS);
    let waiter = tokio::spawn(waiter.acquire());
    ensemble.await_children(OURS, 2).await;
    ensemble.expire(&holding).await;
    soon(held.lost()).await;
    assert!(!held.is_valid());
    let again = mutex(&holding, OURS)
        .acquire()
        .owner(&owner)
        .await
        .unwrap_err();
    assert!(
        matches!(again, Error::Acquire(AcquireError::Lost(_))),
        "{again}"
    );
    let released = held.release().await.unwrap_err();
    assert!(
        matches!(released, Error::Release(ReleaseError::Lost(_))),
        "{released}"
    );
    soon(waiter)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// D1: after an outage that outlasts a session, its client has a new one. The server counts
/// timeouts again from its start, so it still has the old session and its node. If Curator's
/// retries end before the outage does, the waiter fails instead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_is_granted_on_the_node_of_a_dead_session_where_ours_queues_again() {
    before_the_dead_session_ends(async || waiter_is_granted_on_an_old_node().await).await;
}

/// False if the machine was so slow that the server had ended the dead session first.
async fn waiter_is_granted_on_an_old_node() -> bool {
    let stage = Stage::set_up(SHORT, PATIENCE).await;
    let (ensemble, curator) = (&stage.ensemble, &stage.curator);
    let waiting = ensemble
        .session_with(ZooKeeper::builder().session_timeout(SHORT))
        .await;

    // In front of each waiter is a node that survives the outage.
    let operator = client(ensemble).await;
    let mut in_front = Vec::new();
    for path in [THEIRS, OURS] {
        ensemble.create(path, b"").await;
        let prefix = format!("{path}/_c_00000000-0000-4000-8000-000000000000-lock-");
        let options = CreateMode::PersistentSequential.with_acls(Acls::anyone_all());
        let (_, sequence) = operator.create(&prefix, b"", &options).await.unwrap();
        in_front.push(format!("{prefix}{sequence}"));
    }
    let theirs = curator.acquire("t", "m", None);
    let ours = mutex(&waiting, OURS);
    let ours = tokio::spawn(ours.acquire());
    let queue = ensemble.await_children(THEIRS, 2).await;
    let before = ensemble.await_children(OURS, 2).await;
    let dead = curator.session("c").await.unwrap();

    ensemble.stop().await;
    let mut health = waiting.watch_health();
    while waiting.health() != SessionHealth::Connecting {
        health.changed().await;
    }
    stage.await_state("LOST").await;
    // Clients find it soon, and do not wait for a server that starts.
    stage.proxy.refuse_connections().await;
    ensemble.start_again().await;
    stage.proxy.accept_connections().await.unwrap();
    stage.await_state("RECONNECTED").await;
    for node in in_front {
        ensemble.delete(&node).await;
    }

    assert!(theirs.await.unwrap());
    // On the node of its former session, which the server may have deleted meanwhile.
    let node = curator.lock_path("t", "m").await.unwrap().unwrap();
    if !queue.iter().any(|old| node.ends_with(old)) {
        return false;
    }
    assert_ne!(curator.session("c").await.unwrap(), dead);
    // So the next contender is granted as well when the server ends that session.
    let beside = mutex(&ensemble.session().await, THEIRS).acquire().await;
    assert!(curator.held("m").await.unwrap(), "two holders");
    beside.unwrap().release().await.unwrap();

    let granted = soon(ours).await.unwrap().unwrap();
    let own = granted.members()[0].node_path.clone();
    assert!(before.iter().all(|old| !own.ends_with(old)), "{own}");
    let (_, stat) = ensemble.read(&own).await.unwrap();
    assert_eq!(Some(stat.ephemeral_owner), waiting.session_id());
    granted.release().await.unwrap();
    true
}

/// D4, fixed in 5.5.0 (CURATOR-621): the reader queues after the waiting writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn downgrade_lets_a_queued_writer_in_where_ours_keeps_it_out() {
    let stage = Stage::set_up(SESSION_TIMEOUT, PATIENCE).await;
    let (ensemble, curator) = (&stage.ensemble, &stage.curator);
    assert!(curator.acquire("t", "m.write", None).await.unwrap());
    let queued = curator.acquire("u", "n.write", Some(PATIENCE));
    ensemble.await_children(THEIRS, 2).await;
    assert!(curator.acquire("t", "m.read", None).await.unwrap());
    curator.release("t", "m.write").await.unwrap();
    if is_older_than(curator, [5, 5]) {
        assert!(queued.await.unwrap());
        for lock in ["m.read", "n.write"] {
            assert!(curator.held(lock).await.unwrap(), "a reader and a writer");
        }
    } else {
        let mut queued = pin!(queued);
        let early = timeout(MOMENT, &mut queued).await;
        assert!(early.is_err(), "{early:?}");
        assert!(curator.held("m.read").await.unwrap());
        curator.release("t", "m.read").await.unwrap();
        assert!(queued.await.unwrap());
    }

    let (first, second) = (ensemble.session().await, ensemble.session().await);
    let lock = InterProcessReadWriteLock::new(&first, OURS).unwrap();
    let writer = lock.write().await.unwrap();
    let queued = InterProcessReadWriteLock::new(&second, OURS).unwrap();
    let mut queued = tokio::spawn(queued.write());
    ensemble.await_children(OURS, 2).await;
    let reader = writer.downgrade().await.unwrap();
    let early = timeout(MOMENT, &mut queued).await;
    assert!(early.is_err(), "{early:?}");
    reader.verify().await.unwrap();
    reader.release().await.unwrap();
    soon(queued)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// D3: the search after the first loss counts as the end of the create, so no search follows the
/// second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_lost_replies_leak_a_node_where_ours_is_found_again() {
    let stage = Stage::set_up(SESSION_TIMEOUT, PATIENCE).await;
    let (ensemble, curator) = (&stage.ensemble, &stage.curator);
    for path in [THEIRS, OURS] {
        ensemble.create(path, b"").await;
    }
    // The first create does not arrive. The reply to the second does not arrive either.
    let lose = |proxy: &FaultProxy| {
        for direction in [Direction::ToServer, Direction::FromServer] {
            let create = proxy.on(direction).opcode(Opcode::Create);
            drop(create.then(Fault::CutBefore(Cut::Fin)));
        }
    };

    lose(&stage.proxy);
    let error = curator.acquire("t", "m", None).await.unwrap_err();
    // 5.4.0 deletes a node without a path, 5.9.0 looks for its name.
    let of_no_path = ["IllegalArgumentException", "NullPointerException"];
    assert!(
        error.class().is_some_and(|it| of_no_path.contains(&it)),
        "{error}"
    );
    let left = ensemble.await_children(THEIRS, 1).await;
    let stat = curator.stat("d", &format!("{THEIRS}/{}", left[0])).await;
    let owner = stat.unwrap().unwrap().ephemeral_owner;
    assert_eq!(owner, curator.session("c").await.unwrap());
    assert!(!curator.held("m").await.unwrap());
    let blocked = curator.acquire("u", "n", Some(MOMENT));
    assert!(!blocked.await.unwrap());
    // Only the end of the session frees the lock.
    curator.close("c").await.unwrap();
    assert!(curator.acquire("u", "n", Some(PATIENCE)).await.unwrap());

    let proxy = proxy(ensemble).await;
    let session = session_through(&proxy, SESSION_TIMEOUT).await;
    session.read("/").await.unwrap();
    lose(&proxy);
    let held = soon(mutex(&session, OURS).acquire()).await.unwrap();
    assert_eq!(ensemble.children(OURS).await.len(), 1);
    held.release().await.unwrap();
    ensemble.await_children(OURS, 0).await;
}

/// CURATOR-678: the releasing caller gets an error, and the lock then has forgotten the node. That
/// blocks all other contenders until a delete in the background succeeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_that_fails_is_forgotten_where_ours_is_pursued() {
    let stage = Stage::set_up(SESSION_TIMEOUT, MOMENT).await;
    let (ensemble, curator) = (&stage.ensemble, &stage.curator);
    let lose = |proxy: &FaultProxy| {
        let delete = proxy.on(Direction::ToServer).opcode(Opcode::Delete).each();
        delete.then(Fault::CutBefore(Cut::Fin))
    };

    assert!(curator.acquire("t", "m", None).await.unwrap());
    lose(&stage.proxy);
    let error = curator.release("t", "m").await.unwrap_err();
    assert_eq!(error.class(), Some("ConnectionLossException"), "{error}");
    assert!(!curator.held("m").await.unwrap());
    let again = curator.release("t", "m").await.unwrap_err();
    assert_eq!(
        again.class(),
        Some("IllegalMonitorStateException"),
        "{again}"
    );
    let blocked = curator.acquire("u", "n", Some(MOMENT));
    assert!(!blocked.await.unwrap());

    let proxy = proxy(ensemble).await;
    let session = session_through(&proxy, SESSION_TIMEOUT).await;
    let held = mutex(&session, OURS).acquire().await.unwrap();
    let lost = lose(&proxy);
    let mut release = pin!(held.release());
    while lost.count() < 3 {
        assert!(poll!(&mut release).is_pending());
        soon(lost.struck()).await;
        ensemble.let_something_happen().await;
    }
    proxy.clear_rules();
    soon(release).await.unwrap();
    assert!(ensemble.children(OURS).await.is_empty());
}

/// D7: all threads that wait for a lock object share one monitor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_wakes_all_local_waiters_where_ours_wakes_the_next_two() {
    const WAITERS: usize = 8;
    let stage = Stage::set_up(SESSION_TIMEOUT, PATIENCE).await;
    let (ensemble, curator) = (&stage.ensemble, &stage.curator);
    let lists = |proxy: &FaultProxy| {
        let list = proxy.on(Direction::ToServer).opcode(Opcode::GetChildren);
        list.count()
    };

    assert!(curator.acquire("u", "n", None).await.unwrap());
    let waiters: Vec<_> = (0..WAITERS)
        .map(|n| curator.acquire(&format!("t{n}"), "m", None))
        .collect();
    ensemble.await_children(THEIRS, WAITERS + 1).await;
    // All watch their predecessors by then.
    let reads = stage
        .proxy
        .on(Direction::FromServer)
        .opcode(Opcode::GetData);
    soon(reads.path_contains(THEIRS).nth(WAITERS).seen()).await;
    stage.proxy.clear_log();
    curator.release("u", "n").await.unwrap();
    let all = async || (lists(&stage.proxy) >= WAITERS).then_some(());
    ensemble.until("a list of each waiter", all).await;
    drop(waiters);
    // Curator's other threads still wait, and watch.
    for client in ["c", "d"] {
        curator.close(client).await.unwrap();
    }
    ensemble.await_watches(0).await;

    let proxy = proxy(ensemble).await;
    let session = session_through(&proxy, SESSION_TIMEOUT).await;
    let held = mutex(&ensemble.session().await, OURS)
        .acquire()
        .await
        .unwrap();
    let mut waiters: FuturesUnordered<_> = (0..WAITERS)
        .map(|_| {
            let lock = mutex(&session, OURS);
            tokio::spawn(lock.acquire())
        })
        .collect();
    ensemble.await_children(OURS, WAITERS + 1).await;
    // Each watches its own node, and the waiters' session that of the holder.
    ensemble.await_watches(WAITERS + 2).await;
    proxy.clear_log();
    held.release().await.unwrap();
    // The second in the queue knew the two ahead of it when it came, so it need not list.
    let first = soon(waiters.next()).await.unwrap().unwrap().unwrap();
    first.release().await.unwrap();
    let granted = soon(waiters.next()).await.unwrap().unwrap().unwrap();
    let prepared = async || (lists(&proxy) > 0).then_some(());
    ensemble.until("the list of the next one", prepared).await;
    granted.verify().await.unwrap();
    assert_eq!(lists(&proxy), 1, "{:?}", proxy.log());
}
