//! Several hosts in one URL, as of a primary and its standby.

use std::time::Duration;

use lock_recipes::{InterProcessMutex, Postgres, Session};
use test_rig::{Direction, FaultProxy, PostgresServer};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use super::PATIENCE;

/// Silence is noticed after a quarter of it, and a guard is valid for half of it.
const SESSION_TIMEOUT: Duration = Duration::from_secs(60);

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, "/locks/orders").unwrap()
}

/// As one whose machine is halted: it takes the connection, and says nothing.
#[tokio::test]
async fn host_that_is_silent_is_passed_over_on_postgres() {
    let server = PostgresServer::start().await.unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let hosts = [
        silent.local_addr().unwrap().to_string(),
        format!("127.0.0.1:{}", server.port()),
    ];
    let url = server.url_at(&hosts.join(","));
    let builder = Postgres::builder().connect_timeout(PATIENCE);
    let session = builder.new_server().connect(&url).await.unwrap();
    let guard = mutex(&session).acquire().await.unwrap();
    // So does who only reads.
    let reads = Postgres::builder().connect_timeout(PATIENCE);
    let reads = reads.read_only(true).connect(&url).await.unwrap();
    let read = lock_recipes::inspect(&reads, "/locks/orders").await;
    assert_eq!(read.unwrap().contenders.len(), 1);
    guard.release().await.unwrap();
}

/// Wherever the primary stands in the URL.
#[tokio::test]
async fn replica_that_comes_first_is_passed_over_on_postgres() {
    let primary = PostgresServer::start().await.unwrap();
    let replica = PostgresServer::builder().replica_of(&primary);
    let replica = replica.start().await.unwrap();
    let hosts = [&replica, &primary].map(|it| format!("127.0.0.1:{}", it.port()));
    let builder = Postgres::builder().connect_timeout(PATIENCE);
    let connected = builder
        .new_server()
        .connect(&primary.url_at(&hosts.join(",")))
        .await;
    let guard = mutex(&connected.unwrap()).acquire().await.unwrap();
    guard.release().await.unwrap();
}

/// The other one may be a standby that has been promoted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_whose_host_falls_silent_keeps_its_lock_at_the_next_on_postgres() {
    let server = PostgresServer::start().await.unwrap();
    let upstream = format!("127.0.0.1:{}", server.port());
    let first = FaultProxy::start_for_postgres(&upstream).await.unwrap();
    let next = FaultProxy::start_for_postgres(&upstream).await.unwrap();
    let hosts = [first.connect_string(), next.connect_string()];
    let builder = Postgres::builder().session_timeout(SESSION_TIMEOUT);
    let builder = builder.connect_timeout(PATIENCE).new_server();
    let connected = builder.connect(&server.url_at(&hosts.join(","))).await;
    let session = connected.unwrap();
    let guard = mutex(&session).acquire().await.unwrap();
    assert!(next.log().is_empty());
    first.black_hole(Direction::ToServer);
    first.black_hole(Direction::FromServer);
    let verified = async {
        while guard.verify().await.is_err() {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, verified).await.unwrap();
    assert!(guard.is_valid());
    assert_eq!(session.epoch(), 1);
    assert!(!next.log().is_empty());
    guard.release().await.unwrap();
}
