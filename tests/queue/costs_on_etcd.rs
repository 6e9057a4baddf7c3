//! What an acquire and a release cost a server of etcd, as it counts them.

use std::collections::BTreeSet;
use std::time::Duration;

use etcd_client::{Client, EventType, WatchOptions};
use lock_recipes::{
    Etcd, InterProcessMutex, InterProcessReadWriteLock, InterProcessSemaphore, MutexGuard, Session,
};
use test_rig::{Direction, EtcdServer, FaultProxy};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

/// No heartbeat is due which would be counted.
const SESSION: Duration = Duration::from_secs(1200);
const TIMES: u32 = 20;
/// A session watches the node of a lock that it has held for longer.
const OWN_WATCH_GRACE: Duration = Duration::from_millis(250);

const PATIENCE: Duration = Duration::from_secs(300);

async fn session(server: &EtcdServer) -> Session {
    session_at(&server.url()).await
}

async fn session_at(url: &str) -> Session {
    let options = Etcd::builder().session_timeout(SESSION);
    options.connect(url).await.unwrap()
}

/// Requests so far, and messages of clients about watches.
async fn counted(server: &EtcdServer) -> [u32; 2] {
    let mut requests = 0.0;
    for method in ["Txn", "Range", "Put", "DeleteRange"] {
        let name = format!("grpc_server_started_total{{grpc_method=\"{method}\"");
        requests += server.metric(&name).await.unwrap();
    }
    let messages = "grpc_server_msg_received_total{grpc_method=\"Watch\"";
    let messages = server.metric(messages).await.unwrap();
    [requests, messages].map(|it| format!("{it:.0}").parse().unwrap())
}

#[tokio::test]
async fn nobody_watches_a_node_that_has_nobody_ahead_on_etcd() {
    let server = EtcdServer::start().await.unwrap();
    let session = session(&server).await;
    let lock = InterProcessMutex::new(&session, "/locks/orders").unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    let mut judged = 0;
    while judged < TIMES {
        let before = counted(&server).await;
        let begun = Instant::now();
        lock.acquire().await.unwrap().release().await.unwrap();
        let took = begun.elapsed();
        let [requests, messages] = counted(&server).await;
        // Otherwise the machine has halted the holder for as long.
        if took < OWN_WATCH_GRACE {
            assert_eq!([requests - before[0], messages - before[1]], [2, 0]);
            judged += 1;
        }
    }
}

/// For a listing the member goes through all keys of the directory.
#[tokio::test]
async fn crowd_of_a_session_is_drained_by_the_keys_that_are_left_on_etcd() {
    const EACH: usize = 10;
    let server = EtcdServer::start().await.unwrap();
    let proxy = FaultProxy::start_for_etcd(&server.address()).await.unwrap();
    let others = session(&server).await;
    let crowd = session_at(&format!("etcd://{}", proxy.connect_string())).await;
    let lock = |session| InterProcessMutex::new(session, "/locks/orders").unwrap();
    let held = lock(&others).acquire().await.unwrap();
    let (granted, mut grants) = mpsc::unbounded_channel::<MutexGuard>();
    for waiting in 1..=2 * EACH {
        let session = if waiting % 2 == 0 { &crowd } else { &others };
        let (acquire, granted) = (lock(session).acquire(), granted.clone());
        tokio::spawn(async move { granted.send(acquire.await.unwrap()) });
        while lock(&others).participants().await.unwrap().len() <= waiting {
            tokio::task::yield_now().await;
        }
    }
    proxy.clear_log();
    let mut last = held.fencing_token();
    held.release().await.unwrap();
    for _ in 0..2 * EACH {
        let next = timeout(PATIENCE, grants.recv()).await.unwrap().unwrap();
        assert!(grants.try_recv().is_err(), "two holders");
        assert!(next.fencing_token() > last);
        last = next.fencing_token();
        next.release().await.unwrap();
    }
    let named = |name| proxy.on(Direction::ToServer).named(name).count();
    assert_eq!((named("look"), named("multi delete")), (0, EACH));
}

/// All keys that were ever in a directory in which so many have been deleted.
async fn keys_ever(server: &EtcdServer, below: &str, deleted: usize) -> BTreeSet<Vec<u8>> {
    let client = Client::connect([server.address()], None).await.unwrap();
    let since_ever = WatchOptions::new().with_prefix().with_start_revision(1);
    let mut watch = client.watch_client();
    let mut watch = watch.watch(below, Some(since_ever)).await.unwrap();
    let (mut keys, mut seen) = (BTreeSet::new(), 0);
    while seen < deleted {
        let response = timeout(PATIENCE, watch.message()).await.unwrap();
        for event in response.unwrap().unwrap().events() {
            seen += usize::from(event.event_type() == EventType::Delete);
            keys.insert(event.kv().unwrap().key().to_vec());
        }
    }
    keys
}

/// A member goes through the keys that are gone, too, until the cluster is compacted.
#[tokio::test]
async fn directory_has_no_more_names_than_contenders_on_etcd() {
    let server = EtcdServer::start().await.unwrap();
    let sessions = [session(&server).await, session(&server).await];
    let times = usize::try_from(TIMES).unwrap();
    for _ in 0..TIMES {
        for session in &sessions {
            let mutex = InterProcessMutex::new(session, "/locks/mutex").unwrap();
            mutex.acquire().await.unwrap().release().await.unwrap();
            let lock = InterProcessReadWriteLock::new(session, "/locks/config").unwrap();
            let readers = [lock.read().await.unwrap(), lock.read().await.unwrap()];
            for reader in readers {
                reader.release().await.unwrap();
            }
            lock.write().await.unwrap().release().await.unwrap();
            let permits = InterProcessSemaphore::new(session, "/locks/permits", 3).unwrap();
            permits
                .acquire_many(2)
                .unwrap()
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
        }
    }
    for (below, deleted, names) in [
        ("/locks/mutex/", 2, 2),
        // A reader and a writer have other names.
        ("/locks/config/", 6, 8),
        ("/locks/permits/leases/", 4, 4),
    ] {
        let keys = keys_ever(&server, below, deleted * times).await;
        assert!(keys.len() <= names, "{below}: {}", keys.len());
    }
}
