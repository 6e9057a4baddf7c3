//! What an acquire and a release cost a server of etcd, as it counts them.

use std::time::Duration;

use lock_recipes::{Etcd, InterProcessMutex, Session};
use test_rig::EtcdServer;
use tokio::time::Instant;

/// No heartbeat is due which would be counted.
const SESSION: Duration = Duration::from_secs(1200);
const TIMES: u32 = 20;
/// A session watches the node of a lock that it has held for longer.
const OWN_WATCH_GRACE: Duration = Duration::from_millis(250);

async fn session(server: &EtcdServer) -> Session {
    let options = Etcd::builder().session_timeout(SESSION);
    options.connect(&server.url()).await.unwrap()
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
    // Again if the machine had no time for it.
    loop {
        let session = session(&server).await;
        let lock = InterProcessMutex::new(&session, "/locks/orders").unwrap();
        lock.acquire().await.unwrap().release().await.unwrap();
        let (before, mut longest) = (counted(&server).await, Duration::ZERO);
        for _ in 0..TIMES {
            let begun = Instant::now();
            lock.acquire().await.unwrap().release().await.unwrap();
            longest = longest.max(begun.elapsed());
        }
        let [requests, messages] = counted(&server).await;
        session.close().await;
        if longest < OWN_WATCH_GRACE {
            assert_eq!(requests - before[0], 2 * TIMES);
            assert_eq!(messages, before[1]);
            return;
        }
    }
}
