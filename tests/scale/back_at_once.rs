//! Thousands of sessions lose their connections at the same moment, and come back.
//!
//! ```sh
//! BACK_AT_ONCE=10000 cargo test -p tests --test scale -- back_at_once --nocapture
//! ```

use std::env;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use lock_recipes::{InterProcessMutex, MutexGuard, Session, SessionHealth, ZooKeeper};
use test_rig::ZooKeeperServer;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval, sleep, timeout};

/// The default number of sessions. Every other one holds a lock.
const SESSIONS: usize = 200;
/// How many are opened together.
const AT_ONCE: usize = 100;
/// Pauses are of half a second to a second. Locks are valid for 90 s after an answer: a server takes its time to start on a busy
/// machine.
const T: Duration = Duration::from_secs(180);
const OUTAGE: Duration = Duration::from_secs(10);
/// What the first attempts of all have in common is over.
const SETTLED: Duration = Duration::from_secs(2);
/// A tenth of the longest pause.
const MOMENT: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(300);

/// Stands at the address of a server that is away, and notes who comes.
struct Gate {
    came: Arc<Mutex<Vec<Instant>>>,
    /// It ran at these times: on a busy machine there are moments in which nothing does.
    ran: Arc<Mutex<Vec<Instant>>>,
    task: JoinHandle<()>,
}

impl Gate {
    async fn at(address: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let came = Arc::<Mutex<Vec<Instant>>>::default();
        let ran = Arc::<Mutex<Vec<Instant>>>::default();
        let (comes, runs) = (Arc::clone(&came), Arc::clone(&ran));
        let task = tokio::spawn(async move {
            let mut ticks = interval(MOMENT / 4);
            loop {
                let times = tokio::select! {
                    // Nobody gets in.
                    client = listener.accept() => {
                        drop(client.unwrap());
                        &comes
                    }
                    _ = ticks.tick() => &runs,
                };
                times.lock().unwrap().push(Instant::now());
            }
        });
        Self { came, ran, task }
    }

    /// Returns when they came, and when it ran.
    async fn leave(self) -> (Vec<Instant>, Vec<Instant>) {
        self.task.abort();
        drop(self.task.await);
        let [came, ran] = [self.came, self.ran].map(|it| std::mem::take(&mut *it.lock().unwrap()));
        (came, ran)
    }
}

async fn session(address: &str, number: usize) -> (Session, Option<MutexGuard>) {
    let builder = ZooKeeper::builder().session_timeout(T);
    let session = builder.connect(address).await.unwrap();
    let mut held = None;
    if number % 2 == 0 {
        let lock = InterProcessMutex::new(&session, &format!("/locks/{number}")).unwrap();
        held = Some(lock.acquire().await.unwrap());
    }
    (session, held)
}

async fn connected(session: &Session) {
    let mut health = session.watch_health();
    while session.health() != SessionHealth::Connected {
        health.changed().await;
    }
}

/// In how many of these moments at least so many came.
fn busy(came: &[Instant], from: Instant, moments: u32, least: usize) -> usize {
    let here = |moment| {
        let begin = from + MOMENT * moment;
        came.iter()
            .filter(move |it| (begin..begin + MOMENT).contains(it))
    };
    let busy = (0..moments).filter(|moment| here(*moment).count() >= least);
    busy.count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_that_come_back_at_once_ask_at_different_moments_on_a_real_server() {
    let count = env::var("BACK_AT_ONCE").map_or(SESSIONS, |it| it.parse().unwrap());
    let builder = ZooKeeperServer::builder().config("maxSessionTimeout", "600000");
    let server = builder.heap_mib(1_000).start().await.unwrap();
    let address = server.connect_string();
    let opened = stream::iter((0..count).map(|number| session(&address, number)));
    let sessions: Vec<_> = opened.buffer_unordered(AT_ONCE).collect().await;

    server.kill().await.unwrap();
    let began = Instant::now();
    let gate = Gate::at(&address).await;
    sleep(OUTAGE).await;
    let lasted = began.elapsed();
    let (came, ran) = gate.leave().await;
    server.start_again().await.unwrap();
    let (back, before) = (Instant::now(), server.zxid().await.unwrap());
    for (session, _) in &sessions {
        timeout(PATIENCE, connected(session)).await.unwrap();
    }
    let returned = back.elapsed();
    let transactions = server.zxid().await.unwrap() - before;
    let lost = sessions
        .iter()
        .filter(|it| it.0.epoch() != 1 || it.1.as_ref().is_some_and(|it| !it.is_valid()));
    let lost = lost.count();

    // One in half a second at most, and the first ones.
    let most = lasted.as_secs_f64() / 0.5 + 2.0;
    let moments = u32::try_from((lasted - SETTLED).as_millis() / MOMENT.as_millis()).unwrap();
    // Were they in step, one moment in five to ten would be busy.
    let ran = busy(&ran, began + SETTLED, moments, 1);
    let busy = busy(&came, began + SETTLED, moments, count / 40);
    println!(
        "{count} sessions asked {:.1} times each in {lasted:?}, at {busy} of {ran} moments; \
         all were back {returned:?} later, after {transactions} transactions; {lost} lost",
        came.len() as f64 / count as f64,
    );
    assert!(came.len() as f64 <= most * count as f64, "at most {most}");
    // A busy machine lets them all run, and all wait, for longer than a moment.
    assert!(busy * 4 > ran, "{busy} of {ran}, of {moments}");
    assert_eq!(lost, 0);
}
