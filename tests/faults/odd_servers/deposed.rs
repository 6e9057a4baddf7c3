//! A create that is committed where its session does not look for it.
//!
//! The session moves to a new quorum, where its create is committed and the reply is lost. From
//! there it moves to a leader that was deposed and has not noticed. That leader answers every
//! request for which it needs no follower, `sync` among them. So its answers prove nothing about
//! what was committed.

use std::time::Duration;

use futures::future::{BoxFuture, join_all, select_all};
use lock_recipes::{MutexGuard, Session, SessionHealth, ZooKeeper};
use test_rig::{Cut, Direction, Fault, FaultProxy, Opcode, ZooKeeperEnsemble};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use zookeeper_client::Client;

use super::{
    LONG, PATH, PATIENCE, await_health, await_queue, children, connect, mutex, proxy, until, waiter,
};

/// Rounds of each kind, unless `SECOND_NODES` sets another number.
fn rounds() -> usize {
    let asked = std::env::var("SECOND_NODES");
    asked.map_or(1, |it| it.parse().unwrap())
}

/// This many connections without an answer are not a coincidence.
const REFUSALS: u64 = 8;
/// A deposed leader gives up after this time. A busy machine may need all of it to set a scene.
const LEADS: Duration = Duration::from_secs(60);
/// The most scenes to set up for one that succeeds.
const SCENES_MAX: usize = 5;

/// Three servers. One of them goes on leading for a minute after it has lost the others.
struct Scene {
    ensemble: ZooKeeperEnsemble,
    leader: usize,
    /// A follower of the next leader. That leader itself reveals its new term from the beginning.
    follower: usize,
    proxy: FaultProxy,
    session: Session,
    acquiring: JoinHandle<MutexGuard>,
    /// Connected to the new quorum.
    operator: Client,
    /// The node that the session does not know.
    made: String,
}

impl Scene {
    /// Returns after the create is committed and its reply is lost.
    async fn set() -> Self {
        let (ensemble, leader) = start().await;
        let others = [(leader + 1) % 3, (leader + 2) % 3];
        let proxy = proxy(ensemble.server(leader)).await;
        // A client of ours goes on with no server that commits nothing. That of a service does.
        let client = Client::connector().with_session_timeout(LONG);
        let client = client.connect(&proxy.connect_string()).await.unwrap();
        let session = ZooKeeper::from_client(client);
        let lock = mutex(&session);
        // This leaves the directory without any node in it.
        lock.acquire().await.unwrap().release().await.unwrap();

        elect(&ensemble, leader, &others).await;
        let follower = follower_of(&ensemble, &others).await;
        let address = ensemble.server(follower).connect_string();
        let moved = move_to(&proxy, &address).await.unwrap();
        // The replies to all kinds of first commit. The old leader refuses a session that has seen
        // a transaction of the next leader.
        let lost = [Opcode::Create, Opcode::Multi, Opcode::Delete].map(|opcode| {
            let replies = proxy.on(Direction::FromServer).connection(moved);
            replies.opcode(opcode).then(Fault::BlackHole)
        });
        let acquiring = waiter(&session);
        timeout(PATIENCE, lost[0].struck()).await.unwrap();
        // Not earlier, because this opens a session, which is a transaction that ours would see.
        let operator = ensemble.server(follower).client().await.unwrap();
        let made = await_queue(&operator, 1).await.remove(0);
        Self {
            ensemble,
            leader,
            follower,
            proxy,
            session,
            acquiring,
            operator,
            made,
        }
    }

    /// A session that was led to the deposed leader, and back. If `is_dropped`, its acquire was
    /// dropped before.
    async fn led_astray(is_dropped: bool) -> Self {
        for _ in 0..SCENES_MAX {
            let scene = Self::set().await;
            if is_dropped {
                scene.acquiring.abort();
            }
            if scene.lead_astray(!is_dropped).await.is_some() {
                scene.come_back().await;
                return scene;
            }
        }
        panic!("the deposed leader knows each time");
    }

    /// Leads the session to the deposed leader, until that one gets a request that it cannot carry
    /// out. If nothing is created any more, a listing of its nodes is enough.
    ///
    /// `None` if the deposed leader notices that the session comes from its successor, or leads no more.
    async fn lead_astray(&self, creates: bool) -> Option<()> {
        let leader = self.ensemble.server(self.leader).connect_string();
        let connection = move_to(&self.proxy, &leader).await?;
        let frames = |direction, opcode| {
            let frames = self.proxy.on(direction).opcode(opcode);
            let seen: BoxFuture<'_, _> = Box::pin(frames.connection(connection).seen());
            seen
        };
        let mut seen = vec![
            frames(Direction::ToServer, Opcode::Multi),
            frames(Direction::ToServer, Opcode::Create),
            frames(Direction::ToServer, Opcode::Delete),
        ];
        if !creates {
            seen.push(frames(Direction::FromServer, Opcode::GetChildren));
        }
        let (seen, ..) = timeout(LEADS, select_all(seen)).await.ok()?;
        println!("asked of the deposed leader: {:?}", seen.opcode);
        Some(())
    }

