//! Sessions beside each other, servers that are about to change, users with few rights.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use lock_recipes::{InterProcessMutex, Redis, SessionHealth};
use test_rig::RedisServer;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep, timeout};

use super::wires::Wires;
use super::{PATIENCE, SOON, mutex, options, session, take_and_give_back, until, waiting};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn crashed_process_with_a_short_timeout_beside_long_ones() {
    let server = RedisServer::start().await.unwrap();
    let url = server.url();
    thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let guard = runtime.block_on(async {
            let session = options(Duration::from_secs(1)).connect(&url).await.unwrap();
            mutex(&session).acquire().await.unwrap()
        });
        std::mem::forget(guard);
        runtime.shutdown_background();
    })
    .join()
    .unwrap();
    // Four of its beats would take longer than anybody waits here.
    let there = session(&server, Duration::from_secs(600)).await;
    let granted = timeout(PATIENCE, mutex(&there).acquire()).await;
    let granted = granted.expect("free after 1 s, the docs say");
    granted.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_survives_that_a_replica_answers_for_a_moment() {
    let first = RedisServer::start().await.unwrap();
    let second = RedisServer::start().await.unwrap();
    let replica = RedisServer::builder()
        .replica_of(&second)
        .start()
        .await
        .unwrap();
    let ports = [first.port(), second.port(), replica.port()];
    // First the old primary; then the new one, which does not know the session; then, once, one that
    // follows: as Sentinels answer that do not all know yet.
    let wires = Wires::to(move |number| match number {
        1 => ports[0],
        3 => ports[2],
        _ => ports[1],
    })
    .await;
    let here = options(Duration::from_secs(6))
        .connect(&wires.url())
        .await
        .unwrap();
    take_and_give_back(&here).await;
    first.kill().await.unwrap();
    let acquired = async {
        loop {
            match mutex(&here).acquire().await {
                Ok(guard) => return guard,
                Err(error) => eprintln!("{error}"),
            }
            sleep(Duration::from_secs(1)).await;
        }
    };
    let acquired = timeout(SOON, acquired).await;
    assert!(acquired.is_ok(), "{:?}", here.health());
}

