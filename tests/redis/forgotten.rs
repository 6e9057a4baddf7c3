//! Nobody is granted a lock that a server has forgotten while its holder may not have noticed. Tokens
//! rise over restarts and promotions.

use std::time::Duration;

use lock_recipes::{Guarantee, Redis, Session};
use test_rig::RedisServer;
use tokio::time::{Instant, timeout};

use super::absent::Absent;
use super::{PATIENCE, mutex, options, session, until, verified};

/// Short, because contenders wait for most of it.
const SESSION_TIMEOUT: Duration = Duration::from_secs(6);

async fn nobody_is_granted_too_early(absent: Absent, url: &str) {
    // It does not know what was before. That the server is new is for it to find out.
    let next = Redis::builder().session_timeout(SESSION_TIMEOUT);
    let session = next.connect(url).await.unwrap();
    grants_nothing_too_early(absent, &session).await;
}

async fn grants_nothing_too_early(absent: Absent, session: &Session) {
    let granted = timeout(PATIENCE, mutex(session).acquire()).await.unwrap();
    let guard = granted.unwrap();
    assert!(Instant::now() > absent.until, "two holders");
    assert!(guard.fencing_token() > absent.token);
    assert!(!absent.believes_after_all());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_has_forgotten_everything_grants_nothing_too_early() {
    let server = RedisServer::builder().setting("appendonly", "no");
    let server = server.start().await.unwrap();
    let absent = Absent::holding(SESSION_TIMEOUT, server.url());
    server.kill().await.unwrap();
    server.start_again().await.unwrap();
    nobody_is_granted_too_early(absent, &server.url()).await;
}

/// That nobody held a lock before the server was started is true once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_that_began_on_a_new_server_does_not_take_it_for_new_again() {
    let server = RedisServer::builder().setting("appendonly", "no");
    let server = server.start().await.unwrap();
    let there = session(&server, SESSION_TIMEOUT).await;
    let absent = Absent::holding(SESSION_TIMEOUT, server.url());
    server.kill().await.unwrap();
    server.start_again().await.unwrap();
    grants_nothing_too_early(absent, &there).await;
}

/// The replica that comes to be the primary has nothing yet, though it runs for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_that_is_promoted_without_anything_grants_nothing_too_early() {
    let primary = RedisServer::start().await.unwrap();
    let replica = RedisServer::builder().replica_of(&primary);
    let replica = replica.start().await.unwrap();
    in_step(&replica).await;
    follow(&replica, 1).await;
    is_old(&replica).await;
    let absent = Absent::holding(SESSION_TIMEOUT, primary.url());
    primary.kill().await.unwrap();
    promote(&replica).await;
    nobody_is_granted_too_early(absent, &replica.url()).await;
}

/// The first primary is promoted again, and its process is the same. It does not know of what was
/// granted meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn primary_that_is_promoted_again_grants_nothing_too_early() {
    let first = RedisServer::start().await.unwrap();
    session(&first, SESSION_TIMEOUT).await.close().await;
    let second = RedisServer::builder().replica_of(&first);
    let second = second.start().await.unwrap();
    in_step(&second).await;
    promote(&second).await;
    follow(&first, second.port()).await;
    in_step(&first).await;
    follow(&first, 1).await;
    let absent = Absent::holding(SESSION_TIMEOUT, second.url());
    second.kill().await.unwrap();
    promote(&first).await;
    nobody_is_granted_too_early(absent, &first.url()).await;
}

/// To whoever comes, a server that runs for long and has nothing looks like one that nobody has used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_is_flushed_grants_nothing_too_early() {
    let server = RedisServer::start().await.unwrap();
    is_old(&server).await;
    let absent = Absent::holding(SESSION_TIMEOUT, server.url());
    let _ok: String = server.command(&["FLUSHALL"]).await.unwrap();
    nobody_is_granted_too_early(absent, &server.url()).await;
}

/// Waits until whoever held a lock before the server was started has noticed.
async fn is_old(server: &RedisServer) {
    until("a server that runs for longer than a session", async || {
        let info: String = server.command(&["INFO", "server"]).await.unwrap();
        let uptime = info
            .lines()
            .find_map(|it| it.strip_prefix("uptime_in_seconds:"));
        let uptime: u64 = uptime.unwrap().parse().unwrap();
        (uptime > SESSION_TIMEOUT.as_secs() + 1).then_some(())
    })
    .await;
}

