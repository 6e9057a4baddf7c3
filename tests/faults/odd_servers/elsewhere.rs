//! Clients that move to another server, or to one that has changed.

use std::time::Duration;

use lock_recipes::{
    AcquireError, FencingToken, GuardState, InterProcessMutex, LostReason, SessionHealth,
};
use recipes_testing::{Cut, Direction, FaultProxy, Opcode, ZooKeeperEnsemble, ZooKeeperServer};
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::{Acls, Client, CreateMode};

use super::{
    ASK_AGAIN, LONG, PATH, PATIENCE, await_health, await_held, await_queue, children, connect,
    granted, mutex, proxy, until, waiter,
};

/// Makes transactions that another server does not have.
async fn advance(server: &ZooKeeperServer) {
    let operator = server.client().await.unwrap();
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    for number in 0..100 {
        let path = format!("/transaction-{number}");
        operator.create(&path, b"", &options).await.unwrap();
    }
}

/// Wipes a server, as if the disk of its machine was replaced.
async fn forget_everything(server: &ZooKeeperServer) {
    server.kill().await.unwrap();
    let data = server.log_path().with_file_name("data");
    std::fs::remove_dir_all(data.join("version-2")).unwrap();
    server.start_again().await.unwrap();
}

/// How many times a server has resumed the session, judging by the answers that passed the proxy.
fn welcomes(proxy: &FaultProxy) -> usize {
    let answers = proxy.on(Direction::FromServer).opcode(Opcode::Connect);
    answers.count()
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
    let lost = timeout(PATIENCE, held.lost()).await.unwrap();
    // The server itself ends it if it has had as many transactions by then as the session has seen.
    let is_told = matches!(
        lost.reason,
        LostReason::NodeRemoved | LostReason::SessionExpired
    );
    assert!(is_told, "{lost}");
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

/// Such a server closes the connections of a client that has seen more, and the client goes on
/// trying. Meanwhile others are granted the lock.
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
    assert_eq!(lost.reason, LostReason::NodeRemoved, "{lost}");
    println!("notified {:?} after the server was back", back.elapsed());
}

/// Tells a holder whose server lost its data, though some of its servers do not answer.
async fn holder_is_told(requested: Duration, silent: usize, answering: usize) {
    let server = ZooKeeperServer::builder();
    let server = server.config("maxSessionTimeout", "24000");
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
        let silent = FaultProxy::start(&server.connect_string()).await.unwrap();
        servers.push(silent.connect_string());
        silent_ones.push(silent);
    }
    let session = connect(&servers.join(","), requested).await;
    let held = mutex(&session).acquire().await.unwrap();
    // Connections are accepted, and nothing comes back.
    silent_ones
        .iter()
        .for_each(|it| it.black_hole(Direction::FromServer));

    forget_everything(&server).await;
    let back = Instant::now();
    let lost = timeout(PATIENCE, held.lost()).await.unwrap();
    println!("notified {:?} after the server was back", back.elapsed());
    // At its deadline there would be another reason.
    assert_eq!(lost.reason, LostReason::NodeRemoved, "{lost}");
}

/// A machine that is dead must not take the whole time in which the others could say that the node
/// is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_machine_does_not_keep_others_from_being_asked() {
    holder_is_told(Duration::from_secs(24), 1, 2).await;
}

/// A service may ask for a long session timeout and get a shorter one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_machine_does_not_keep_others_from_being_asked_by_a_session_that_wanted_more_time() {
    holder_is_told(Duration::from_secs(600), 1, 2).await;
}

/// If they were asked in turn, the silent ones alone would take longer than the lock can be held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_machines_do_not_add_up() {
    holder_is_told(Duration::from_secs(24), 9, 10).await;
}

/// The question whether its node exists does a session no harm that is only slow to connect: not to
/// its timeout, and not to the connection that it is making.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_that_reconnects_slowly_keeps_its_lock_and_its_session() {
    const EACH_WAY: Duration = Duration::from_millis(150);
    let server = ZooKeeperServer::start().await.unwrap();
    let proxy = proxy(&server).await;
    let session = connect(&proxy.connect_string(), Duration::from_secs(12)).await;
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

/// A client that cannot connect for a while, to a server that has its node.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_whose_node_others_see_keeps_its_lock() {
    let server = ZooKeeperServer::start().await.unwrap();
    let proxy = proxy(&server).await;
    let session = connect(&proxy.connect_string(), LONG).await;
    let held = mutex(&session).acquire().await.unwrap();

    let answers = proxy.on(Direction::FromServer).opcode(Opcode::Exists);
    let asked = answers.clone().nth(answers.count() + 1).seen();
    // The client asks first, and is kept waiting.
    let gate = proxy.on(Direction::ToServer).opcode(Opcode::Connect).hold();
    proxy.cut_all(Cut::Reset);
    gate.reached().await;
    timeout(PATIENCE, asked).await.unwrap();
    assert!(matches!(held.state(), GuardState::Suspended { .. }));
    gate.release();
    await_held(&held).await;
    held.verify().await.unwrap();
    assert_eq!(session.epoch(), 1);
    held.release().await.unwrap();
}

