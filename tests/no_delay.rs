//! Requests that are sent together also leave together: none waits for the reply to an earlier one,
//! as it would under Nagle's algorithm.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test that cannot go on has failed"
)]

#[allow(dead_code, reason = "for other tests")]
#[path = "support/again.rs"]
mod again;
#[allow(dead_code, reason = "it logs on all threads, unlike other tests")]
#[path = "support/log.rs"]
mod log;
#[allow(dead_code, reason = "for other tests")]
#[path = "support/talk.rs"]
mod talk;

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use lock_recipes::{InterProcessMutex, Session, ZooKeeper};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use test_rig::{Cut, Direction, Fault, FaultProxy, Opcode, ZooKeeperServer};
use tokio::runtime::Runtime;
use tokio::time::{Instant, timeout};
use zookeeper_client::{Acls, Client, CreateMode};

use crate::log::Log;

const PATH: &str = "/locks/orders";
/// The number of tries to observe the order of two requests.
const TRIES: usize = 40;
/// Long enough for a busy machine between two writes. Both ways together are shorter than 40 ms.
/// After that time the kernel acknowledges what the proxy has not answered yet, which also ends the
/// wait of Nagle's algorithm.
const EACH_WAY: Duration = Duration::from_millis(15);
/// An awaited event that takes longer never happens.
const PATIENCE: Duration = Duration::from_secs(120);

/// A session whose connection lasts on a busy machine.
async fn connect(servers: &str) -> Session {
    let options = ZooKeeper::builder().session_timeout(Duration::from_secs(40));
    options.connect(servers).await.unwrap()
}

async fn proxied(each_way: Duration) -> (ZooKeeperServer, FaultProxy) {
    let server = ZooKeeperServer::start().await.unwrap();
    let proxy = FaultProxy::start(&server.connect_string()).await.unwrap();
    proxy.set_latency(each_way);
    (server, proxy)
}

/// Waits until the option of connections to the probe's peer is also set on the probe.
async fn until_set(probe: &TcpStream) {
    let set = async {
        while !probe.nodelay().unwrap() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, set)
        .await
        .expect("TCP_NODELAY is not set");
}

/// Acquires and releases. Returns how long the acquire took.
async fn acquire(session: Session) -> Duration {
    // A lock object that is kept soon knows that it is alone, and does not list.
    let lock = InterProcessMutex::new(&session, PATH).unwrap();
    let started = Instant::now();
    let guard = lock.acquire().await.unwrap();
    let took = started.elapsed();
    guard.release().await.unwrap();
    took
}

/// Whether the list of the only acquire in the log passed before the reply to the create returned.
fn left_together(proxy: &FaultProxy) -> bool {
    let log = proxy.log();
    let place = |direction, opcode| {
        log.iter()
            .position(|it| (it.direction, it.opcode) == (direction, opcode))
            .unwrap()
    };
    let list = place(Direction::ToServer, Opcode::GetChildren);
    list < place(Direction::FromServer, Opcode::Create)
}

