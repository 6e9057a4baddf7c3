//! Three servers, some of which are dead or cut off from each other.

use std::time::Duration;

use lock_recipes::LostReason;
use test_rig::ZooKeeperEnsemble;
use test_rig::history::monotonic_now;
use tokio::time::{Instant, sleep, timeout};
use zookeeper_client::{Acls, Client, CreateMode, SessionState};

use super::deposed::PATIENCE;
use crate::{LONG, PATH, SHORT, connect, holder_and_waiter, mutex};

/// Partitions of each kind, unless `PARTITIONS` sets another number.
fn partitions() -> usize {
    let asked = std::env::var("PARTITIONS");
    asked.map_or(4, |it| it.parse().unwrap())
}

/// Three servers that can be cut off from each other. A server that is elected but finds no
/// follower tries again after 3 s, instead of 10 s.
async fn start(sync_limit: &str) -> ZooKeeperEnsemble {
    let builder = ZooKeeperEnsemble::builder()
        .links()
        .config("initLimit", "30");
    let builder = builder.config("syncLimit", sync_limit);
    builder.start_ensemble(3).await.unwrap()
}

async fn await_queue(client: &Client, count: usize) {
    let queued = async {
        while client.list_children(PATH).await.unwrap_or_default().len() != count {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, queued).await.unwrap();
}

/// Waits until the server serves clients, which it does not while it has no leader.
async fn await_service(ensemble: &ZooKeeperEnsemble, index: usize) {
    let connect_string = ensemble.server(index).connect_string();
    let served = async { while Client::connect(&connect_string).await.is_err() {} };
    timeout(PATIENCE, served).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_quorum_the_holder_gives_up_and_nobody_is_granted() {
    let ensemble = ZooKeeperEnsemble::start(3).await.unwrap();
    let short = connect(&ensemble.connect_string(), SHORT).await;
    let long = connect(&ensemble.connect_string(), LONG).await;
    let client = ensemble.client().await.unwrap();
    let queued = async || await_queue(&client, 2).await;
    let (held, waiting) = holder_and_waiter(&short, &long, queued).await;

    ensemble.kill(0).await.unwrap();
    ensemble.kill(1).await.unwrap();
    let (without_from, lost) = (monotonic_now(), held.lost().await);
    let told = monotonic_now();
    assert_eq!(lost.reason, LostReason::DeadlinePassed);
    sleep(Duration::from_secs(5)).await;
    assert!(!waiting.is_finished(), "granted without a quorum");
    assert!(!held.is_valid());
    // One more server makes a quorum, and the other follows.
    ensemble.start_again(0).await.unwrap();
    let (granted_at, granted) = timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert!(granted_at > told);
    assert!(granted.fencing_token() > held.fencing_token());
    println!(
        "without a quorum: told after {:?}",
        Duration::from_nanos(told - without_from)
    );
    held.release().await.unwrap_err();
    granted.release().await.unwrap();
    ensemble.start_again(1).await.unwrap();
    let again = mutex(&short).acquire().await.unwrap();
    again.release().await.unwrap();
    let client = ensemble.client().await.unwrap();
    await_queue(&client, 0).await;
}

/// A client that believes its server as long as pings are answered.
struct Believer {
    client: Client,
    node: String,
}

impl Believer {
    async fn start(connect_string: &str) -> Self {
        let connector = Client::connector().with_session_timeout(2 * SHORT);
        let client = connector.connect(connect_string).await.unwrap();
        let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        let node = format!("/believer-{}", client.session_id().0);
        client.create(&node, b"", &options).await.unwrap();
        Self { client, node }
    }

    /// For how long, from now on, it believes to be connected.
    async fn awakens(&mut self) -> Duration {
        let since = Instant::now();
        let mut states = self.client.state_watcher();
        while states.peek_state() == SessionState::SyncConnected {
            states.changed().await;
        }
        since.elapsed()
    }
}

struct Margins(Vec<Duration>);

impl Margins {
    fn print(&self, what: &str) {
        println!(
            "{what}: told {:?} to {:?} before the next one was granted, {} times",
            self.0.iter().min().unwrap(),
            self.0.iter().max().unwrap(),
            self.0.len()
        );
    }
}

/// Cuts off the server of the client that holds the lock, until another client is granted it.
async fn partition(ensemble: &ZooKeeperEnsemble, cut: usize, margins: &mut Margins) {
    let near = ensemble.server(cut).connect_string();
    let others = (0..3)
        .filter(|it| *it != cut)
        .map(|it| ensemble.server(it).connect_string());
    let far = others.collect::<Vec<_>>().join(",");
    let connector = Client::connector().with_session_timeout(LONG);
    let client = connector.connect(&far).await.unwrap();
    let (short, long) = (connect(&near, SHORT).await, connect(&far, LONG).await);
    let queued = async || await_queue(&client, 2).await;
    let (held, waiting) = holder_and_waiter(&short, &long, queued).await;

    ensemble.cut_off(cut);
    let told = tokio::spawn({
        let lost = held.lost();
        async move { (lost.await, monotonic_now()) }
    });
    let (granted_at, granted) = timeout(PATIENCE, waiting).await.unwrap().unwrap();
    assert!(!held.is_valid(), "two hold");
    let (lost, told) = timeout(PATIENCE, told).await.unwrap().unwrap();
    assert_eq!(lost.reason, LostReason::DeadlinePassed);
    assert!(told < granted_at, "told {} ns too late", told - granted_at);
    assert!(granted.fencing_token() > held.fencing_token());
    margins.0.push(Duration::from_nanos(granted_at - told));
    granted.release().await.unwrap();
    held.release().await.unwrap_err();
    ensemble.join_again(cut);
    await_service(ensemble, cut).await;
    short.close().await;
    long.close().await;
    await_queue(&client, 0).await;
}

/// The client stays on a server that goes on answering its pings. The leader gets no sign of life
/// from it, expires the session, and another client gets the lock. A client that believes its
/// server considers itself the holder until that server gives up. A heartbeat must pass through the
/// leader, so it does not get through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_on_a_follower_that_is_cut_off_is_told_before_the_leader_lets_another_in() {
    // A follower without its leader goes on for 16 s, four times as long as the session.
    let ensemble = start("160").await;
    let mut margins = Margins(Vec::new());
    for _ in 0..partitions() {
        let leader = ensemble.leader().await.unwrap();
        partition(&ensemble, (leader + 1) % 3, &mut margins).await;
    }
    margins.print("follower cut off from its leader");

    let leader = ensemble.leader().await.unwrap();
    let cut = (leader + 1) % 3;
    let witness = ensemble.server(leader).client().await.unwrap();
    let mut believer = Believer::start(&ensemble.server(cut).connect_string()).await;
    ensemble.cut_off(cut);
    let gone = async {
        while witness.check_stat(&believer.node).await.unwrap().is_some() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, gone).await.unwrap();
    assert_eq!(believer.client.state(), SessionState::SyncConnected);
    let believed = timeout(PATIENCE, believer.awakens()).await.unwrap();
    println!("a client that believes its server's pings was wrong for {believed:?}");
    assert!(believed > Duration::from_millis(500), "{believed:?}");
    ensemble.join_again(cut);
    await_service(&ensemble, cut).await;
}

/// The leader goes on answering for a while, heartbeats too, because it cannot know that the others
/// have elected another. But the new leader gives every session its full timeout again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_on_a_leader_that_is_cut_off_is_told_before_the_next_leader_lets_another_in() {
    // A leader without its followers goes on for as long as the session.
    let ensemble = start("40").await;
    let mut margins = Margins(Vec::new());
    for _ in 0..partitions() {
        let leader = ensemble.leader().await.unwrap();
        partition(&ensemble, leader, &mut margins).await;
    }
    margins.print("leader cut off from its followers");
}
