//! A holder that is cut off knows it before the server gives the lock to another, and by how much.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join_all;
use lock_recipes::{Error, LockGuard, ReleaseError, Session};
use recipes_core::SessionOptions;
use test_rig::{Direction, FaultProxy, ZooKeeperServer};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{Instant, sleep, timeout};

use crate::observer::Observer;
use crate::recipe::{Recipe, lock};
use crate::store::Servers;

/// Partitions of every recipe for each way of being cut off: 60 sessions at a time, which connect again and again. On two
/// cores that are busy, a database takes longer for them all than a first try has.
const EACH: usize = 3;
/// A busy machine may halt a process for a quarter of this session timeout and more.
const SESSION_TIMEOUT: Duration = Duration::from_secs(4);
/// Longer than any session, and the restart of one, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);
/// Of the session that waits for all of them.
const STEADY_TIMEOUT: Duration = Duration::from_secs(60);
/// How many holders connect at a time. A connect of such a short session is given up and tried again
/// after a part of a second, and on a busy machine that does not do for all of them together.
const CONNECTING: usize = 4;
/// The golden ratio: the fractions of its multiples spread evenly.
const SPREAD: f64 = 0.618_034;

/// How a holder is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Nothing arrives in either direction, ever.
    Both,
    /// Nothing arrives at the server.
    ToServer,
    /// The server gets the holder's frames, also after a reconnect, but its answers do not arrive.
    FromServer,
    /// Nothing arrives until much later, and then all of it.
    Late,
}

impl Way {
    const ALL: [Self; 4] = [Self::Both, Self::ToServer, Self::FromServer, Self::Late];

    fn take(self, proxy: &FaultProxy) {
        match self {
            Self::Both => {
                proxy.black_hole(Direction::ToServer);
                proxy.black_hole(Direction::FromServer);
            }
            Self::ToServer => proxy.black_hole(Direction::ToServer),
            Self::FromServer => proxy.black_hole(Direction::FromServer),
            Self::Late => {
                proxy.stall(Direction::ToServer);
                proxy.stall(Direction::FromServer);
            }
        }
    }
}

struct Partition {
    number: usize,
    recipe: Recipe,
    way: Way,
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} cut off {:?}", self.recipe, self.way)
    }
}

struct Stage {
    /// The holders connect to them in turn.
    servers: Servers,
    waiting: Session,
    observer: Observer,
    connecting: Semaphore,
}

impl Partition {
    /// How long the holder had known when the server deleted its node. `None` if the machine was so
    /// busy that the lock was lost before it was cut off.
    async fn play(self, stage: Arc<Stage>) -> Option<Duration> {
        let addresses = stage.servers.addresses();
        let address = addresses.iter().cycle().nth(self.number);
        let proxy = stage.servers.proxy(address.expect("a server")).await;
        let proxy = proxy.expect("a proxy");
        let options = SessionOptions::new()
            .session_timeout(SESSION_TIMEOUT)
            .connect_timeout(PATIENCE);
        let address = proxy.connect_string();
        let turn = stage.connecting.acquire().await.expect("a turn");
        let session = stage.servers.connect(&address, options).await;
        drop(turn);
        let session = session.expect("a session");
        let directory = format!("/partition/{}", self.number);
        let lock_of_holder = lock(&session, &self.recipe.subject(&directory));
        let held = lock_of_holder.acquire().await.expect("a free lock");
        let token = held.members().first().map(|it| it.fencing_token);
        let node = held.members().into_iter().map(|it| it.node_path).next();
        let node = node.expect("a member");
        let deletion = tokio::select! {
            _ = held.lost() => return None,
            deletion = stage.observer.deletion(&node) => deletion?,
        };
        let waiter = lock(&stage.waiting, &self.recipe.behind(&directory));
        let waiter = tokio::spawn(waiter.acquire());

        // Each at another moment between two heartbeats, and between two ticks of the server.
        let phase = (self.number as f64 * SPREAD).fract();
        sleep(SESSION_TIMEOUT.mul_f64(0.2 + phase)).await;
        if !held.is_valid() {
            return None;
        }
        let told = note_when_told(&held);
        self.way.take(&proxy);

        let deleted = timeout(PATIENCE, deletion).await;
        let deleted_at = Instant::now();
        // This comes first, because asking whether it is valid would itself report the loss.
        let is_told = held.lost().now_or_never().is_some();
        assert!(!held.is_valid(), "{self}: valid when the server gave it up");
        assert!(is_told, "{self}: not told when the server gave it up");
        deleted.expect("the server expires the session");
        let granted = timeout(PATIENCE, waiter).await.expect("a grant");
        let granted = granted.expect("a waiter").expect("a grant");
        assert!(granted.members().first().map(|it| it.fencing_token) > token);

        // Delayed frames arrive, or the connection breaks. Neither gives the lock back or takes it
        // from its new holder.
        proxy.restore();
        let released = held.release().await;
        assert!(
            matches!(released, Err(Error::Release(ReleaseError::Lost(_)))),
            "{self}: {released:?}"
        );
        let again = tokio::spawn(lock_of_holder.acquire());
        sleep(SESSION_TIMEOUT / 2).await;
        assert!(granted.is_valid() && !again.is_finished(), "{self}");
        granted.release().await.expect("a release");
        let again = timeout(PATIENCE, again).await.expect("a grant");
        drop(again.expect("a task").expect("a grant"));
        let told_at = told.await.expect("told");
        Some(deleted_at.saturating_duration_since(told_at))
    }
}

