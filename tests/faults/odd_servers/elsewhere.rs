//! Clients that move to another server, or to one that has changed.

use std::time::Duration;

use lock_recipes::{
    AcquireError, Error, FencingToken, GuardState, InterProcessMutex, SessionHealth,
};
use test_rig::{Cut, Direction, Opcode, ZooKeeperEnsemble, ZooKeeperServer};
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::{Acls, CreateMode};

use super::{
    ASK_AGAIN, LONG, PATH, PATIENCE, await_health, await_held, await_queue, children, connect,
    granted, mutex, proxy, waiter,
};

/// Makes transactions that another server does not have.
pub(super) async fn advance(server: &ZooKeeperServer) {
    let operator = server.client().await.unwrap();
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    for number in 0..100 {
        let path = format!("/transaction-{number}");
        operator.create(&path, b"", &options).await.unwrap();
    }
}

/// Wipes a server, as if the disk of its machine was replaced.
pub(super) async fn forget_everything(server: &ZooKeeperServer) {
    server.kill().await.unwrap();
    let data = server.log_path().with_file_name("data");
    std::fs::remove_dir_all(data.join("version-2")).unwrap();
    server.start_again().await.unwrap();
}

/// If an ensemble loses its data, its transaction numbers, and so its tokens, start again. A
/// session that has seen higher ones must not be granted a lower one unnoticed. It ends, and
/// reports why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_forgot_everything_ends_the_sessions_that_know_better_and_serves_new_ones() {
    let session_timeout = Duration::from_secs(6);
    let server = ZooKeeperServer::start().await.unwrap();
    advance(&server).await;
    let operator = server.client().await.unwrap();
    let holding = connect(&server.connect_string(), session_timeout).await;
    let waiting = connect(&server.connect_string(), session_timeout).await;
    let held = mutex(&holding).acquire().await.unwrap();
    let waiter = mutex(&waiting);
    let waiter = tokio::spawn(waiter.acquire());
    await_queue(&operator, 2).await;

    forget_everything(&server).await;
    let refused = timeout(PATIENCE, waiter).await.unwrap().unwrap();
    assert_store_forgot(refused.unwrap_err(), held.fencing_token());
    await_health(&waiting, SessionHealth::StoreForgot).await;
    // The reason depends on the time that the server takes to come back, and on how many
    // transactions it has had by then.
    timeout(PATIENCE, held.lost()).await.unwrap();
    assert!(!held.is_valid());
    held.reenter().unwrap_err();
    let token = held.fencing_token();
    held.release().await.unwrap_err();
    for session in [&holding, &waiting] {
        let again = timeout(PATIENCE, mutex(session).acquire()).await.unwrap();
        assert_store_forgot(again.unwrap_err(), token);
        assert_eq!(session.health(), SessionHealth::StoreForgot);
    }
    let operator = server.client().await.unwrap();
    await_queue(&operator, 0).await;

    // The token is lower. A store that remembers the highest token refuses it until an operator
    // steps in.
    let fresh = connect(&server.connect_string(), session_timeout).await;
    let granted = mutex(&fresh).acquire().await.unwrap();
    assert!(granted.fencing_token() < token);
    granted.verify().await.unwrap();
    granted.release().await.unwrap();
    await_queue(&operator, 0).await;
}

