//! How many scripts a lock takes. The server counts them.

use std::time::Duration;

use lock_recipes::{Member, MultiLock, Session};
use test_rig::RedisServer;

use super::{PATH, mutex, until};

/// So many rounds are measured until one has no more scripts than it should. A busy machine adds some:
/// a holder that is slow watches its node.
const ROUNDS: usize = 50;

/// No heartbeat falls into the test.
async fn session(server: &RedisServer) -> Session {
    super::session(server, Duration::from_secs(3_600)).await
}

/// How often commands were called, those that scripts call included.
async fn called(server: &RedisServer, counts: impl Fn(&str) -> bool) -> u64 {
    let stats: String = server.command(&["INFO", "commandstats"]).await.unwrap();
    let called = stats.lines().filter_map(|line| {
        let (command, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let calls = rest.split(',').next()?.parse::<u64>().unwrap();
        counts(command).then_some(calls)
    });
    called.sum()
}

/// The fewest scripts that a round took.
async fn fewest(server: &RedisServer, expected: u64, round: impl AsyncFnMut()) -> u64 {
    fewest_of(server, |command| command == "fcall", expected, round).await
}

async fn fewest_of(
    server: &RedisServer,
    counts: impl Fn(&str) -> bool,
    expected: u64,
    mut round: impl AsyncFnMut(),
) -> u64 {
    let mut fewest = u64::MAX;
    for _ in 0..ROUNDS {
        let before = called(server, &counts).await;
        round().await;
        fewest = fewest.min(called(server, &counts).await - before);
        if fewest <= expected {
            break;
        }
    }
    fewest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn free_lock_takes_a_script_and_its_release_another() {
    let server = RedisServer::start().await.unwrap();
    let session = session(&server).await;
    let lock = mutex(&session);
    let cycle = async || {
        lock.acquire()
            .await
            .unwrap()
            .release()
            .await
            .map(drop)
            .unwrap()
    };
    // Makes the directory.
    cycle().await;
    assert_eq!(fewest(&server, 2, cycle).await, 2);
}

/// An acquire and a release have code of their own in the library. If they were refused by it, they would
/// take the way of all requests, which takes more, and nothing else would show.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn free_lock_and_its_release_take_the_short_way() {
    const COMMANDS: u64 = 18;
    let server = RedisServer::start().await.unwrap();
    let session = session(&server).await;
    let lock = mutex(&session);
    let cycle = async || {
        let guard = lock.acquire().await.unwrap();
        guard.release().await.map(drop).unwrap();
    };
    cycle().await;
    // Who asks for the counts sends the others, on newer servers.
    let of_asking = ["fcall", "info", "client|setinfo"];
    let inside = |command: &str| !of_asking.contains(&command);
    let commands = fewest_of(&server, inside, COMMANDS, cycle).await;
    assert_eq!(commands, COMMANDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn set_of_eight_takes_two_scripts() {
    let server = RedisServer::start().await.unwrap();
    let session = session(&server).await;
    let members = (0..8).map(|number| Member::mutex(format!("/seats/{number}")));
    let set = MultiLock::new(&session, members).unwrap();
    let cycle = async || {
        set.acquire()
            .await
            .unwrap()
            .release()
            .await
            .map(drop)
            .unwrap()
    };
    cycle().await;
    assert_eq!(fewest(&server, 2, cycle).await, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_try_takes_one() {
    let server = RedisServer::start().await.unwrap();
    let (here, there) = (session(&server).await, session(&server).await);
    let guard = mutex(&here).acquire().await.unwrap();
    let lock = mutex(&there);
    let failed = async || assert!(lock.try_acquire().await.unwrap().is_none());
    assert_eq!(fewest(&server, 1, failed).await, 1);
    guard.release().await.unwrap();
}

/// One to queue up, one to release. Who is next but one is told that the first has gone, and need not look. The
/// first, who has not waited, watches its node by one more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hand_off_in_a_long_queue_takes_two() {
    const WAITERS: u64 = 8;
    let server = RedisServer::start().await.unwrap();
    let mut sessions = Vec::new();
    for _ in 0..=WAITERS {
        sessions.push(session(&server).await);
    }
    let queue = async || {
        let guard = mutex(&sessions[0]).acquire().await.unwrap();
        let node = format!("{{locks}}:n:{}", guard.members()[0].node_path);
        let watch = format!("w{}", sessions[0].session_id().unwrap());
        until("the holder's own watch", async || {
            let watched = ["HEXISTS", &node, &watch];
            server
                .command::<bool>(&watched)
                .await
                .unwrap()
                .then_some(())
        })
        .await;
        let mut waiters = Vec::new();
        for (ahead, session) in (1_usize..).zip(&sessions[1..]) {
            let lock = mutex(session);
            waiters.push(tokio::spawn(async move {
                lock.acquire().await.unwrap().release().await.unwrap();
            }));
            until("the waiter", async || {
                let queue = format!("{{locks}}:c:{PATH}");
                let length: usize = server.command(&["ZCARD", &queue]).await.unwrap();
                (length > ahead).then_some(())
            })
            .await;
        }
        guard.release().await.unwrap();
        for waiter in waiters {
            waiter.await.unwrap();
        }
    };
    let most = 2 * (WAITERS + 1) + 1;
    let scripts = fewest(&server, most, queue).await;
    eprintln!("{scripts} scripts for {} hand-offs", WAITERS + 1);
    assert!(scripts <= most, "{scripts}");
}