/// When a task that waits for the loss is notified.
fn note_when_told(held: &LockGuard) -> oneshot::Receiver<Instant> {
    let (sender, told) = oneshot::channel();
    let lost = held.lost();
    tokio::spawn(async move {
        lost.await;
        // The receiver is gone if the test has failed.
        let _ = sender.send(Instant::now());
    });
    told
}

/// Cuts holders off in every way, all at the same time. Prints how much earlier than the server
/// they knew.
async fn cut_off(servers: Servers) {
    let [first, second, third] = servers.addresses();
    let any = match &servers {
        Servers::Three(_) => [first, second, third].join(","),
        _ => first,
    };
    let steady = SessionOptions::new().session_timeout(STEADY_TIMEOUT);
    let waiting = servers.connect(&any, steady).await;
    let stage = Arc::new(Stage {
        waiting: waiting.expect("a session"),
        observer: Observer::of(&servers).await,
        connecting: Semaphore::new(CONNECTING),
        servers,
    });
    let mut told = Vec::new();
    // On a busy machine a holder may lose its lock before it is cut off. Then others are cut off.
    let until = Instant::now() + PATIENCE;
    while told.len() < 16 * EACH * 3 / 4 && Instant::now() < until {
        told.extend(play(&stage).await);
    }
    println!(
        "{}, session of {SESSION_TIMEOUT:?}, {} partitions: told so many ms before the server \
         deleted the node",
        stage.servers.name(),
        told.len()
    );
    for way in Way::ALL {
        let of_way = told.iter().filter(|(it, _)| *it == way);
        let mut of_way: Vec<_> = of_way.map(|(_, margin)| margin.as_millis()).collect();
        of_way.sort_unstable();
        println!("  {way:?}: {of_way:?}");
    }
    assert!(told.len() >= 16 * EACH * 3 / 4, "the machine is too busy");
    assert!(told.iter().all(|(_, margin)| !margin.is_zero()), "{told:?}");
}

/// Cuts holders of every kind off in every way, at the same time. Returns by how much those knew
/// earlier than the server that were cut off while they held.
async fn play(stage: &Arc<Stage>) -> Vec<(Way, Duration)> {
    let mut partitions = Vec::new();
    for _ in 0..EACH {
        for recipe in [
            Recipe::Mutex,
            Recipe::Read,
            Recipe::Write,
            Recipe::Set,
            Recipe::Permit,
        ] {
            for way in Way::ALL {
                partitions.push(Partition {
                    number: partitions.len(),
                    recipe,
                    way,
                });
            }
        }
    }
    let ways: Vec<_> = partitions.iter().map(|it| it.way).collect();
    let played = partitions
        .into_iter()
        .map(|it| tokio::spawn(it.play(Arc::clone(stage))));
    let margins = join_all(played.collect::<Vec<_>>()).await;
    let mut told = Vec::new();
    for (way, margin) in ways.into_iter().zip(margins) {
        told.extend(margin.expect("a partition").map(|margin| (way, margin)));
    }
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_that_is_cut_off_knows_before_the_next_one_is_granted() {
    cut_off(Servers::zookeeper().await).await;
}

/// The leader of an ensemble expires sessions. Only its own pings, twice a tick, show it what its
/// followers have received. That makes it late by a quarter of the session if the session is two
/// ticks long, the least that a server grants by default.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_that_is_cut_off_from_an_ensemble_knows_before_the_next_one_is_granted() {
    let tick = SESSION_TIMEOUT / 2;
    let servers = ZooKeeperServer::builder()
        .tick(tick)
        .start_ensemble(3)
        .await;
    cut_off(Servers::Three(servers.expect("an ensemble"))).await;
}

mod on_etcd {
    use super::{Servers, cut_off};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn holder_that_is_cut_off_knows_before_the_next_one_is_granted() {
        cut_off(Servers::etcd().await).await;
    }
}

mod on_redis {
    use super::{Servers, cut_off};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn holder_that_is_cut_off_knows_before_the_next_one_is_granted() {
        cut_off(Servers::redis().await).await;
    }
}

mod on_postgres {
    use super::{Servers, cut_off};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn holder_that_is_cut_off_knows_before_the_next_one_is_granted() {
        cut_off(Servers::postgres().await).await;
    }
}

mod on_mariadb {
    use super::{Servers, cut_off};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn holder_that_is_cut_off_knows_before_the_next_one_is_granted() {
        cut_off(Servers::mariadb().await).await;
    }
}
