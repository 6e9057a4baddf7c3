//! Servers whose operator has lowered the session timeout that they grant. A reconnect negotiates it
//! anew, and what the server grants counts from the moment at which it is asked.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, join, join_all, select};
use lock_recipes::{InterProcessMutex, LeaderLatch, LostReason, Session, ZooKeeper};
use test_rig::{Cut, Direction, Fault, FaultProxy, MemoryEnsemble, Opcode, ZooKeeperServer};
use tokio::time::{Instant, sleep, timeout};

const PATH: &str = "/locks/orders";
const T: Duration = Duration::from_secs(12);
/// So long that a server is back before a lock is lost.
const LONG: Duration = Duration::from_secs(60);
const SHORTER: Duration = Duration::from_secs(4);
const PATIENCE: Duration = Duration::from_secs(120);

/// The ensemble ends the session 4 s after the second cut, when the first holder would have trusted its
/// lock for 6 s.
#[tokio::test(start_paused = true)]
async fn no_second_holder_after_a_reconnect_under_a_shorter_timeout() {
    let memory = MemoryEnsemble::builder().session_timeout(T).build();
    let (first, second) = (memory.session(), memory.session());
    let held = InterProcessMutex::new(&first, PATH).unwrap();
    let held = held.acquire().await.unwrap();
    let id = first.session_id().unwrap();
    memory.grant_session_timeout(SHORTER);
    memory.disconnect(id);
    memory.reconnect(id);
    // A heartbeat is answered, and proves nothing about the new timeout.
    sleep(T / 4).await;
    memory.disconnect(id);
    let next = InterProcessMutex::new(&second, PATH).unwrap();
    let granted = next.acquire().await.unwrap();
    assert!(granted.is_valid() && !held.is_valid());
    assert_eq!(held.lost().await.reason, LostReason::DeadlinePassed);
}

/// The lock is kept, and trusted for as long as the session lives now.
#[tokio::test(start_paused = true)]
async fn session_goes_on_with_the_timeout_that_it_gets() {
    let memory = MemoryEnsemble::builder().session_timeout(T).build();
    let session = memory.session();
    let lock = InterProcessMutex::new(&session, PATH).unwrap();
    let held = lock.acquire().await.unwrap();
    memory.grant_session_timeout(SHORTER);
    memory.stop();
    memory.restart();
    for _ in 0..10 {
        sleep(SHORTER).await;
        held.verify().await.unwrap();
    }
    assert_eq!(session.epoch(), 1);
    memory.disconnect(session.session_id().unwrap());
    sleep(SHORTER * 5 / 12).await;
    assert!(held.valid_until().is_some());
    sleep(SHORTER / 6).await;
    assert_eq!(held.valid_until(), None);
}

/// The same timeout, or a longer one, takes nothing away.
#[tokio::test(start_paused = true)]
async fn reconnect_under_the_same_timeout_or_a_longer_one_keeps_the_lock() {
    let memory = MemoryEnsemble::builder().session_timeout(T).build();
    let session = memory.session();
    let held = InterProcessMutex::new(&session, PATH).unwrap();
    let held = held.acquire().await.unwrap();
    let id = session.session_id().unwrap();
    for granted in [T, 2 * T] {
        memory.grant_session_timeout(granted);
        memory.disconnect(id);
        memory.reconnect(id);
        sleep(2 * T).await;
        held.verify().await.unwrap();
    }
}

/// What is held.
#[derive(Clone, Copy, Debug)]
enum Held {
    Lock,
    /// Leadership, by a latch.
    Lead,
}

impl Held {
    /// Takes it. Returns what tells when the holder learns of its loss, and keeps what is held until then.
    async fn take(self, session: &Session, path: &str) -> Lost {
        let lost = match self {
            Self::Lock => {
                let lock = InterProcessMutex::new(session, path).unwrap();
                let held = lock.acquire().await.unwrap();
                tokio::spawn(async move {
                    held.lost().await;
                    (Instant::now(), Arc::new(held) as Kept)
                })
            }
            Self::Lead => {
                let latch = LeaderLatch::start(session, path, "first").unwrap();
                let mut watcher = latch.watch();
                assert!(watcher.changed().await.unwrap());
                tokio::spawn(async move {
                    assert!(!watcher.changed().await.unwrap());
                    (Instant::now(), Arc::new(latch) as Kept)
                })
            }
        };
        lost.map(Result::unwrap).boxed().shared()
    }