#[tokio::test]
async fn password_is_not_shown() {
    for url in [
        "bob:hunter2@cache:6379",
        "redis://cache:6379?password=hunter2",
        "redis:/bob:hunter2@cache:6379",
    ] {
        let error = Redis::connect(url).await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinel_that_hangs_does_not_hide_the_next() {
    let primary = RedisServer::start().await.unwrap();
    let sentinel = RedisServer::builder()
        .sentinel("orders", &primary)
        .start()
        .await
        .unwrap();
    // Accepts and never answers.
    let hangs = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!(
        "redis+sentinel://127.0.0.1:{},127.0.0.1:{}/orders",
        hangs.local_addr().unwrap().port(),
        sentinel.port()
    );
    for seconds in [12, 4] {
        let opened = options(Duration::from_secs(seconds)).connect(&url).await;
        assert!(opened.is_ok(), "session timeout {seconds} s: {opened:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_at_once_with_a_replica_that_is_far() {
    const TASKS: usize = 256;
    let primary = RedisServer::start().await.unwrap();
    let port = primary.port();
    // One confirmation after the other would take longer than a connection may be silent.
    let far = Wires::slow(move |_| port, Duration::from_millis(150)).await;
    let replica = RedisServer::builder()
        .setting("replicaof", &format!("127.0.0.1 {}", far.port()))
        .start()
        .await
        .unwrap();
    until("the copy", async || {
        let info: String = replica.command(&["INFO", "replication"]).await.unwrap();
        info.contains("master_link_status:up").then_some(())
    })
    .await;
    let wires = Wires::to(move |_| port).await;
    let here = options(Duration::from_secs(120))
        .replicas(1)
        .connect(&wires.url())
        .await
        .unwrap();
    take_and_give_back(&here).await;
    let mut tasks = Vec::new();
    for number in 0..TASKS {
        let lock = InterProcessMutex::new(&here, &format!("/locks/{number}")).unwrap();
        tasks.push(tokio::spawn(async move {
            // Not all in one moment.
            sleep(Duration::from_millis(2 * number as u64)).await;
            for _ in 0..3 {
                let guard = lock.acquire().await.unwrap();
                guard.release().await.unwrap();
            }
        }));
    }
    let begun = Instant::now();
    let all = timeout(PATIENCE, futures::future::join_all(tasks)).await;
    let connections = wires.count.load(Ordering::SeqCst);
    let took = begun.elapsed();
    let epochs = here.epoch();
    assert!(
        all.is_ok() && connections == 1,
        "{took:?}, {connections} connections, {epochs} epochs; the server and its replica answered all the time"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_who_may_not_publish_is_told_and_no_waiter_hangs() {
    let server = RedisServer::start().await.unwrap();
    let user = [
        "ACL",
        "SETUSER",
        "bob",
        "on",
        ">secret",
        "~{locks}*",
        "&{locks}*",
        "+@all",
        "-publish",
    ];
    let _ok: String = server.command(&user).await.unwrap();
    let url = format!("redis://bob:secret@127.0.0.1:{}", server.port());
    let Ok(here) = options(Duration::from_secs(40)).connect(&url).await else {
        return;
    };
    let there = session(&server, Duration::from_secs(40)).await;
    let guard = mutex(&here).acquire().await.unwrap();
    let lock = mutex(&there);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    waiting(&server, 2).await;
    sleep(Duration::from_millis(300)).await;
    let released = timeout(SOON, guard.release()).await;
    waiting(&server, 1).await;
    let granted = timeout(SOON, waiter).await;
    assert!(
        granted.is_ok(),
        "the node is gone ({released:?}), and its watcher was not told"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_a_session_does_not_read_all_of_them() {
    let server = RedisServer::start().await.unwrap();
    let cost = async |sessions: i64| {
        let fill = "for i = 1, tonumber(ARGV[1]) do redis.call('ZADD', '{locks}:s', '4000000000000000', \
                    i .. ':12000000:6f1c1b7f0f6e4e0d9b1f3c5a7e9d2b4c') end return 1";
        let _: i64 = server
            .command(&["EVAL", fill, "0", &sessions.to_string()])
            .await
            .unwrap();
        let _ok: String = server.command(&["CONFIG", "RESETSTAT"]).await.unwrap();
        for _ in 0..5 {
            session(&server, Duration::from_secs(12))
                .await
                .close()
                .await;
        }
        let stats: String = server.command(&["INFO", "commandstats"]).await.unwrap();
        let line = stats
            .lines()
            .find(|it| it.starts_with("cmdstat_fcall:"))
            .unwrap()
            .to_owned();
        let usec = line
            .split("usec_per_call=")
            .nth(1)
            .unwrap()
            .split(',')
            .next()
            .unwrap();
        usec.parse::<f64>().unwrap()
    };
    let few = cost(10).await;
    let mut many = cost(10_000).await;
    // A script that the machine interrupts takes long, too.
    for _ in 0..20 {
        many = many.min(cost(0).await);
    }
    assert!(
        many < 10.0 * few,
        "us per script: {few} with 10 sessions, {many} with 10,000"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_flush_during_a_rewrite_is_not_one_copy() {
    let server = RedisServer::builder()
        .setting("appendfsync", "always")
        .setting("no-appendfsync-on-rewrite", "yes")
        .start()
        .await
        .unwrap();
    let session = session(&server, Duration::from_secs(20)).await;
    assert_eq!(session.guarantee(), lock_recipes::Guarantee::BestEffort);
}

/// An operator takes a right away, and gives it back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn right_that_is_missing_for_a_moment_leaves_no_waiter_behind() {
    let server = RedisServer::start().await.unwrap();
    let here = session(&server, Duration::from_secs(60)).await;
    let there = session(&server, Duration::from_secs(60)).await;
    let guard = mutex(&here).acquire().await.unwrap();
    let lock = mutex(&there);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    waiting(&server, 2).await;
    let less = ["ACL", "SETUSER", "default", "-publish"];
    let _ok: String = server.command(&less).await.unwrap();
    let released = tokio::spawn(guard.release());
    until("a refused release", async || {
        (here.health() != SessionHealth::Connected).then_some(())
    })
    .await;
    let more = ["ACL", "SETUSER", "default", "+publish"];
    let _ok: String = server.command(&more).await.unwrap();
    timeout(PATIENCE, released).await.unwrap().unwrap().unwrap();
    let granted = timeout(PATIENCE, waiter).await.unwrap().unwrap();
    granted.release().await.unwrap();
    assert_eq!((here.epoch(), there.epoch()), (1, 1));
}

/// The command is refused for a moment to the sessions that are open. The next who comes has the lock, and
/// no name is left whose node is missing, nor a node without its name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn right_that_is_missing_for_a_moment_leaves_nothing_half_done() {
    let server = RedisServer::start().await.unwrap();
    let here = session(&server, Duration::from_secs(600)).await;
    let there = session(&server, Duration::from_secs(600)).await;
    let user = async |change: &str| {
        let change = ["ACL", "SETUSER", "default", change];
        let _ok: String = server.command(&change).await.unwrap();
    };
    let count =
        async |what: &str, key: &str| -> usize { server.command(&[what, key]).await.unwrap() };
    for right in [
        "hset", "sadd", "zadd", "set", "zrange", "zrem", "del", "srem", "publish",
    ] {
        for is_held in [false, true] {
            take_and_give_back(&here).await;
            let held = match is_held {
                true => Some(mutex(&here).acquire().await.unwrap()),
                false => None,
            };
            user(&format!("-{right}")).await;
            let asked = mutex(&there);
            let asked = tokio::spawn(async move {
                if let Some(guard) = held {
                    guard.release().await.unwrap();
                }
                asked.acquire().await.unwrap()
            });
            until("a refusal", async || {
                let is_well = |it: SessionHealth| it == SessionHealth::Connected;
                let is_refused = !is_well(here.health()) || !is_well(there.health());
                (is_refused || asked.is_finished()).then_some(())
            })
            .await;
            user(&format!("+{right}")).await;
            let guard = timeout(PATIENCE, asked).await.unwrap().unwrap();
            let queue = format!("{{locks}}:c:{}", super::PATH);
            assert_eq!(count("ZCARD", &queue).await, 1, "{right}, {is_held}");
            guard.release().await.unwrap();
            until(&format!("nothing that is left of {right}"), async || {
                let nodes = format!("{{locks}}:n:{}/*", super::PATH);
                let nodes: Vec<String> = server.command(&["KEYS", &nodes]).await.unwrap();
                let names = count("ZCARD", &queue).await;
                let owned: Vec<String> = server.command(&["KEYS", "{locks}:o:*"]).await.unwrap();
                (nodes.is_empty() && names == 0 && owned.is_empty()).then_some(())
            })
            .await;
        }
    }
    assert_eq!((here.epoch(), there.epoch()), (1, 1));
}

/// An older version of the library has left one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn name_without_a_node_is_dropped_by_whoever_finds_it_ahead() {
    let server = RedisServer::start().await.unwrap();
    let here = session(&server, Duration::from_secs(600)).await;
    for _ in 0..6 {
        take_and_give_back(&here).await;
    }
    let queue = format!("{{locks}}:c:{}", super::PATH);
    for number in 1..5 {
        let name = format!("_c_6f1c1b7f-0f6e-4e0d-9b1f-3c5a7e9d2b4{number}-lock-000000000{number}");
        let half = ["ZADD", &queue, &number.to_string(), &name];
        let _: i64 = server.command(&half).await.unwrap();
    }
    for _ in 0..3 {
        let guard = mutex(&here).try_acquire().await.unwrap();
        guard.expect("nobody has it").release().await.unwrap();
    }
    waiting(&server, 0).await;
}

/// Whoever has lost a node by somebody's hand does not know yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn name_of_a_live_session_stands_without_its_node() {
    let server = RedisServer::start().await.unwrap();
    let here = session(&server, Duration::from_secs(600)).await;
    let there = session(&server, Duration::from_secs(600)).await;
    let _guard = mutex(&here).acquire().await.unwrap();
    let queue = format!("{{locks}}:c:{}", super::PATH);
    let names: Vec<String> = server
        .command(&["ZRANGE", &queue, "0", "-1"])
        .await
        .unwrap();
    let node = format!("{{locks}}:n:{}/{}", super::PATH, names[0]);
    let _: i64 = server.command(&["DEL", &node]).await.unwrap();
    assert!(mutex(&there).try_acquire().await.unwrap().is_none());
}

/// A lock for each order: its directory is empty when it is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_that_are_empty_go_as_fast_as_others_are_made() {
    const ORDERS: usize = 3_000;
    const HELD: usize = 50;
    let server = RedisServer::start().await.unwrap();
    let opened = options(Duration::from_secs(3_600)).container_rest(Duration::from_millis(1));
    let here = opened.connect(&server.url()).await.unwrap();
    let lock = |number: usize| InterProcessMutex::new(&here, &format!("/orders/{number}")).unwrap();
    let mut held = Vec::new();
    let mut most = 0;
    for number in 0..ORDERS {
        let guard = lock(number).acquire().await.unwrap();
        if number < HELD {
            held.push(guard);
        } else {
            guard.release().await.unwrap();
        }
        if number % 100 == 0 {
            let keys: usize = server.command(&["DBSIZE"]).await.unwrap();
            most = most.max(keys);
        }
    }
    // A held lock has four keys.
    assert!(most < 4 * HELD + ORDERS / 10, "{most} keys");
    for guard in held {
        guard.verify().await.unwrap();
    }
}

/// All of it, or nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_transaction_is_done_whole() {
    const NODES: usize = 2_500;
    let server = RedisServer::start().await.unwrap();
    let here = session(&server, Duration::from_secs(60)).await;
    let guard = mutex(&here).acquire().await.unwrap();
    let mut transaction = guard.transaction().create("/many", b"");
    for number in 0..NODES {
        transaction = transaction.create(format!("/many/{number}"), b"data");
    }
    transaction.commit().await.unwrap();
    let names: Vec<String> = server
        .command(&["ZRANGE", "{locks}:c:/many", "0", "-1"])
        .await
        .unwrap();
    assert_eq!(names.len(), NODES);
    for name in names {
        let (data, _) = here.read(&format!("/many/{name}")).await.unwrap().unwrap();
        assert_eq!(data, b"data");
    }
    guard.release().await.unwrap();
}