async fn follow(server: &RedisServer, port: u16) {
    let follow = ["REPLICAOF", "127.0.0.1", &port.to_string()];
    let _ok: String = server.command(&follow).await.unwrap();
}

async fn promote(server: &RedisServer) {
    let promote = ["REPLICAOF", "NO", "ONE"];
    let _ok: String = server.command(&promote).await.unwrap();
}

async fn in_step(replica: &RedisServer) {
    until("a replica in step", async || {
        let info: String = replica.command(&["INFO", "replication"]).await.unwrap();
        info.contains("master_link_status:up").then_some(())
    })
    .await;
}

/// The replica knows the store, but not the last grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_that_is_promoted_without_the_last_writes_grants_nothing_too_early() {
    let primary = RedisServer::start().await.unwrap();
    // Long before, somebody had a lock. That is what the replica knows.
    let before = session(&primary, SESSION_TIMEOUT).await;
    let guard = mutex(&before).acquire().await.unwrap();
    let first = guard.fencing_token();
    guard.release().await.unwrap();
    let replica = RedisServer::builder().replica_of(&primary);
    let replica = replica.start().await.unwrap();
    until("the copy", async || {
        let known: bool = replica.command(&["EXISTS", "{locks}:x"]).await.unwrap();
        known.then_some(())
    })
    .await;
    follow(&replica, 1).await;
    let absent = Absent::holding(SESSION_TIMEOUT, primary.url());
    assert!(absent.token > first);
    primary.kill().await.unwrap();
    promote(&replica).await;
    nobody_is_granted_too_early(absent, &replica.url()).await;
}

/// A server that has kept everything goes on with the same holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_stays_over_a_restart_and_the_next_waits_for_the_quarantine() {
    let server = RedisServer::start().await.unwrap();
    let timeout_of = Duration::from_secs(20);
    let (here, there) = (
        session(&server, timeout_of).await,
        session(&server, timeout_of).await,
    );
    let guard = mutex(&here).acquire().await.unwrap();
    let lock = mutex(&there);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    until("the waiter", async || {
        let contenders = mutex(&here).participants().await.unwrap();
        (contenders.len() == 2).then_some(())
    })
    .await;
    let killed = Instant::now();
    server.kill().await.unwrap();
    server.start_again().await.unwrap();
    verified(&guard).await;
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    let next = timeout(PATIENCE, waiter).await.unwrap().unwrap();
    assert!(killed.elapsed() > timeout_of / 2, "within the quarantine");
    assert!(next.fencing_token() > token);
    assert_eq!((here.epoch(), there.epoch()), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guarantee_is_that_of_the_server() {
    let cases = [
        ("yes", "always", Guarantee::OneCopy),
        ("yes", "everysec", Guarantee::BestEffort),
        ("no", "always", Guarantee::BestEffort),
    ];
    for (appendonly, appendfsync, guarantee) in cases {
        let server = RedisServer::builder()
            .setting("appendonly", appendonly)
            .setting("appendfsync", appendfsync);
        let server = server.start().await.unwrap();
        let session = session(&server, SESSION_TIMEOUT).await;
        assert_eq!(session.guarantee(), guarantee, "{appendonly} {appendfsync}");
        session.close().await;
    }
}

/// With `replicas(1)` nothing counts as done that the replica does not have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_replica_no_lock_is_granted() {
    let primary = RedisServer::start().await.unwrap();
    let replica = RedisServer::builder().replica_of(&primary);
    let replica = replica.start().await.unwrap();
    let replicated = options(SESSION_TIMEOUT).replicas(1);
    let session = replicated.connect(&primary.url()).await.unwrap();
    assert_eq!(session.guarantee(), Guarantee::BestEffort);
    let guard = timeout(PATIENCE, mutex(&session).acquire()).await.unwrap();
    let guard = guard.unwrap();
    replica.pause().unwrap();
    // Beats are not confirmed any more, so it is lost after half of the timeout.
    timeout(PATIENCE, guard.lost()).await.unwrap();
    drop(guard);
    let try_again = mutex(&session).acquire().timeout(Duration::from_secs(2));
    assert!(try_again.await.is_err());
    replica.resume().unwrap();
    let granted = timeout(PATIENCE, mutex(&session).acquire()).await.unwrap();
    granted.unwrap().release().await.unwrap();
}