    /// Waits until somebody else has it, and returns when that was.
    async fn next(self, session: &Session, path: &str) -> Instant {
        match self {
            Self::Lock => {
                let lock = InterProcessMutex::new(session, path).unwrap();
                let next = timeout(PATIENCE, lock.acquire()).await.unwrap().unwrap();
                let granted = Instant::now();
                next.release().await.unwrap();
                granted
            }
            Self::Lead => {
                let latch = LeaderLatch::start(session, path, "second").unwrap();
                let leads = timeout(PATIENCE, latch.wait_until_leader()).await;
                leads.unwrap().unwrap();
                let granted = Instant::now();
                latch.stop().await.unwrap();
                granted
            }
        }
    }
}

/// What is held. Whoever lets go of it releases it.
type Kept = Arc<dyn Send + Sync>;
/// When a holder learns of its loss.
type Lost = Shared<BoxFuture<'static, (Instant, Kept)>>;

/// A holder behind proxies, on servers that will grant less.
struct Holder {
    proxies: Vec<FaultProxy>,
    held: Held,
    path: String,
    lost: Lost,
}

impl Holder {
    async fn new(servers: &[ZooKeeperServer], held: Held, number: usize, t: Duration) -> Self {
        let mut proxies = Vec::new();
        for server in servers {
            proxies.push(FaultProxy::start(&server.connect_string()).await.unwrap());
        }
        let addresses: Vec<_> = proxies.iter().map(FaultProxy::connect_string).collect();
        let builder = ZooKeeper::builder().session_timeout(t);
        let session = builder.connect(&addresses.join(",")).await.unwrap();
        let path = format!("{PATH}/{number}");
        Self {
            lost: held.take(&session, &path).await,
            proxies,
            held,
            path,
        }
    }

    fn cut(&self) {
        self.proxies.iter().for_each(|it| it.cut_all(Cut::Reset));
    }

    /// Nothing reaches a server from now on.
    fn silence(&self) {
        let all = self.proxies.iter();
        all.for_each(|it| it.black_hole(Direction::ToServer));
    }

    /// The connection to the only server is cut. The answer to the first attempt to move the session to another
    /// one is lost, and nothing passes from then on. So it is with a holder that has learnt of its loss: the time
    /// that counts since the restart may be over since its last heartbeat, and its session asks nothing before
    /// it moves.
    async fn lose_the_move(&self) {
        // Before it comes the answer to the session that asks what is granted.
        let answers = self.proxies[0].on(Direction::FromServer);
        let lost = answers.opcode(Opcode::Connect).nth(2);
        let lost = lost.then(Fault::BlackHole);
        self.cut();
        let lost = select(Box::pin(lost.struck()), self.lost.clone());
        drop(timeout(PATIENCE, lost).await.unwrap());
        self.silence();
    }

    /// Waits for what it holds with another session, and returns how long after its loss that got it. `None` if
    /// it trusted what it held then.
    async fn margin(self, addresses: &str) -> Option<Duration> {
        let session = ZooKeeper::builder().session_timeout(Duration::from_secs(4));
        let session = session.connect(addresses).await.unwrap();
        let granted = self.held.next(&session, &self.path).await;
        let (at, _kept) = timeout(PATIENCE, self.lost).await.unwrap();
        granted.checked_duration_since(at)
    }
}

/// Holders that have a timeout, on servers that grant less as soon as they are started again.
async fn holders(
    servers: &[ZooKeeperServer],
    (held, count): (Held, usize),
    (before, after): (Duration, Duration),
) -> Vec<Holder> {
    let holders = (0..count).map(|number| Holder::new(servers, held, number, before));
    let holders = join_all(holders).await;
    let after = after.as_millis().to_string();
    for server in servers {
        server.configure("maxSessionTimeout", &after).unwrap();
    }
    holders
}

