//! A create that is committed where its session does not look for it.
//!
//! The session moves to a new quorum, where its create is committed and the reply is lost, and from
//! there to a leader that was deposed and does not know it. That one answers whatever it need not
//! ask its followers about, `sync` among it: what it shows says nothing about what was committed.

use futures::future::{BoxFuture, join_all, select_all};
use recipes_testing::{Cut, Direction, Fault, FaultProxy, Opcode, ZooKeeperEnsemble};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use zookeeper_client::Client;
use zookeeper_recipes::{MutexGuard, Session};

use crate::{LONG, PATH, PATIENCE, await_queue, children, connect, mutex, proxy, until, waiter};

/// Of each kind, unless `SECOND_NODES` asks for more.
fn rounds() -> usize {
    let asked = std::env::var("SECOND_NODES");
    asked.map_or(1, |it| it.parse().unwrap())
}

/// So many connections that nobody answers are no accident.
const REFUSALS: u64 = 8;
/// Scenes that may be set for one that comes to something.
const SCENES_MAX: usize = 5;

/// Three servers, of which one leads on for a minute when it has lost the others.
struct Scene {
    ensemble: ZooKeeperEnsemble,
    leader: usize,
    /// Of the next leader, which itself tells of its own time from the beginning.
    follower: usize,
    proxy: FaultProxy,
    session: Session,
    acquiring: JoinHandle<MutexGuard>,
    /// With the new quorum.
    operator: Client,
    /// The node of which the session does not know.
    made: String,
}

impl Scene {
    /// Until the create is committed, of which the session does not hear.
    async fn set() -> Self {
        let builder = ZooKeeperEnsemble::builder().links();
        let builder = builder.config("initLimit", "30").config("syncLimit", "600");
        let ensemble = builder.start_ensemble(3).await.unwrap();
        let leader = ensemble.leader().await.unwrap();
        let others = [(leader + 1) % 3, (leader + 2) % 3];
        let proxy = proxy(ensemble.server(leader)).await;
        let session = connect(&proxy.connect_string(), LONG).await;
        let lock = mutex(&session);
        // There is a directory afterwards, and nobody in it.
        lock.acquire().await.unwrap().release().await.unwrap();

        ensemble.cut_off(leader);
        join_all(others.iter().map(|it| ensemble.kill(*it))).await;
        for started in join_all(others.iter().map(|it| ensemble.start_again(*it))).await {
            started.unwrap();
        }
        let follower = follower_of(&ensemble, &others).await;
        let address = ensemble.server(follower).connect_string();
        let moved = move_to(&proxy, &address).await.unwrap();
        // Whatever is committed first: the old leader does not take a session up again that has
        // heard of a transaction of the next one's time.
        let lost = [Opcode::Create, Opcode::Multi, Opcode::Delete].map(|opcode| {
            let replies = proxy.on(Direction::FromServer).connection(moved);
            replies.opcode(opcode).then(Fault::BlackHole)
        });
        let acquiring = waiter(&session);
        timeout(PATIENCE, lost[0].struck()).await.unwrap();
        // Not before: its session is a transaction, too, of which ours would hear.
        let operator = Client::connect(&address).await.unwrap();
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

    /// A session that was led to the deposed leader, and back; its acquire was dropped before, if so.
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

    /// Leads the session to the deposed leader, until that was asked for what it cannot do or, where
    /// nothing is created any more, has shown what it has.
    ///
    /// `None` where that one notices that the session comes from its successor.
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
        let seen = timeout(PATIENCE, select_all(seen)).await;
        println!("asked of the deposed leader: {:?}", seen.unwrap().0.opcode);
        Some(())
    }

    /// Back to the new quorum, where the session goes on.
    async fn come_back(&self) {
        let follower = self.ensemble.server(self.follower).connect_string();
        move_to(&self.proxy, &follower).await.unwrap();
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

/// Leads the session to another server; returns the number of the connection by which it was taken
/// up, `None` where it is refused again and again.
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
