//! Faults of the lock and the watches of zookeeper-client 0.11.

use std::pin::pin;
use std::time::Duration;

use futures::poll;
use lock_recipes::LostReason;
use test_rig::{Cut, Direction, Fault, FaultProxy, Opcode, ZooKeeperServer};
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::{
    Acls, AddWatchMode, Client, CreateMode, Error, EventType, LockClient, LockPrefix, SessionState,
};

use super::{MOMENT, OURS, THEIRS, client, client_through, mutex, proxy, session_through, soon};

/// The client learns of the end of its session two fifths of this after the server has ended it. A busy machine may be
/// late by less.
const SHORT: Duration = Duration::from_secs(15);

/// The lock that the client's documentation describes as compatible with Curator.
async fn lock(client: &Client) -> Result<LockClient<'_>, zookeeper_client::Error> {
    let prefix = LockPrefix::new_curator(THEIRS, "lock-").unwrap();
    client.lock(prefix, b"", Acls::anyone_all()).await
}

/// Has an acquire wait behind one node. It is dropped only when it knows its own node, which it then deletes. An error
/// if it is granted.
async fn stays_blocked(client: &Client) -> Result<(), String> {
    let mut acquire = pin!(lock(client));
    let waits = async {
        // The answers to a client come in order: that to its create before the list that shows its node.
        while client.list_children(THEIRS).await.unwrap().len() < 2 {
            sleep(Duration::from_millis(5)).await;
        }
        sleep(MOMENT).await;
    };
    tokio::select! {
        biased;
        granted = &mut acquire => Err(format!("{granted:?}")),
        () = waits => Ok(()),
    }
}

/// Its clean-up deletes the name of the node without the parent's path, which is not a valid path.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_acquire_leaves_its_node_where_ours_leaves_none() {
    let ensemble = test_rig::own::on_a_real_server().await;
    for path in [THEIRS, OURS] {
        ensemble.create(path, b"").await;
    }

    let (dropping, next) = (client(&ensemble).await, client(&ensemble).await);
    {
        let mut acquire = pin!(lock(&dropping));
        assert!(poll!(&mut acquire).is_pending(), "the create is in flight");
    }
    let left = ensemble.await_children(THEIRS, 1).await;
    assert_eq!(stays_blocked(&next).await, Ok(()));
    // The next one's own node is deleted, because it was dropped after its create had been
    // answered.
    assert_eq!(ensemble.await_children(THEIRS, 1).await, left);
    // Only the end of the session frees the lock.
    drop(dropping);
    drop(lock(&next).await.unwrap());

    let (dropping, next) = (ensemble.session().await, ensemble.session().await);
    {
        let dropping = mutex(&dropping, OURS);
        let mut acquire = pin!(dropping.acquire());
        assert!(poll!(&mut acquire).is_pending(), "the create is in flight");
    }
    let watcher = client(&ensemble).await;
    let created_and_deleted = async || {
        let stat = watcher.check_stat(OURS).await.unwrap().unwrap();
        (stat.cversion == 2 && stat.num_children == 0).then_some(())
    };
    ensemble
        .until("a node made and deleted", created_and_deleted)
        .await;
    let granted = soon(mutex(&next, OURS).acquire()).await.unwrap();
    granted.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_clone_releases_the_lock_where_our_guards_are_counted() {
    let ensemble = test_rig::own::on_a_real_server().await;
    ensemble.create(THEIRS, b"").await;

    let (holding, next) = (client(&ensemble).await, client(&ensemble).await);
    let held = lock(&holding).await.unwrap().into_owned();
    drop(held.clone());
    let granted = lock(&next).await.unwrap();
    // The owner of the original is not notified. It still names a node that is gone.
    assert_ne!(held.lock_path(), granted.lock_path());
    assert!(ensemble.read(held.lock_path()).await.is_none());

    let (holding, next) = (ensemble.session().await, ensemble.session().await);
    let held = mutex(&holding, OURS).acquire().await.unwrap();
    held.reenter().unwrap().release().await.unwrap();
    assert_eq!(held.hold_count(), 1);
    assert!(mutex(&next, OURS).try_acquire().await.unwrap().is_none());
    held.verify().await.unwrap();
}