    /// Leads the session back to the new quorum, where it goes on.
    async fn come_back(&self) {
        let follower = self.ensemble.server(self.follower).connect_string();
        move_to(&self.proxy, &follower).await.unwrap();
    }
}

/// Three servers, and their leader, who needs long to notice that it has lost the others.
async fn start() -> (ZooKeeperEnsemble, usize) {
    let builder = ZooKeeperEnsemble::builder().links();
    let builder = builder.config("initLimit", "30").config("syncLimit", "600");
    let ensemble = builder.start_ensemble(3).await.unwrap();
    let leader = ensemble.leader().await.unwrap();
    (ensemble, leader)
}

/// Cuts the leader off, and has the others elect another.
async fn elect(ensemble: &ZooKeeperEnsemble, leader: usize, others: &[usize]) {
    ensemble.cut_off(leader);
    join_all(others.iter().map(|it| ensemble.kill(*it))).await;
    for started in join_all(others.iter().map(|it| ensemble.start_again(*it))).await {
        started.unwrap();
    }
}

async fn follower_of(ensemble: &ZooKeeperEnsemble, servers: &[usize]) -> usize {
    for server in servers {
        let status = ensemble.server(*server).four_letter("srvr").await.unwrap();
        if status.contains("Mode: follower") {
            return *server;
        }
    }
    panic!("nobody follows")
}

/// Leads the session to another server. Returns the number of the connection that resumed it;
/// `None` if it is refused again and again.
async fn move_to(proxy: &FaultProxy, server: &str) -> Option<u64> {
    let answers = || proxy.on(Direction::FromServer).opcode(Opcode::Connect);
    let (taken_up, tried) = (answers().count(), proxy.connections());
    proxy.retarget(server);
    proxy.cut_all(Cut::Fin);
    let refused = until("refusals", async || proxy.connections() > tried + REFUSALS);
    tokio::select! {
        biased;
        answer = answers().nth(taken_up + 1).seen() => Some(answer.connection),
        () = refused => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn create_committed_behind_the_back_of_a_deposed_leader_is_the_only_one() {
    let rounds = rounds();
    let mut wrong = Vec::new();
    for round in 0..rounds {
        let scene = Scene::led_astray(false).await;
        let granted = timeout(PATIENCE / 2, scene.acquiring).await;
        let queue = children(&scene.operator, PATH).await;
        assert_eq!(scene.session.epoch(), 1);
        if granted.is_err() || queue != [scene.made.as_str()] {
            wrong.push(format!("{round}: granted {}, {queue:?}", granted.is_ok()));
            continue;
        }
        let granted = granted.unwrap().unwrap();
        granted.verify().await.unwrap();
        granted.release().await.unwrap();
        await_queue(&scene.operator, 0).await;
    }
    println!("second nodes: {} of {rounds}", wrong.len());
    assert!(wrong.is_empty(), "of {rounds}: {wrong:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn create_committed_behind_the_back_of_a_deposed_leader_is_cleaned_up() {
    for _ in 0..rounds() {
        let scene = Scene::led_astray(true).await;
        let is_gone = async || children(&scene.operator, PATH).await.is_empty();
        until("the node is left in a session that lives", is_gone).await;
        assert_eq!(scene.session.epoch(), 1);
        let next = mutex(&scene.session).acquire().await.unwrap();
        next.release().await.unwrap();
    }
}

/// A session that a deposed leader lets in, and that waits there in vain for a commit. `None` if that leader leads no
/// more.
async fn let_in_in_vain() -> Option<(ZooKeeperEnsemble, [usize; 2], FaultProxy, Session)> {
    let (ensemble, leader) = start().await;
    let others = [(leader + 1) % 3, (leader + 2) % 3];
    let proxy = proxy(ensemble.server(leader)).await;
    let session = connect(&proxy.connect_string(), Duration::from_secs(12)).await;
    elect(&ensemble, leader, &others).await;
    let answers = || proxy.on(Direction::FromServer).opcode(Opcode::Connect);
    let before = answers().count();
    proxy.cut_all(Cut::Fin);
    await_health(&session, SessionHealth::Disconnected).await;
    // And it is let in again.
    for number in 1..=2 {
        tokio::select! {
            answered = timeout(LEADS, answers().nth(before + number).seen()) => answered.ok()?,
            () = await_health(&session, SessionHealth::Connected) => panic!("it goes on there"),
        };
    }
    Some((ensemble, others, proxy, session))
}

/// Such a leader opens no session, but goes on with one that it knows. A session without locks goes there
/// directly.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_does_not_go_on_with_a_leader_that_commits_nothing() {
    let mut scene = None;
    for _ in 0..SCENES_MAX {
        if scene.is_none() {
            scene = let_in_in_vain().await;
        }
    }
    let (ensemble, others, proxy, session) =
        scene.expect("the deposed leader leads for long enough");
    let follower = follower_of(&ensemble, &others).await;
    proxy.retarget(&ensemble.server(follower).connect_string());
    proxy.cut_all(Cut::Fin);
    await_health(&session, SessionHealth::Connected).await;
    let lock = mutex(&session);
    lock.acquire().await.unwrap().release().await.unwrap();
}