async fn margins(addresses: &str, holders: Vec<Holder>) -> Vec<Option<Duration>> {
    join_all(holders.into_iter().map(|it| it.margin(addresses))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_second_holder_while_the_answer_to_the_reconnect_is_lost_on_a_real_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    let terms = (Duration::from_secs(20), SHORTER);
    let holders = holders(slice::from_ref(&server), (Held::Lock, 4), terms).await;
    server.restart().await.unwrap();
    join_all(holders.iter().map(Holder::lose_the_move)).await;
    let margins = margins(&server.connect_string(), holders).await;
    assert!(margins.iter().all(Option::is_some), "{margins:?}");
}

/// From 12 to 4 s, from 20 to 4 s, and from 30 to 10 s.
fn all_terms() -> [(Duration, Duration); 3] {
    let seconds = Duration::from_secs;
    [(12, 4), (20, 4), (30, 10)].map(|(before, after)| (seconds(before), seconds(after)))
}

/// Prints the least margin and the one in the middle.
fn table(what: &str, mut margins: Vec<Option<Duration>>) {
    let wrong = margins.iter().filter(|it| it.is_none()).count();
    margins.sort_unstable();
    let (least, middle) = (margins[0], margins[margins.len() / 2]);
    println!("{what}: {wrong} wrong, margin {least:?} at least, {middle:?} in the middle");
    assert_eq!(wrong, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a figure: 408 holders, on a machine that has nothing else to do"]
async fn no_second_holder_in_hundreds_of_reconnects_under_a_shorter_timeout() {
    let builder = || ZooKeeperServer::builder().config("maxSessionTimeout", "60000");
    for terms in all_terms() {
        for (held, is_lost) in [Held::Lock, Held::Lead]
            .into_iter()
            .flat_map(|it| [(it, false), (it, true)])
        {
            let server = builder().start().await.unwrap();
            let holders = holders(slice::from_ref(&server), (held, 34), terms).await;
            server.restart().await.unwrap();
            let cut = holders.iter().enumerate().map(async |(number, holder)| {
                if is_lost {
                    return holder.lose_the_move().await;
                }
                holder.cut();
                // Back, and cut off for good: soon after that, or at any time after a heartbeat.
                let within = [300, 8_000][number % 2];
                sleep(Duration::from_millis(fastrand::u64(0..within))).await;
                holder.silence();
            });
            join_all(cut).await;
            let what = format!("{held:?}, {terms:?}, answers lost: {is_lost}");
            table(&what, margins(&server.connect_string(), holders).await);
        }
    }
}

/// Holders are cut off for good before, while and after the servers are started again one by one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a figure: 204 holders, on a machine that has nothing else to do"]
async fn no_second_holder_in_hundreds_of_rolling_restarts_under_a_shorter_timeout() {
    for (terms, held) in all_terms()
        .into_iter()
        .flat_map(|it| [(it, Held::Lock), (it, Held::Lead)])
    {
        let ensemble = ZooKeeperServer::builder().config("maxSessionTimeout", "60000");
        let ensemble = ensemble.start_ensemble(3).await.unwrap();
        let holders = holders(ensemble.servers(), (held, 34), terms).await;
        let leader = ensemble.leader().await.unwrap();
        let rolled = async {
            let began = Instant::now();
            // The leader is the last one.
            for number in 1..=3 {
                ensemble.restart((leader + number) % 3).await.unwrap();
            }
            began.elapsed()
        };
        let cut = holders.iter().map(async |holder| {
            sleep(Duration::from_millis(fastrand::u64(0..20_000))).await;
            holder.cut();
            sleep(Duration::from_millis(fastrand::u64(0..1_000))).await;
            holder.silence();
        });
        let (took, _) = join(rolled, join_all(cut)).await;
        let what = format!("{held:?}, {terms:?}, started again in {took:?}");
        table(&what, margins(&ensemble.connect_string(), holders).await);
    }
}

/// The lock lives on with less time, and goes when that is over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_goes_on_when_its_server_grants_less_after_a_restart_on_a_real_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    let builder = ZooKeeper::builder().session_timeout(LONG);
    let session = builder.connect(&server.connect_string()).await.unwrap();
    let lock = InterProcessMutex::new(&session, PATH).unwrap();
    let mut granted = LONG;
    // A server that takes half a minute to start again has taken the lock already.
    for _ in 0..5 {
        let held = lock.acquire().await.unwrap();
        granted = granted * 2 / 3;
        let millis = granted.as_millis().to_string();
        server.configure("maxSessionTimeout", &millis).unwrap();
        server.restart().await.unwrap();
        let verified = async {
            while held.verify().await.is_err() && held.is_valid() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, verified).await.unwrap();
        if let Some(until) = held.valid_until() {
            let left = until.saturating_duration_since(Instant::now());
            assert!(left <= granted / 2, "{left:?} of {granted:?}");
            assert_eq!(session.epoch(), 1);
            return;
        }
    }
    panic!("each restart took longer than the lock was trusted");
}
