//! One queue of all languages. The judge of exclusion is the server's transaction log.

use std::collections::BTreeMap;

use futures::future::try_join_all;
use lock_recipes::{MutexGuard, Session};
use test_rig::{
    Change, CuratorPeer, ForeignPeer, Grant, Naming, TestEnsemble, WritesLog as _, check_grants,
};
use tokio::task::JoinHandle;
use zookeeper_client::Client;

use crate::curator::{PATH, SESSION_TIMEOUT, sequence};
use crate::foreign::{COUNTER, contend, counter};
use crate::peers_fail_here::{mutex, server};

/// What each of the four contributes.
const ROUNDS: u32 = 125;
const THREADS: u16 = 5;

/// A server whose lock is held, so that all contenders can queue. Its judge knows what belongs
/// together.
struct Stage {
    ensemble: TestEnsemble,
    held: MutexGuard,
    ours: Session,
    /// Under our lock this client writes.
    store: Client,
}

impl Stage {
    async fn set_up() -> Self {
        let ensemble = test_rig::own::on_a_real_server().await;
        // The server would delete a container between two grants, and count from 0 again.
        ensemble.create(PATH, b"").await;
        let store = counter(&ensemble).await;
        let ours = ensemble.session().await;
        let held = mutex(&ensemble.session().await, PATH).acquire().await;
        Self {
            held: held.unwrap(),
            ensemble,
            ours,
            store,
        }
    }

    /// Contenders of ours that share the rounds.
    fn contend(&self) -> JoinHandle<Vec<Grant>> {
        let contenders = (0..THREADS).map(|_| {
            let rounds = usize::try_from(ROUNDS / u32::from(THREADS)).unwrap();
            tokio::spawn(contend(mutex(&self.ours, PATH), self.store.clone(), rounds))
        });
        let contenders = try_join_all(contenders.collect::<Vec<_>>());
        tokio::spawn(async move { contenders.await.unwrap().concat() })
    }

    async fn open(&self, peer: &ForeignPeer) {
        let at = server(&self.ensemble).connect_string();
        peer.open("c", &at, SESSION_TIMEOUT).await.unwrap();
    }

    /// Lets them go when as many kinds as `kinds` are in the queue.
    async fn go(self, kinds: u16) -> Judge {
        let queued = usize::from(kinds * THREADS) + 1;
        self.ensemble.await_children(PATH, queued).await;
        self.held.release().await.unwrap();
        Judge {
            writer: self.store.session_id().0,
            holder: self.ours.session_id().unwrap(),
            ensemble: self.ensemble,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ours_curators_gos_and_kazoos_contenders_share_one_queue() {
    let (curator, go) = (CuratorPeer::start().await, ForeignPeer::go().await);
    let (curator, go) = (curator.unwrap(), go.unwrap());
    let kazoo = ForeignPeer::kazoo().await.unwrap();
    let stage = Stage::set_up().await;
    let at = server(&stage.ensemble).connect_string();
    curator.open("c", &at, SESSION_TIMEOUT).await.unwrap();
    stage.open(&go).await;
    stage.open(&kazoo).await;

    let load = (ROUNDS, THREADS);
    let ours = stage.contend();
    let java = curator.contend("c", PATH, COUNTER, ROUNDS, THREADS);
    let go = go.contend("c", PATH, COUNTER, load, Naming::Own);
    let python = kazoo.contend("c", PATH, COUNTER, load, Naming::Curator);
    let judge = stage.go(4).await;
    let grants = [
        ours.await.unwrap(),
        java.await.unwrap(),
        go.await.unwrap(),
        python.await.unwrap(),
    ];
    judge.judge(&grants).await;
}

/// Curator's are not among them: it would not wait for kazoo's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ours_gos_and_kazoos_contenders_share_one_queue_under_their_own_names() {
    let (go, kazoo) = (ForeignPeer::go().await, ForeignPeer::kazoo().await);
    let (go, kazoo) = (go.unwrap(), kazoo.unwrap());
    let stage = Stage::set_up().await;
    stage.open(&go).await;
    stage.open(&kazoo).await;

    let load = (ROUNDS, THREADS);
    let ours = stage.contend();
    let go = go.contend("c", PATH, COUNTER, load, Naming::Own);
    let python = kazoo.contend("c", PATH, COUNTER, load, Naming::Counting);
    let judge = stage.go(3).await;
    let grants = [
        ours.await.unwrap(),
        go.await.unwrap(),
        python.await.unwrap(),
    ];
    judge.judge(&grants).await;
}

struct Judge {
    ensemble: TestEnsemble,
    /// What this session writes, the other one has the lock for.
    writer: i64,
    holder: i64,
}

impl Judge {
    /// Each kind has all its grants, in one queue. Each write to the counter came from the first
    /// node that the server had in the lock's directory, and from the contender that says so.
    async fn judge(self, grants: &[Vec<Grant>]) {
        let rounds = usize::try_from(ROUNDS).unwrap();
        assert!(grants.iter().all(|it| it.len() == rounds));
        let mut all = grants.concat();
        check_grants(0, &all).unwrap();
        all.sort_unstable_by_key(|it| it.value);
        let granted: Vec<_> = all.iter().map(|it| it.sequence).collect();
        let log = server(&self.ensemble).transaction_log().unwrap();
        let mut queue = Queue::default();
        for record in log.records() {
            let by = match record.session {
                session if session == self.writer => self.holder,
                session => session,
            };
            queue.apply(&record.change, by);
        }
        assert_eq!(queue.wrote, granted);
        assert!(queue.nodes.is_empty());

        // They did contend: turns go from one kind to another.
        let mut turns: Vec<_> = grants
            .iter()
            .enumerate()
            .flat_map(|(kind, grants)| grants.iter().map(move |it| (it.sequence, kind)))
            .collect();
        turns.sort_unstable();
        let changes = turns.windows(2).filter(|pair| pair[0].1 != pair[1].1);
        let changes = changes.count();
        assert!(changes > 40, "{changes} changes of turn");
    }
}

/// The lock's directory as the server's log has it: each node and its session, by its number.
#[derive(Default)]
struct Queue {
    nodes: BTreeMap<u32, (String, i64)>,
    /// The number of the first node, at each write to the counter.
    wrote: Vec<u32>,
}

impl Queue {
    fn apply(&mut self, change: &Change, by: i64) {
        match change {
            Change::Create { path, .. } if directory(path) == PATH => {
                self.nodes.insert(sequence(path), (path.clone(), by));
            }
            Change::Delete { path } => self.nodes.retain(|_, (node, _)| node != path),
            Change::CloseSession => self.nodes.retain(|_, (_, session)| *session != by),
            Change::Set { path, data } if path == COUNTER => {
                let (number, (first, session)) = self.nodes.first_key_value().unwrap();
                assert_eq!(*session, by, "{first} was not of who wrote {data:?}");
                self.wrote.push(*number);
                assert_eq!(*data, self.wrote.len().to_string().as_bytes());
            }
            Change::Multi(parts) => parts.iter().for_each(|part| self.apply(part, by)),
            _ => {}
        }
    }
}

fn directory(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(directory, _)| directory)
}
