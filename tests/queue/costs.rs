//! What each operation costs on a real server: its requests, one by one, and its transactions.
//!
//! These are counts and not times, so they are the same on every machine. In memory, `hand_off.rs`
//! also counts round trips, and `many_waiters.rs` counts in a queue of thousands. `scripts/bench
//! --quick` runs these tests.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join_all;
use lock_recipes::{
    DistributedLock, InterProcessMutex, Member, MultiLock, MutexGuard, ReleaseOutcome, Session,
    ZooKeeper,
};
use test_rig::{Direction, FaultProxy, Frame, Opcode, TestEnsemble, ZooKeeperServer};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

const PATH: &str = "/locks/orders";
/// Long enough that a busy machine loses no session, and that no heartbeat is due which would be counted.
const SESSION_TIMEOUT: Duration = Duration::from_secs(1200);
/// Reactions to a notification come within this time.
const QUIET: Duration = Duration::from_millis(100);
/// An awaited event that takes longer never happens.
const PATIENCE: Duration = Duration::from_secs(120);
/// A session reads the node of a lock that it has held for longer.
const OWN_WATCH_GRACE: Duration = Duration::from_millis(250);
/// Each operation runs this many times, so that costs which arise only now and then would show.
const TIMES: usize = 20;
/// Locks of a batch.
const SEATS: usize = 32;
/// After this many cycles a session knows that no other client uses its lock.
const KNOWN: usize = 8;

/// A server behind a proxy that logs the requests of sessions.
struct Stage {
    ensemble: TestEnsemble,
    proxy: FaultProxy,
}

#[derive(Debug)]
struct Costs {
    /// In the order of their arrival, with the number of the connection.
    requests: Vec<(u64, Opcode)>,
    /// Watches that have fired, by connection.
    notified: BTreeMap<u64, usize>,
    transactions: i64,
}

impl Stage {
    async fn set() -> Self {
        // Reaping empty directories takes transactions that no client requested.
        let server =
            ZooKeeperServer::builder().property("znode.container.checkIntervalMs", "3600000");
        let server = server.config("maxSessionTimeout", "1200000");
        let server = server.start().await.unwrap();
        let proxy = FaultProxy::start(&server.connect_string()).await.unwrap();
        let ensemble = TestEnsemble::Real(server.into());
        Self { ensemble, proxy }
    }

    /// A session with a connection of its own; the first has number 1.
    async fn session(&self) -> Session {
        let options = ZooKeeper::builder().session_timeout(SESSION_TIMEOUT);
        let connected = options.connect(&self.proxy.connect_string()).await;
        connected.unwrap()
    }

    /// Waits until a node was read over the connection.
    async fn until_read(&self, connection: u64) {
        let is_answer = |it: &Frame| {
            it.connection == connection
                && it.direction == Direction::FromServer
                && it.opcode == Opcode::GetData
        };
        let read = async {
            while !self.proxy.log().iter().any(is_answer) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, read).await.unwrap();
    }

    /// Waits until there has been no frame for a moment.
    async fn quiet(&self) {
        let mut before = None;
        loop {
            let now = Some(self.proxy.log().len());
            if now == before {
                return;
            }
            before = now;
            tokio::time::sleep(QUIET).await;
        }
    }

    /// The costs of the operation, with everything that follows from it.
    async fn costs_of<T>(&self, operation: impl Future<Output = T>) -> (T, Costs) {
        self.quiet().await;
        self.proxy.clear_log();
        let zxid = self.ensemble.zxid().await;
        let done = operation.await;
        self.quiet().await;
        let transactions = self.ensemble.zxid().await - zxid;
        let frames = self.proxy.log();
        let frames: Vec<_> = frames.iter().filter(|frame| !is_alive(frame)).collect();
        let requests = frames
            .iter()
            .filter(|it| it.direction == Direction::ToServer);
        let mut notified = BTreeMap::new();
        for frame in frames.iter().filter(|it| it.opcode == Opcode::Notification) {
            *notified.entry(frame.connection).or_default() += 1;
        }
        let costs = Costs {
            requests: requests.map(|it| (it.connection, it.opcode)).collect(),
            notified,
            transactions,
        };
        (done, costs)
    }
}