fn assert_store_forgot(error: Error, token: FencingToken) {
    match error {
        Error::Acquire(AcquireError::StoreForgot { path, seen, now }) => {
            assert_eq!(path, PATH);
            assert!(seen >= token.as_i64(), "{seen} seen, and {token}");
            assert!(now < seen, "{now} after {seen}");
        }
        other => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_is_led_to_a_server_that_knows_less_waits_for_one_that_does_not() {
    const WAITS: Duration = Duration::from_secs(2);
    let known = ZooKeeperServer::start().await.unwrap();
    let younger = ZooKeeperServer::start().await.unwrap();
    advance(&known).await;
    let proxy = proxy(&known).await;
    // Most of the servers are down. They may know more.
    let servers = format!("{},127.0.0.1:1,127.0.0.1:2", proxy.connect_string());
    let session = connect(&servers, LONG).await;
    let held = mutex(&session).acquire().await.unwrap();

    let connections = proxy.connections();
    proxy.retarget(&younger.connect_string());
    proxy.cut_all(Cut::Reset);
    await_health(&session, SessionHealth::Disconnected).await;
    let asked = Instant::now();
    let other = InterProcessMutex::new(&session, "/locks/other").unwrap();
    let late = other.acquire().timeout(WAITS).await.unwrap_err();
    assert!(
        matches!(late, Error::Acquire(AcquireError::TimedOut { .. })),
        "{late}"
    );
    let waited = asked.elapsed();
    assert!(waited >= WAITS, "{waited:?}");
    let tried = proxy.connections() - connections;
    assert!((1..20).contains(&tried), "{tried} times in {waited:?}");
    assert!(
        matches!(held.state(), GuardState::Suspended { .. }),
        "{:?}",
        held.state()
    );
    assert!(
        children(&younger.client().await.unwrap(), PATH)
            .await
            .is_empty()
    );

    proxy.retarget(&known.connect_string());
    await_held(&held).await;
    held.verify().await.unwrap();
    assert_eq!(session.epoch(), 1);
    held.release().await.unwrap();
    let operator = known.client().await.unwrap();
    await_queue(&operator, 0).await;
    assert!(children(&operator, "/locks/other").await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_that_moves_to_a_follower_that_lags_is_let_in_when_it_has_caught_up() {
    // A follower without its leader goes on serving for four seconds.
    let builder = ZooKeeperEnsemble::builder().links();
    let builder = builder.config("initLimit", "30").config("syncLimit", "40");
    let ensemble = builder.start_ensemble(3).await.unwrap();
    let leader = ensemble.leader().await.unwrap();
    let follower = (leader + 1) % 3;
    let proxy = proxy(ensemble.server(leader)).await;
    let session = connect(&proxy.connect_string(), LONG).await;
    ensemble.cut_off(follower);
    let held = mutex(&session).acquire().await.unwrap();

    let asked = proxy.on(Direction::ToServer).opcode(Opcode::Connect);
    let asked = asked.clone().nth(asked.count() + 1).seen();
    proxy.retarget(&ensemble.server(follower).connect_string());
    proxy.cut_all(Cut::Reset);
    timeout(PATIENCE, asked).await.unwrap();
    assert!(
        matches!(held.state(), GuardState::Suspended { .. }),
        "{:?}",
        held.state()
    );
    ensemble.join_again(follower);
    await_held(&held).await;
    held.verify().await.unwrap();
    assert_eq!(session.epoch(), 1);
    held.release().await.unwrap();
    await_queue(&ensemble.client().await.unwrap(), 0).await;
}

/// A request is held up, and its client gives up the connection and goes on with another server.
/// Then the request arrives on the old connection, which the server still has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn create_that_arrives_when_its_session_has_moved_makes_no_second_node() {
    let ensemble = ZooKeeperEnsemble::start(3).await.unwrap();
    let proxy = proxy(ensemble.server(0)).await;
    let third = ensemble.server(2).connect_string();
    let operator = ensemble.server(2).client().await.unwrap();
    let session = connect(&proxy.connect_string(), Duration::from_secs(12)).await;
    let other = connect(&third, LONG).await;
    let first = mutex(&session).acquire().await.unwrap();
    first.release().await.unwrap();

    let left = proxy.connections();
    let create = || {
        let creates = proxy.on(Direction::ToServer).opcode(Opcode::Create);
        creates.connection(left)
    };
    let before = create().count();
    let gate = create().hold();
    let acquiring = waiter(&session);
    gate.reached().await;
    proxy.retarget(&ensemble.server(1).connect_string());
    let held = granted(acquiring).await;
    assert_eq!(session.epoch(), 1, "a new session, not one that has moved");
    let queue = await_queue(&operator, 1).await;

    gate.release();
    create().nth(before + 1).seen().await;
    // A very long time for servers that answer within milliseconds.
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        assert_eq!(children(&operator, PATH).await, queue);
        assert!(mutex(&other).try_acquire().await.unwrap().is_none());
        sleep(ASK_AGAIN).await;
    }
    held.verify().await.unwrap();
    held.release().await.unwrap();
    let next = mutex(&other).acquire().await.unwrap();
    next.release().await.unwrap();
    await_queue(&operator, 0).await;
}