/// In how many of these acquires the list passed before the reply to the create returned.
async fn sent_together(proxy: &FaultProxy, session: &Session) -> usize {
    let mut together = 0;
    for _ in 0..TRIES {
        proxy.clear_log();
        acquire(session.clone()).await;
        together += usize::from(left_together(proxy));
    }
    together
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_of_an_acquire_does_not_wait_for_the_reply_to_its_create() {
    let (_server, proxy) = proxied(EACH_WAY).await;
    let probe = TcpStream::connect(proxy.connect_string()).unwrap();
    let session = connect(&proxy.connect_string()).await;
    // This creates the directory.
    let lock = InterProcessMutex::new(&session, PATH).unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    drop(lock);
    until_set(&probe).await;
    let together = sent_together(&proxy, &session).await;
    eprintln!("of {TRIES} acquires, sent together: {together}");
    assert!(together >= TRIES * 9 / 10, "{together}");
    session.close().await;
}

#[tokio::test]
async fn it_is_set_again_after_a_reconnect() {
    let (_server, proxy) = proxied(Duration::ZERO).await;
    let first = TcpStream::connect(proxy.connect_string()).unwrap();
    let session = connect(&proxy.connect_string()).await;
    until_set(&first).await;
    let lock = InterProcessMutex::new(&session, PATH).unwrap();
    for _ in 0..TRIES {
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    let second = TcpStream::connect(proxy.connect_string()).unwrap();
    let deletes = proxy.on(Direction::ToServer).opcode(Opcode::Delete);
    let cut = deletes.then(Fault::CutBefore(Cut::Reset));
    let guard = lock.acquire().await.unwrap();
    assert!(!second.nodelay().unwrap(), "set without a reconnect");
    guard.release().await.unwrap();
    assert_eq!(cut.count(), 1);
    until_set(&second).await;
    session.close().await;
}

#[tokio::test]
async fn sockets_with_other_peers_are_left_alone() {
    let server = ZooKeeperServer::start().await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut others = vec![TcpStream::connect(listener.local_addr().unwrap()).unwrap()];
    others.push(listener.accept().unwrap().0);
    let highest = others.iter().map(AsRawFd::as_raw_fd).max().unwrap();
    // The probe must come after them in the list of descriptors, which is in order.
    let mut below = Vec::new();
    let probe = loop {
        let probe = TcpStream::connect(server.connect_string()).unwrap();
        if probe.as_raw_fd() > highest {
            break probe;
        }
        below.push(probe);
    };
    let session = connect(&server.connect_string()).await;
    until_set(&probe).await;
    for other in &others {
        assert!(!other.nodelay().unwrap(), "{other:?}");
    }
    session.close().await;
}

/// Log lines about the option that are above the debug level.
fn lines(log: &Log) -> Vec<String> {
    let text = log.text();
    let lines = text.lines().filter(|it| it.contains("TCP_NODELAY"));
    let lines = lines.filter(|it| !it.contains("DEBUG"));
    lines.map(ToOwned::to_owned).collect()
}

/// Takes a descriptor of any process. Default container profiles refuse it without
/// `CAP_SYS_PTRACE`. This number is the same on every architecture.
const PIDFD_GETFD: i64 = 438;
/// Passes a descriptor. Default profiles allow it.
const SENDMSG: i64 = if cfg!(target_arch = "x86_64") {
    46
} else {
    211
};

/// Refuses a system call as container profiles do, for this thread and those that it starts.
fn refuse(call: i64) {
    let filter = SeccompFilter::new(
        BTreeMap::from([(call, Vec::new())]),
        SeccompAction::Allow,
        SeccompAction::Errno(rustix::io::Errno::PERM.raw_os_error().unsigned_abs()),
        std::env::consts::ARCH.try_into().unwrap(),
    );
    seccompiler::apply_filter(&BpfProgram::try_from(filter.unwrap()).unwrap()).unwrap();
}

/// Locks and unlocks over two sessions. Prints the median of an acquire, what was logged, and how
/// many connections failed.
#[test]
#[ignore = "a process of another test"]
fn process_that_locks() {
    let Some(orders) = again::orders() else {
        return;
    };
    let (refused, servers) = orders.split_once(' ').unwrap();
    if refused == "refused" {
        refuse(SENDMSG);
    }
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_writer(log.clone())
        .with_ansi(false);
    tracing::subscriber::set_global_default(subscriber.finish()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let median = runtime.block_on(async {
        let sessions = [connect(servers).await, connect(servers).await];
        let [lock, _] = sessions
            .each_ref()
            .map(|it| InterProcessMutex::new(it, PATH).unwrap());
        let mut took = Vec::new();
        for _ in 0..TRIES * 5 {
            let started = Instant::now();
            let guard = lock.acquire().await.unwrap();
            took.push(started.elapsed());
            guard.release().await.unwrap();
        }
        for session in sessions {
            session.close().await;
        }
        took.sort();
        took[took.len() / 2]
    });
    talk::say(&format!("{median:?}"));
    let failures = log.text().matches("TCP_NODELAY not set").count();
    talk::say(&format!("{failures}"));
    talk::say(&lines(&log).join(" | "));
}

#[tokio::test]
async fn where_the_call_is_refused_it_costs_time_and_is_said_once() {
    let (_server, proxy) = proxied(Duration::from_micros(500)).await;
    let mut medians = Vec::new();
    for (orders, failures) in [("refused", 2), ("allowed", 0)] {
        let orders = format!("{orders} {}", proxy.connect_string());
        let mut process = talk::Talk::start("process_that_locks", &orders);
        medians.push(process.says().await);
        assert_eq!(process.says().await, failures.to_string());
        let said = process.says().await;
        assert_eq!(
            said.matches("two round trips").count(),
            failures.min(1),
            "{said}"
        );
        assert_eq!(
            said.matches("TCP_NODELAY").count(),
            failures.min(1),
            "{said}"
        );
        assert!(process.ended(PATIENCE).await.unwrap().success());
    }
    eprintln!("an acquire at 0.5 ms each way: refused, allowed: {medians:?}");
}

/// What a service does between two acquires.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Pace {
    /// Nothing for so long that the threads of its runtime sleep.
    Cold,
    Warm,
}

/// Where a service acquires.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Spawned,
    BlockOn,
}

const CASES: [(Place, Pace); 4] = [
    (Place::Spawned, Pace::Cold),
    (Place::Spawned, Pace::Warm),
    (Place::BlockOn, Pace::Cold),
    (Place::BlockOn, Pace::Warm),
];

/// Runs the future as the case says.
fn run<T: Send + 'static>(
    runtime: &Runtime,
    (place, pace): (Place, Pace),
    future: impl Future<Output = T> + Send + 'static,
) -> T {
    const ASLEEP: Duration = Duration::from_millis(5);
    runtime.block_on(async {
        if pace == Pace::Cold {
            tokio::time::sleep(ASLEEP).await;
        }
        match place {
            Place::Spawned => tokio::spawn(future).await.unwrap(),
            Place::BlockOn => future.await,
        }
    })
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// Creates a node and deletes it, without a lock. Returns how long the create took.
async fn create(client: Client) -> Duration {
    let mode = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let started = Instant::now();
    let (_, sequence) = client.create("/raw-", b"", &mode).await.unwrap();
    let took = started.elapsed();
    client
        .delete(&format!("/raw-{sequence}"), None)
        .await
        .unwrap();
    took
}

fn median(mut times: Vec<Duration>) -> Duration {
    let middle = times.len() / 2;
    *times.select_nth_unstable(middle).1
}

/// Also prints how long an acquire takes next to a create, which depends on the machine. So no test
/// judges by it.
fn one_round_trip_where_the_profile_refuses_to_take_descriptors() {
    refuse(PIDFD_GETFD);
    // The threads of this runtime must not keep those of the other one awake.
    let backstage = runtime();
    let (_server, proxy) = backstage.block_on(proxied(EACH_WAY));
    let probe = TcpStream::connect(proxy.connect_string()).unwrap();
    let runtime = runtime();
    let session = runtime.block_on(async {
        let session = connect(&proxy.connect_string()).await;
        until_set(&probe).await;
        // This creates the directory.
        acquire(session.clone()).await;
        session
    });
    for case in CASES {
        let together = (0..TRIES).filter(|_| {
            proxy.clear_log();
            run(&runtime, case, acquire(session.clone()));
            left_together(&proxy)
        });
        let together = together.count();
        assert!(
            together >= TRIES * 9 / 10,
            "{case:?}: {together} of {TRIES}"
        );
    }
    proxy.set_latency(Duration::from_micros(750));
    let connector = Client::connector().with_session_timeout(Duration::from_secs(40));
    let client = runtime.block_on(connector.connect(&proxy.connect_string()));
    let client = client.unwrap();
    for case in CASES {
        let both = (0..TRIES * 5).map(|_| {
            let created = run(&runtime, case, create(client.clone()));
            (created, run(&runtime, case, acquire(session.clone())))
        });
        let (created, acquired): (Vec<_>, Vec<_>) = both.unzip();
        let (created, acquired) = (median(created), median(acquired));
        let ratio = acquired.as_secs_f64() / created.as_secs_f64();
        eprintln!("{case:?}: acquire {acquired:.2?}, create {created:.2?}, {ratio:.2} times");
    }
    drop(client);
    runtime.block_on(session.close());
}

#[test]
fn acquire_is_one_round_trip_in_a_container() {
    // The filter stays with its thread.
    let thread = thread::spawn(one_round_trip_where_the_profile_refuses_to_take_descriptors);
    thread.join().unwrap();
}