/// Whether the frame only keeps the session alive: a ping, or a heartbeat and its answer.
fn is_alive(frame: &Frame) -> bool {
    match frame.opcode {
        Opcode::Ping | Opcode::Connect => true,
        Opcode::Sync => frame.paths == ["/"],
        _ => false,
    }
}

impl Costs {
    fn opcodes(&self) -> Vec<Opcode> {
        self.requests.iter().map(|(_, opcode)| *opcode).collect()
    }
}

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uncontended_lock_is_one_create_one_list_one_delete_and_then_no_list_on_a_real_server() {
    let stage = Stage::set().await;
    let lock = mutex(&stage.session().await);
    let cycle = async || lock.acquire().await.unwrap().release().await.unwrap();
    // This creates the directory.
    cycle().await;
    for number in 1..TIMES {
        let (released, costs) = stage.costs_of(cycle()).await;
        assert_eq!(released, ReleaseOutcome::Released);
        let expected: &[_] = match number {
            ..KNOWN => &[Opcode::Create, Opcode::GetChildren, Opcode::Delete],
            // The session watches the directory, once.
            KNOWN => &[
                Opcode::Create,
                Opcode::GetChildren,
                Opcode::GetData,
                Opcode::Delete,
            ],
            _ => &[Opcode::Create, Opcode::Delete],
        };
        assert_eq!(costs.opcodes(), expected, "cycle {number}");
        assert_eq!(costs.transactions, 2);
        assert_eq!(costs.notified, BTreeMap::new());
    }
    println!(
        "acquire + release: 2 requests, 2 transactions, once nobody else has come for a while"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_given_up_in_one_moment_share_transactions_on_a_real_server() {
    let stage = Stage::set().await;
    let session = stage.session().await;
    let locks: Vec<_> = (0..SEATS)
        .map(|it| InterProcessMutex::new(&session, &seat_path(it)).unwrap())
        .collect();
    let mut most = 0;
    for _ in 0..TIMES {
        let held = join_all(locks.iter().map(InterProcessMutex::acquire)).await;
        let released = join_all(held.into_iter().map(|it| it.unwrap().release()));
        let (released, costs) = stage.costs_of(released).await;
        for released in released {
            assert_eq!(released.unwrap(), ReleaseOutcome::Released);
        }
        // Two, or five if the queue runs on another thread: one alone, three small ones, the rest.
        // There are some more if this thread has to stop in between.
        assert!(costs.transactions <= 12, "{costs:?}");
        most = most.max(costs.transactions);
    }
    println!("{SEATS} releases in one moment: at most {most} transactions");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_that_is_handed_over_and_given_back_at_once_is_two_deletes_on_a_real_server() {
    let stage = Stage::set().await;
    let (ours, theirs) = (mutex(&stage.session().await), mutex(&stage.session().await));
    let mut judged = 0;
    while judged < TIMES {
        stage.proxy.clear_log();
        let held = ours.acquire().await.unwrap();
        // It has been held for long enough that its session reads its node, once.
        stage.until_read(1).await;
        let next = theirs.clone();
        let next = tokio::spawn(async move { next.acquire().await.unwrap().release().await });
        stage.ensemble.await_children(PATH, 2).await;
        // The holder's own, and the waiter's two.
        stage.ensemble.await_watches(3).await;
        let handed_over = async {
            let since = Instant::now();
            held.release().await.unwrap();
            next.await.unwrap().unwrap();
            since.elapsed()
        };
        let (took, costs) = stage.costs_of(handed_over).await;
        // Otherwise the machine has halted the next holder for as long.
        if took < OWN_WATCH_GRACE {
            assert_eq!(costs.opcodes(), [Opcode::Delete, Opcode::Delete]);
            judged += 1;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_leaves_with_the_create_and_not_after_its_reply_on_a_real_server() {
    let stage = Stage::set().await;
    let session = stage.session().await;
    let set = MultiLock::new(&session, (0..8).map(|seat| Member::mutex(seat_path(seat)))).unwrap();
    let locks: [(&dyn DistributedLock, _, _); 2] = [
        (&mutex(&session), Opcode::Create, Opcode::GetChildren),
        (&set, Opcode::Multi, Opcode::MultiRead),
    ];
    for (lock, create, list) in locks {
        lock.acquire().await.unwrap().release().await.unwrap();
        stage.quiet().await;
        stage.proxy.clear_log();
        let reply = stage.proxy.on(Direction::FromServer).opcode(create).hold();
        let listed = async {
            reply.reached().await;
            // This matches only the connection that waits. On another one it would search for the
            // lost create.
            let requests = stage.proxy.on(Direction::ToServer).connection(1);
            requests.opcode(list).nth(1).seen().await;
            reply.release();
        };
        let (held, ()) = tokio::join!(
            lock.acquire(),
            timeout(PATIENCE, listed).map(Result::unwrap)
        );
        held.unwrap().release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn try_on_a_busy_lock_is_one_list_and_no_transaction_on_a_real_server() {
    let stage = Stage::set().await;
    let held = mutex(&stage.session().await).acquire().await.unwrap();
    let tries = mutex(&stage.session().await);
    for _ in 0..TIMES {
        let (granted, costs) = stage.costs_of(tries.try_acquire()).await;
        assert!(granted.unwrap().is_none());
        let of_the_try = costs
            .requests
            .iter()
            .filter(|(connection, _)| *connection == 2);
        let of_the_try: Vec<_> = of_the_try.collect();
        assert_eq!(of_the_try, [&(2, Opcode::GetChildren)]);
        assert_eq!(costs.transactions, 0);
    }
    held.release().await.unwrap();
    println!("failed try: 1 request, 0 transactions");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn set_of_eight_is_two_transactions_and_at_most_one_read_of_all_queues_on_a_real_server() {
    let stage = Stage::set().await;
    let session = stage.session().await;
    let set = MultiLock::new(&session, (0..8).map(|seat| Member::mutex(seat_path(seat)))).unwrap();
    let cycle = async || set.acquire().await.unwrap().release().await.unwrap();
    cycle().await;
    for number in 1..TIMES {
        let (released, costs) = stage.costs_of(cycle()).await;
        assert_eq!(released, ReleaseOutcome::Released);
        let mut opcodes = costs.opcodes();
        // Servers before 3.7.2 and 3.8.2 do not return the number of a transaction. Reads in the
        // same flush return it, so no request follows.
        let looks = [Opcode::Exists, Opcode::Multi, Opcode::Exists];
        if opcodes.starts_with(&looks) {
            opcodes.splice(..looks.len(), [Opcode::Multi]);
        }
        let mut expected = vec![Opcode::Multi];
        expected.extend((number <= KNOWN).then_some(Opcode::MultiRead));
        // The session watches each directory, once.
        expected.extend([Opcode::GetData].repeat(if number == KNOWN { 8 } else { 0 }));
        expected.push(Opcode::Multi);
        assert_eq!(opcodes, expected, "cycle {number}");
        assert_eq!(costs.transactions, 2);
    }
    println!(
        "set of 8, acquire + release: 2 transactions, at most 1 read of all queues and 2 looks"
    );
}

fn seat_path(seat: usize) -> String {
    format!("/seats/{seat}")
}

/// A granted waiter: its connection and its guard.
type Granted = (u64, MutexGuard);

/// Lets all sessions but the first queue up after it, until they watch. The receiver gets the grants.
async fn queue(stage: &Stage, sessions: &[Session]) -> mpsc::UnboundedReceiver<Granted> {
    let (grants, granted) = mpsc::unbounded_channel();
    let mut watches = 0;
    for (ahead, (session, connection)) in sessions.iter().zip(1..).enumerate() {
        let (lock, grants) = (mutex(session), grants.clone());
        tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            // At the end of the test the receiver is gone.
            grants.send((connection, guard)).ok();
        });
        stage.ensemble.await_children(PATH, ahead + 1).await;
        // Each watches its own node and the two ahead of it, if there are any. A holder that did not wait watches its
        // node after it has held for a while.
        watches += (ahead + 1).min(3);
        stage.ensemble.await_watches(watches).await;
    }
    granted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_wakes_the_next_and_the_one_behind_it_in_a_queue_of_any_length_on_a_real_server() {
    /// So few that even the shorter queue always has a waiter after the next one.
    const HAND_OFFS: usize = 3;
    for waiters in [HAND_OFFS + 1, 40] {
        let stage = Stage::set().await;
        let mut sessions = Vec::new();
        for _ in 0..=waiters {
            sessions.push(stage.session().await);
        }
        let mut granted = queue(&stage, &sessions).await;
        let (mut holder, mut held) = granted.recv().await.unwrap();
        for number in 1..=HAND_OFFS {
            // The third contender of a queue knows both that are ahead of it since it joined.
            let lists = number > 1;
            let hand_off = async {
                held.release().await.unwrap();
                let next = granted.recv().await.unwrap();
                if lists {
                    // The waiter after the new holder lists to find out who is ahead of it now.
                    let listing = stage.proxy.on(Direction::FromServer);
                    listing.opcode(Opcode::GetChildren).seen().await;
                }
                next
            };
            let ((next, guard), costs) = stage.costs_of(hand_off).await;
            assert_eq!(next, holder + 1, "first come, first served");
            assert!(granted.try_recv().is_err(), "granted to two");
            // Only the first is on the critical path.
            let mut expected = vec![(holder, Opcode::Delete)];
            expected.extend(lists.then_some((next + 1, Opcode::GetChildren)));
            assert_eq!(costs.requests, expected, "{waiters} waiters");
            // The holder also watches its own node, if it has waited.
            let mut notified = costs.notified.clone();
            notified.remove(&holder);
            assert_eq!(notified, BTreeMap::from([(next, 1), (next + 1, 1)]));
            assert_eq!(costs.transactions, 1);
            (holder, held) = (next, guard);
        }
        println!(
            "hand-off with {waiters} waiters: 2 requests, 1 transaction, 2 contenders notified"
        );
    }
}

/// Each of three contenders lists once, when it joins.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_of_three_contenders_is_three_listings_on_a_real_server() {
    let stage = Stage::set().await;
    let sessions = [
        stage.session().await,
        stage.session().await,
        stage.session().await,
    ];
    // This creates the directory.
    let first = mutex(&sessions[0]).acquire().await.unwrap();
    first.release().await.unwrap();
    let turns = async {
        let mut granted = queue(&stage, &sessions).await;
        for _ in &sessions {
            let (_, held) = granted.recv().await.unwrap();
            held.release().await.unwrap();
        }
    };
    let ((), costs) = stage.costs_of(turns).await;
    let opcodes = costs.opcodes();
    let count = |opcode| opcodes.iter().filter(|it| **it == opcode).count();
    assert_eq!(count(Opcode::GetChildren), 3, "{opcodes:?}");
    // The holder watches its own node, the second also the first, and the third both.
    assert_eq!(count(Opcode::GetData), 1 + 2 + 3, "{opcodes:?}");
    let changes = [Opcode::Create, Opcode::Delete].map(count);
    assert_eq!(changes, [3, 3], "{opcodes:?}");
    assert_eq!(opcodes.len(), 15, "{opcodes:?}");
    println!("3 contenders, from the first create to the last delete: 15 requests");
}