/// After a reconnect the client sets its one-shot watches again, and leaves out the persistent
/// ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn persistent_watch_is_silent_after_a_reconnect_where_ours_are_heard() {
    let ensemble = test_rig::own::on_a_real_server().await;
    for path in [THEIRS, "/witness"] {
        ensemble.create(path, b"").await;
    }
    let watching = Client::connector()
        .with_session_timeout(Duration::from_secs(40))
        .connect(&super::server(&ensemble).connect_string())
        .await
        .unwrap();
    let mut watch = watching
        .watch(THEIRS, AddWatchMode::Persistent)
        .await
        .unwrap();
    ensemble.set(THEIRS, b"before").await;
    assert_eq!(watch.changed().await.event_type, EventType::NodeDataChanged);
    let (_, _, witness) = watching.get_and_watch_data("/witness").await.unwrap();
    let (holding, waiting) = (ensemble.session().await, ensemble.session().await);
    let held = mutex(&holding, OURS).acquire().await.unwrap();
    let waiter = mutex(&waiting, OURS);
    let waiter = tokio::spawn(waiter.acquire());
    ensemble.await_children(OURS, 2).await;

    ensemble.stop().await;
    ensemble.start_again().await;
    while watch.changed().await.session_state != SessionState::SyncConnected {}
    // This follows the request in which the client sets its watches again.
    watching.get_data(THEIRS).await.unwrap();
    ensemble.set(THEIRS, b"after").await;
    ensemble.set("/witness", b"after").await;
    assert_eq!(
        witness.changed().await.event_type,
        EventType::NodeDataChanged
    );
    // The server reports changes in their order, so the other one would be here by now.
    let told = pin!(watch.changed());
    assert!(poll!(told).is_pending());

    // First the holder's watch on its own node, then the waiter's on the holder's.
    ensemble.delete(&held.members()[0].node_path).await;
    assert_eq!(soon(held.lost()).await.reason, LostReason::NodeRemoved);
    soon(waiter)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_eq!((holding.epoch(), waiting.epoch()), (1, 1));
}

/// A lost connection has three errors, and the client's own retries know only one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn create_without_a_reply_is_an_error_and_a_node_where_ours_is_found_again() {
    let ensemble = test_rig::own::on_a_real_server().await;
    for path in [THEIRS, OURS] {
        ensemble.create(path, b"").await;
    }
    let lost = async |fault| {
        let proxy = proxy(&ensemble).await;
        let reply = proxy.on(Direction::FromServer).opcode(Opcode::Create);
        drop(reply.then(fault));
        proxy
    };

    let known = lost(Fault::CutBefore(Cut::Fin)).await;
    drop(lock(&client_through(&known, SHORT).await).await.unwrap());
    ensemble.await_children(THEIRS, 0).await;
    for fault in [Fault::CutBefore(Cut::Reset), Fault::BlackHole] {
        let proxy = lost(fault).await;
        let acquiring = client_through(&proxy, SHORT).await;
        let error = lock(&acquiring).await.unwrap_err();
        assert!(
            !matches!(error, Error::ConnectionLoss),
            "{fault:?}: {error}"
        );
        let left = ensemble.await_children(THEIRS, 1).await;
        // The client is connected again, and its node blocks all other contenders.
        acquiring.list_children(THEIRS).await.unwrap();
        let next = client(&ensemble).await;
        assert_eq!(stays_blocked(&next).await, Ok(()), "{fault:?}");
        assert_eq!(ensemble.await_children(THEIRS, 1).await, left, "{fault:?}");
        drop(acquiring);
        ensemble.await_children(THEIRS, 0).await;
    }

    for fault in [
        Fault::CutBefore(Cut::Fin),
        Fault::CutBefore(Cut::Reset),
        Fault::BlackHole,
    ] {
        let proxy = lost(fault).await;
        let session = session_through(&proxy, SHORT).await;
        let held = soon(mutex(&session, OURS).acquire()).await.unwrap();
        assert_eq!(ensemble.children(OURS).await.len(), 1, "{fault:?}");
        held.release().await.unwrap();
        ensemble.await_children(OURS, 0).await;
    }
}

