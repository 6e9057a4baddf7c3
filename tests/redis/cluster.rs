//! A cluster: the primary that has the keys is found, and one that has only some of them grants nothing.

use std::time::Duration;

use lock_recipes::{ConnectError, Error, GuardState, Redis, Session};
use recipes_core::LostReason;
use test_rig::{RedisCluster, RedisServer, slot_of};
use tokio::time::{Instant, timeout};

use super::absent::Absent;
use super::guide_rights::set_user;
use super::reads::assert_reads;
use super::refused::{chain, refused};
use super::{PATH, PATIENCE, mutex, options, until, verified};

/// A key of all that a session has there.
pub(super) const KEY: &str = "{locks}:x";

async fn session_of(cluster: &RedisCluster, session_timeout: Duration) -> Session {
    let opened = options(session_timeout).connect(&cluster.url()).await;
    opened.unwrap()
}

async fn waiting(session: &Session, count: usize) {
    until("contenders", async || {
        let contenders = mutex(session).participants().await.ok()?;
        (contenders.len() == count).then_some(())
    })
    .await;
}

/// What happens to a cluster while a lock is held and waited for.
async fn all_goes_on(happens: impl AsyncFnOnce(&RedisCluster)) {
    let cluster = RedisCluster::start().await.unwrap();
    // Long enough that no session is over half of it without an answer.
    let session_timeout = Duration::from_secs(60);
    // One server of the cluster is enough, whichever it is.
    let other = cluster.another_primary(KEY).await;
    let url = format!("redis+cluster://127.0.0.1:{}/?prefix=locks", other.port());
    let here = options(session_timeout).connect(&url).await.unwrap();
    let there = session_of(&cluster, session_timeout).await;
    let guard = mutex(&here).acquire().await.unwrap();
    let lock = mutex(&there);
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    waiting(&here, 2).await;
    let before = mutex(&here).participants().await.unwrap();
    happens(&cluster).await;
    verified(&guard).await;
    until("a guard that is held", async || {
        (guard.state() == GuardState::Held).then_some(())
    })
    .await;
    let after = mutex(&here).participants().await.unwrap();
    let places = |all: &[lock_recipes::Participant]| -> Vec<_> {
        all.iter().map(|it| it.path.clone()).collect()
    };
    assert_eq!(places(&after), places(&before));
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    let next = timeout(PATIENCE, waiter).await.unwrap().unwrap();
    assert!(next.fencing_token() > token);
    assert_eq!((here.epoch(), there.epoch()), (1, 1));
    next.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_and_waiter_stay_when_a_replica_takes_over() {
    all_goes_on(async |cluster| {
        let primary = cluster.primary(KEY).await;
        cluster.fail_over(primary, "").await.unwrap();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_and_waiter_stay_when_the_primary_is_killed() {
    all_goes_on(async |cluster| {
        let primary = cluster.primary(KEY).await;
        cluster.replica_of(primary).await;
        primary.kill().await.unwrap();
        cluster.primary(KEY).await;
    })
    .await;
}

/// The other primary has no library yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_and_waiter_go_with_the_slot() {
    all_goes_on(async |cluster| {
        cluster.have_patience().await.unwrap();
        let (from, to) = (
            cluster.primary(KEY).await,
            cluster.another_primary(KEY).await,
        );
        let slot = slot_of(from, KEY).await.unwrap();
        cluster.move_slot(&slot, from, to).await.unwrap();
        assert_eq!(cluster.primary(KEY).await.port(), to.port());
    })
    .await;
}

/// The queue of a lock that is held has gone to another primary, and the move ends so that it never comes back. To
/// whoever looks then, the lock is free.
async fn half_moved(ends: impl AsyncFnOnce(&RedisCluster, &RedisServer, &str, &Session)) {
    let session_timeout = Duration::from_secs(8);
    let cluster = RedisCluster::start().await.unwrap();
    let there = session_of(&cluster, session_timeout).await;
    let absent = Absent::holding(session_timeout, cluster.url());
    let (from, to) = (
        cluster.primary(KEY).await,
        cluster.another_primary(KEY).await,
    );
    let slot = slot_of(from, KEY).await.unwrap();
    cluster.open_slot(&slot, from, to).await.unwrap();
    let queue = format!("{{locks}}:c:{PATH}");
    cluster.move_keys(&[queue], from, to).await.unwrap();
    ends(&cluster, from, &slot, &there).await;
    let fresh = session_of(&cluster, session_timeout).await;
    let granted = timeout(PATIENCE, mutex(&fresh).acquire()).await.unwrap();
    let guard = granted.unwrap();
    assert!(Instant::now() > absent.until, "two holders");
    assert!(guard.fencing_token() > absent.token);
    assert!(!absent.believes_after_all());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn move_that_is_given_up_halfway_makes_no_lock_free() {
    half_moved(async |cluster, from, slot, there| {
        cluster.have_patience().await.unwrap();
        // Nobody is answered: neither where the keys were, nor where they go. Whether a try is long enough to
        // hear why is the machine's matter.
        let says =
            "the keys of prefix \"{locks}\" are being moved to another server of the cluster";
        let a_try = Duration::from_millis(500);
        until("the word to who is there", async || {
            let tried = mutex(there).acquire().timeout(a_try);
            let error = chain(&tried.await.unwrap_err());
            error.contains(says).then_some(())
        })
        .await;
        until("the word to who comes", async || {
            let comes = Redis::builder().connect_timeout(a_try);
            let error = chain(&comes.connect(&cluster.url()).await.unwrap_err());
            error.contains(says).then_some(())
        })
        .await;
        let stable = ["CLUSTER", "SETSLOT", slot, "STABLE"];
        let _ok: String = from.command(&stable).await.unwrap();
    })
    .await;
}

/// The replica does not know that the slot was on its way, and serves what is left of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replica_that_takes_over_halfway_through_a_move_makes_no_lock_free() {
    half_moved(async |cluster, from, slot, _| {
        cluster.replica_of(from).await;
        from.kill().await.unwrap();
        // That of a newer server knows, until an operator has it forget.
        let replica = cluster.primary(KEY).await;
        let stable = ["CLUSTER", "SETSLOT", slot, "STABLE"];
        let _ok: String = replica.command(&stable).await.unwrap();
    })
    .await;
}

/// A primary that comes to be a replica closes no connection. A session that asks for nothing meanwhile must
/// notice all the same: what it has there may be older when the server is the primary again.
async fn idle_holder_notices(url: impl AsyncFnOnce(&RedisCluster) -> String) {
    let cluster = RedisCluster::start().await.unwrap();
    cluster.have_patience().await.unwrap();
    // It sends something every sixth of this.
    let idle = options(Duration::from_secs(120));
    let here = idle.connect(&url(&cluster).await).await.unwrap();
    let guard = mutex(&here).acquire().await.unwrap();
    let node = guard.members()[0].node_path.clone();
    let id = here.session_id().unwrap();
    let first = cluster.primary(KEY).await;
    // It asks for nothing more then.
    until("a node that is watched", async || {
        let watched = ["HEXISTS", &format!("{{locks}}:n:{node}"), &format!("w{id}")];
        first.command::<bool>(&watched).await.unwrap().then_some(())
    })
    .await;
    cluster.fail_over(first, "TAKEOVER").await.unwrap();
    let second = cluster.primary(KEY).await;
    assert_ne!(first.port(), second.port());
    // As if the second had not got the last writes of the first.
    let name = super::name(&node);
    for lost in [
        ["DEL", &format!("{{locks}}:n:{node}"), ""],
        ["ZREM", &format!("{{locks}}:c:{PATH}"), name],
        ["SREM", &format!("{{locks}}:o:{id}"), &node],
    ] {
        let words = if lost[2].is_empty() {
            &lost[..2]
        } else {
            &lost
        };
        let gone: i64 = second.command(words).await.unwrap();
        assert_eq!(gone, 1, "{lost:?}");
    }
    cluster.fail_over(second, "TAKEOVER").await.unwrap();
    assert_eq!(cluster.primary(KEY).await.port(), first.port());
    let lost = timeout(PATIENCE, guard.lost()).await.unwrap();
    assert_eq!(lost.reason, LostReason::NodeRemoved);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_holder_notices_that_its_server_was_a_replica_meanwhile() {
    idle_holder_notices(async |cluster| cluster.url()).await;
}

/// It knows of no other server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_holder_at_one_server_of_a_cluster_notices_it_too() {
    idle_holder_notices(async |cluster| cluster.primary(KEY).await.url()).await;
}

#[tokio::test]
async fn cluster_that_is_down_says_so() {
    let server = RedisServer::builder().setting("cluster-enabled", "yes");
    let server = server.start().await.unwrap();
    let port = server.port();
    let free = RedisServer::start().await.unwrap();
    free.kill().await.unwrap();
    let url = |port: u16| format!("redis+cluster://127.0.0.1:{},127.0.0.1:{port}", free.port());
    for (url, says) in [
        (url(port), "ClusterDown: Hash slot not served"),
        (url(free.port()), "Connection refused (os error 111)"),
    ] {
        let builder = Redis::builder().connect_timeout(Duration::from_secs(5));
        let error = builder.connect(&url).await.unwrap_err();
        assert!(
            matches!(error, Error::Connect(ConnectError::TimedOut { .. })),
            "{error}"
        );
        let text = chain(&error);
        assert!(text.contains(&url) && text.ends_with(says), "{text}");
    }
}

/// Who comes first waits for the slots. The users are those of the operators' guide.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_that_comes_up_is_waited_for() {
    let server = RedisServer::builder().setting("cluster-enabled", "yes");
    let server = server.start().await.unwrap();
    for user in ["service", "watcher"] {
        set_user(&server, user).await;
    }
    let more = ["ACL", "SETUSER", "orders", "+ssubscribe", "+function|load"];
    let _ok: String = server.command(&more).await.unwrap();
    let port = server.port();
    let url_of = |user| format!("redis+cluster://{user}:{user}-secret@127.0.0.1:{port}");
    let waits = options(Duration::from_secs(20)).connect_timeout(PATIENCE);
    let url = url_of("orders");
    let opened = tokio::spawn(async move { waits.connect(&url).await });
    until("a first try", async || {
        let stats: String = server.command(&["INFO", "commandstats"]).await.unwrap();
        stats.contains("cmdstat_exists").then_some(())
    })
    .await;
    let all = ["CLUSTER", "ADDSLOTSRANGE", "0", "16383"];
    let _ok: String = server.command(&all).await.unwrap();
    let session = timeout(PATIENCE, opened).await.unwrap().unwrap().unwrap();
    let guard = mutex(&session).acquire().await.unwrap();
    assert_reads(&url_of("watcher"), &guard).await;
    guard.release().await.unwrap();
    session.close().await;
    let less = ["ACL", "SETUSER", "orders", "-ssubscribe"];
    let _ok: String = server.command(&less).await.unwrap();
    let refused = refused(&url_of("orders")).await;
    assert!(refused.contains("'ssubscribe' command"), "{refused}");
}