fn assert_store_forgot(error: AcquireError, token: FencingToken) {
    match error {
        AcquireError::StoreForgot { path, seen, now } => {
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

    let (connections, welcomed) = (proxy.connections(), welcomes(&proxy));
    proxy.retarget(&younger.connect_string());
    proxy.cut_all(Cut::Reset);
    await_health(&session, SessionHealth::Disconnected).await;
    let asked = Instant::now();
    let other = InterProcessMutex::new(&session, "/locks/other").unwrap();
    let late = other.acquire().timeout(WAITS).await.unwrap_err();
    assert!(matches!(late, AcquireError::TimedOut { .. }), "{late}");
    let waited = asked.elapsed();
    assert!(waited >= WAITS, "{waited:?}");
    // Pauses double, starting at a tenth of a second.
    let tried = proxy.connections() - connections;
    assert!((2..20).contains(&tried), "{tried} times in {waited:?}");
    assert_eq!(welcomes(&proxy), welcomed, "by one that knows less");
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

    let (connections, welcomed) = (proxy.connections(), welcomes(&proxy));
    proxy.retarget(&ensemble.server(follower).connect_string());
    proxy.cut_all(Cut::Reset);
    let asked = proxy.on(Direction::ToServer).opcode(Opcode::Connect);
    let asked = asked.connection(connections + 2).seen();
    timeout(PATIENCE, asked).await.unwrap();
    assert_eq!(welcomes(&proxy), welcomed, "by one that lags");
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
    // The second question shows that the first is answered, or given up.
    let asked = proxy.on(Direction::ToServer).opcode(Opcode::Multi);
    let asked = asked.clone().nth(asked.count() + 2).seen();
    timeout(PATIENCE, asked).await.unwrap();
    let operator = Client::connect(&ensemble.server(leader).connect_string())
        .await
        .unwrap();
    assert_eq!(children(&operator, PATH).await.len(), 1, "the node is gone");
    assert!(
        matches!(held.state(), GuardState::Suspended { .. }),
        "{:?}",
        held.state()
    );
}

/// A single address leads to another store for a while, so a lock is lost that is held. Its node
/// must not stay, and nobody may be granted the lock beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_of_a_lock_that_was_lost_by_mistake_is_deleted_when_its_store_is_back() {
    let known = ZooKeeperServer::start().await.unwrap();
    let younger = ZooKeeperServer::start().await.unwrap();
    advance(&known).await;
    let proxy = proxy(&known).await;
    let session = connect(&proxy.connect_string(), LONG).await;
    let held = mutex(&session).acquire().await.unwrap();
    proxy.retarget(&younger.connect_string());
    proxy.cut_all(Cut::Reset);
    let lost = timeout(PATIENCE, held.lost()).await.unwrap();
    assert_eq!(lost.reason, LostReason::NodeRemoved);
    proxy.retarget(&known.connect_string());
    await_health(&session, SessionHealth::Connected).await;
    assert_eq!(session.epoch(), 1);
    let operator = known.client().await.unwrap();
    let watched = proxy.on(Direction::FromServer).opcode(Opcode::GetData);
    let watched = watched.clone().nth(watched.count() + 1).seen();
    let next = waiter(&session);
    await_queue(&operator, 2).await;
    // It waits for the one ahead of it, which is ours.
    timeout(PATIENCE, watched).await.unwrap();
    assert!(!next.is_finished(), "beside a node of ours");
    assert!(!held.is_valid());
    drop(held);
    granted(next).await.release().await.unwrap();
    await_queue(&operator, 0).await;
}

/// What a server says of its sessions.
async fn global_sessions(server: &ZooKeeperServer) -> String {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let mut stream = tokio::net::TcpStream::connect(server.connect_string())
        .await
        .unwrap();
    stream.write_all(b"mntr").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let mut lines = answer.lines();
    let sessions = lines.find(|line| line.starts_with("zk_global_sessions"));
    sessions.unwrap().to_owned()
}

/// The answer to a question that nobody awaits any more opens a session all the same. It goes long
/// before one with the timeout of the session that asked would go.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_questions_leave_behind_go_soon() {
    let server = ZooKeeperServer::start().await.unwrap();
    let proxy = proxy(&server).await;
    let session = connect(&proxy.connect_string(), LONG).await;
    let held = mutex(&session).acquire().await.unwrap();
    let before = global_sessions(&server).await;
    // No answer comes in time for a question.
    proxy.black_hole(Direction::FromServer);
    proxy.cut_all(Cut::Reset);
    let left = async || global_sessions(&server).await != before;
    until("a session that is left", left).await;
    proxy.restore();
    let since = Instant::now();
    await_held(&held).await;
    let gone = async || global_sessions(&server).await == before;
    until("no session is left", gone).await;
    assert!(since.elapsed() < LONG, "{:?}", since.elapsed());
}

/// A request is held up, and its client gives up the connection and goes on with another server.
/// Then the request arrives on the old connection, which the server still has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn create_that_arrives_when_its_session_has_moved_makes_no_second_node() {
    let ensemble = ZooKeeperEnsemble::start(3).await.unwrap();
    let proxy = proxy(ensemble.server(0)).await;
    let third = ensemble.server(2).connect_string();
    let operator = Client::connect(&third).await.unwrap();
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
