//! Holders without a connection, and what servers that are asked in their place say meanwhile.

use std::time::Duration;

use lock_recipes::{GuardState, LostReason, SessionHealth};
use test_rig::{Cut, Direction, Opcode, ZooKeeperEnsemble, ZooKeeperServer};
use tokio::time::{Instant, timeout};

use super::elsewhere::{advance, forget_everything};
use super::{LONG, PATH, PATIENCE, await_health, await_held, children, connect, mutex, proxy};

/// Such a server grants the lock to others at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_on_a_server_that_forgot_everything_is_notified_long_before_its_deadline() {
    let server = ZooKeeperServer::start().await.unwrap();
    advance(&server).await;
    let session = connect(&server.connect_string(), LONG).await;
    let held = mutex(&session).acquire().await.unwrap();

    forget_everything(&server).await;
    let back = Instant::now();
    let lost = timeout(PATIENCE, held.lost()).await.unwrap();
    // At its deadline there would be another reason.
    assert_eq!(lost.reason, LostReason::SessionExpired, "{lost}");
    println!("notified {:?} after the server was back", back.elapsed());
}

/// Tells a holder whose server lost its data, though some of its servers do not answer.
async fn holder_is_told(requested: Duration, silent: usize, answering: usize) {
    let server = ZooKeeperServer::builder();
    let server = server.config("maxSessionTimeout", "90000");
    let server = server.start().await.unwrap();
    advance(&server).await;
    let (mut servers, mut proxies) = (vec![server.connect_string()], Vec::new());
    for _ in 1..answering {
        let proxy = proxy(&server).await;
        servers.push(proxy.connect_string());
        proxies.push(proxy);
    }
    let mut silent_ones = Vec::new();
    for _ in 0..silent {
        let silent = proxy(&server).await;
        silent.refuse_connections().await;
        servers.push(silent.connect_string());
        silent_ones.push(silent);
    }
    let session = connect(&servers.join(","), requested).await;
    let held = mutex(&session).acquire().await.unwrap();
    // Connections are accepted from now on, and nothing comes back.
    for silent in &silent_ones {
        silent.black_hole(Direction::FromServer);
        silent.accept_connections().await.unwrap();
    }

    forget_everything(&server).await;
    let back = Instant::now();
    let lost = timeout(PATIENCE, held.lost()).await.unwrap();
    println!("notified {:?} after the server was back", back.elapsed());
    // At its deadline there would be another reason.
    assert_eq!(lost.reason, LostReason::SessionExpired, "{lost}");
}

/// A machine that is dead must not take the whole time in which the others could say that the node
/// is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_machine_does_not_keep_others_from_being_asked() {
    holder_is_told(LONG, 1, 2).await;
}

/// A service may ask for a long session timeout and get a shorter one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_machine_does_not_keep_others_from_being_asked_by_a_session_that_wanted_more_time() {
    holder_is_told(Duration::from_secs(600), 1, 2).await;
}

/// If they were asked in turn, the silent ones alone would take longer than the lock can be held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_machines_do_not_add_up() {
    holder_is_told(Duration::from_secs(90), 9, 10).await;
}

/// The question whether its node exists does a session no harm that is only slow to connect: not to
/// its timeout, and not to the connection that it is making.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_that_reconnects_slowly_keeps_its_lock_and_its_session() {
    const EACH_WAY: Duration = Duration::from_millis(150);
    let server = ZooKeeperServer::start().await.unwrap();
    let proxy = proxy(&server).await;
    let session = connect(&proxy.connect_string(), Duration::from_secs(40)).await;
    let held = mutex(&session).acquire().await.unwrap();
    proxy.set_latency(EACH_WAY);
    for _ in 0..3 {
        let connections = proxy.connections();
        proxy.cut_all(Cut::Reset);
        await_health(&session, SessionHealth::Disconnected).await;
        await_held(&held).await;
        held.verify().await.unwrap();
        assert_eq!(session.epoch(), 1);
        println!("{} connections", proxy.connections() - connections);
    }
    held.release().await.unwrap();
}

/// Where servers open sessions of their own, without a quorum, a new session on a follower that
/// lags sees what was before. The node is there all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_is_not_lost_because_a_local_session_on_a_follower_that_lags_does_not_see_it() {
    let builder = ZooKeeperEnsemble::builder().links();
    let builder = builder.config("initLimit", "30").config("syncLimit", "400");
    let builder = builder.config("localSessionsEnabled", "true");
    let builder = builder.config("localSessionsUpgradingEnabled", "true");
    let ensemble = builder.start_ensemble(3).await.unwrap();
    let leader = ensemble.leader().await.unwrap();
    let follower = (leader + 1) % 3;
    let proxy = proxy(ensemble.server(leader)).await;
    let session = connect(&proxy.connect_string(), Duration::from_secs(24)).await;
    ensemble.cut_off(follower);
    let held = mutex(&session).acquire().await.unwrap();

    proxy.retarget(&ensemble.server(follower).connect_string());
    proxy.cut_all(Cut::Reset);
    // The third session that is opened shows that the first move is answered, or given up.
    let asked = proxy.on(Direction::ToServer).opcode(Opcode::Connect);
    let asked = asked.clone().nth(asked.count() + 3).seen();
    timeout(PATIENCE, asked).await.unwrap();
    let operator = ensemble.server(leader).client().await.unwrap();
    assert_eq!(children(&operator, PATH).await.len(), 1, "the node is gone");
    assert!(
        matches!(held.state(), GuardState::Suspended { .. }),
        "{:?}",
        held.state()
    );
}

/// Each session that is opened to find a server is a transaction, and one whose answer is lost stays for its
/// timeout. A server that is slow is not helped by more of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_does_not_answer_in_time_is_asked_less_and_less_often() {
    let server = ZooKeeperServer::start().await.unwrap();
    let proxy = proxy(&server).await;
    let session = connect(&proxy.connect_string(), Duration::from_secs(40)).await;
    let held = mutex(&session).acquire().await.unwrap();
    let asked = proxy.on(Direction::ToServer).opcode(Opcode::Connect);
    let before = asked.clone().count();
    proxy.black_hole(Direction::FromServer);
    proxy.cut_all(Cut::Reset);
    timeout(PATIENCE, held.lost()).await.unwrap();
    let asked = asked.count() - before;
    assert!((2..=6).contains(&asked), "{asked} times in 20 s");
}