/// It waits for seven fifths of the session timeout, and for the connection attempt in progress.
/// That made two holders for 3 s, measured with sessions of 4 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expiry_is_told_after_the_next_one_got_in_where_ours_is_told_before() {
    let ensemble = test_rig::own::on_a_real_server().await;
    ensemble.create(THEIRS, b"").await;
    let (their_proxy, our_proxy) = (proxy(&ensemble).await, proxy(&ensemble).await);
    let holding = client_through(&their_proxy, SHORT).await;
    let _held = lock(&holding).await.unwrap();
    let next = client(&ensemble).await;
    let next = tokio::spawn(async move {
        drop(lock(&next).await.unwrap());
        Instant::now()
    });
    let ours = session_through(&our_proxy, SHORT).await;
    let held = mutex(&ours, OURS).acquire().await.unwrap();
    let our_next = ensemble.session().await;
    let our_next = mutex(&our_next, OURS);
    let our_next = tokio::spawn(async move {
        our_next.acquire().await.unwrap().release().await.unwrap();
        Instant::now()
    });
    for path in [THEIRS, OURS] {
        ensemble.await_children(path, 2).await;
    }

    for proxy in [&their_proxy, &our_proxy] {
        proxy.black_hole(Direction::ToServer);
        proxy.black_hole(Direction::FromServer);
    }
    let told = async {
        let mut state = holding.state_watcher();
        while state.changed().await != SessionState::Expired {}
        Instant::now()
    };
    let lost = async {
        held.lost().await;
        Instant::now()
    };
    let (told, lost) = soon(futures::future::join(told, lost)).await;
    let (next, our_next) = (soon(next).await.unwrap(), soon(our_next).await.unwrap());
    eprintln!(
        "DBG two holders {:?}; ours {:?} before",
        told - next,
        our_next - lost
    );
    assert!(told > next, "{:?} too early", next - told);
    assert!(lost < our_next, "{:?} too late", lost - our_next);
}

/// It searches for its node on its present server, without a `sync`. Here the create is still in
/// flight when it does: the leader waits for another server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn search_without_a_sync_makes_a_second_node_where_ours_finds_the_first() {
    // The third server has no vote, so it may serve while the other two do not agree.
    let mut builder = ZooKeeperServer::builder()
        .config("group.1", "1:2:3")
        .config("syncLimit", "200");
    for (server, weight) in [("1", "1"), ("2", "1"), ("3", "0")] {
        builder = builder.config(format!("weight.{server}"), weight);
    }
    let ensemble = builder.start_ensemble(3).await.unwrap();
    let leader = ensemble.leader().await.unwrap();
    let (voter, bystander) = (ensemble.server(1 - leader), ensemble.server(2));
    let leader = ensemble.server(leader);
    let operator = bystander.client().await.unwrap();
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    operator.mkdir(THEIRS, &open).await.unwrap();
    operator.mkdir(OURS, &open).await.unwrap();
    let mut proxies = Vec::new();
    for _ in 0..2 {
        let upstream = leader.connect_string();
        proxies.push(FaultProxy::start(&upstream).await.unwrap());
    }
    let (their_proxy, our_proxy) = (&proxies[0], &proxies[1]);
    let long = Duration::from_secs(40);
    let theirs = client_through(their_proxy, long).await;
    let session = session_through(our_proxy, long).await;

    voter.pause().unwrap();
    let (acquiring, ours) = (theirs.clone(), mutex(&session, OURS));
    let mut acquiring = tokio::spawn(async move { lock(&acquiring).await.map(drop) });
    let ours = tokio::spawn(ours.acquire());
    for proxy in &proxies {
        let create = proxy.on(Direction::ToServer).opcode(Opcode::Create);
        soon(create.seen()).await;
    }
    // Later requests cannot overtake them.
    soon(async {
        while outstanding_requests(leader).await < 2 {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    for proxy in &proxies {
        proxy.retarget(&bystander.connect_string());
        proxy.cut_all(Cut::Fin);
    }
    let again = their_proxy.on(Direction::ToServer).opcode(Opcode::Create);
    soon(again.nth(2).seen()).await;
    // Our lock has something committed before it searches.
    let commit = our_proxy.on(Direction::ToServer).opcode(Opcode::Multi);
    soon(commit.seen()).await;
    voter.resume().unwrap();

    let blocked = timeout(MOMENT * 2, &mut acquiring).await;
    assert!(blocked.is_err(), "it waits for itself: {blocked:?}");
    operator.sync(THEIRS).await.unwrap();
    assert_eq!(operator.list_children(THEIRS).await.unwrap().len(), 2);
    let held = soon(ours).await.unwrap().unwrap();
    operator.sync(OURS).await.unwrap();
    assert_eq!(operator.list_children(OURS).await.unwrap().len(), 1);
    held.release().await.unwrap();
    acquiring.abort();
}

/// Requests that the server has accepted and not answered.
async fn outstanding_requests(server: &ZooKeeperServer) -> u64 {
    let report = server.four_letter("mntr").await.unwrap();
    let outstanding = report
        .lines()
        .find_map(|line| line.strip_prefix("zk_outstanding_requests"));
    outstanding.unwrap().trim().parse().unwrap()
}
