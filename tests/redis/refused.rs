//! Each mistake of a user gets one clear error.

use std::error::Error as StdError;
use std::time::Duration;

use lock_recipes::{AcquireError, ConnectError, Error, InterProcessMutex, LostReason, Redis};
use test_rig::RedisServer;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};

use super::{PATIENCE, cut, mutex, options, session, take_and_give_back, until, verified};

/// An error with its causes.
pub(super) fn chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// The error of a server that will never do.
pub(super) async fn refused(url: &str) -> String {
    match Redis::connect(url).await.unwrap_err() {
        error @ Error::Connect(ConnectError::Refused { .. }) => chain(&error),
        error => panic!("{}", chain(&error)),
    }
}

/// The error of a URL or options with which nothing is sent.
async fn misconfigured(builder: lock_recipes::RedisBuilder, url: &str) -> String {
    match builder.connect(url).await.unwrap_err() {
        error @ Error::Config(_) => chain(&error),
        error => panic!("{}", chain(&error)),
    }
}

#[tokio::test]
async fn no_server() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://127.0.0.1:{}", free.local_addr().unwrap().port());
    drop(free);
    let builder = Redis::builder().connect_timeout(Duration::from_secs(2));
    let error = builder.connect(&url).await.unwrap_err();
    assert!(
        matches!(error, Error::Connect(ConnectError::TimedOut { .. })),
        "{error}"
    );
    let text = chain(&error);
    assert!(text.contains(&url), "{text}");
    assert!(text.contains("Connection refused"), "{text}");
}

#[tokio::test]
async fn wrong_password_and_none() {
    let server = RedisServer::builder().setting("requirepass", "secret");
    let server = server.start().await.unwrap();
    let with = |secret| format!("redis://{secret}127.0.0.1:{}", server.port());
    for secret in [":wrong@", ""] {
        let text = refused(&with(secret)).await;
        let says = ["WRONGPASS", "NOAUTH", "assword", "uthentication"];
        assert!(says.iter().any(|it| text.contains(it)), "{text}");
        assert!(!text.contains("wrong@"), "{text}");
    }
    let right = with(":secret@");
    let opened = options(Duration::from_secs(20)).connect(&right);
    opened.await.unwrap().close().await;
    let by_option = options(Duration::from_secs(20)).password("secret");
    by_option.connect(&with("")).await.unwrap().close().await;
}

#[tokio::test]
async fn database_that_there_is_not() {
    let server = RedisServer::start().await.unwrap();
    let url = format!("redis://127.0.0.1:{}/99", server.port());
    let text = refused(&url).await;
    assert!(text.contains("DB index is out of range"), "{text}");
}

#[tokio::test]
async fn server_that_takes_no_more_connections_is_waited_for_and_says_so() {
    let server = RedisServer::builder().setting("maxclients", "2");
    let server = server.start().await.unwrap();
    let url = server.url();
    let first = options(Duration::from_secs(20)).connect(&url);
    let first = first.await.unwrap();
    let other = TcpStream::connect(("127.0.0.1", server.port())).await;
    let builder = Redis::builder().connect_timeout(Duration::from_secs(10));
    let error = builder.connect(&url).await.unwrap_err();
    assert!(
        matches!(error, Error::Connect(ConnectError::TimedOut { .. })),
        "{error}"
    );
    let text = chain(&error);
    assert!(text.contains("max number of clients reached"), "{text}");
    drop((first, other));
}

/// Before anything is sent, each waits for the other.
#[tokio::test]
async fn server_that_speaks_no_tls_or_nothing_else() {
    let server = RedisServer::start().await.unwrap();
    let builder = Redis::builder().connect_timeout(Duration::from_secs(5));
    let encrypted = server.url().replace("redis://", "rediss://");
    let error = builder.clone().connect(&encrypted).await.unwrap_err();
    assert!(
        matches!(error, Error::Connect(ConnectError::TimedOut { .. })),
        "{error}"
    );
    let text = chain(&error);
    assert!(text.contains("begins with redis://"), "{text}");
    // As OpenSSL does in a server that expects a handshake.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let resets = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            // What was sent and is not read makes it a reset.
            drop(stream.read_u8().await);
        }
    });
    let text = chain(&builder.connect(&url).await.unwrap_err());
    assert!(text.contains("begins with rediss://"), "{text}");
    resets.abort();
}

#[tokio::test]
async fn replica() {
    let primary = RedisServer::start().await.unwrap();
    let replica = RedisServer::builder().replica_of(&primary);
    let replica = replica.start().await.unwrap();
    let text = refused(&replica.url()).await;
    let named = format!("replica of 127.0.0.1:{}", primary.port());
    assert!(text.contains(&named), "{text}");
}

#[tokio::test]
async fn server_that_evicts() {
    let server = RedisServer::builder().setting("maxmemory-policy", "allkeys-lru");
    let server = server.start().await.unwrap();
    let text = refused(&server.url()).await;
    assert!(text.contains("allkeys-lru"), "{text}");
    // No key of ours has a time to live.
    let volatile = ["CONFIG", "SET", "maxmemory-policy", "volatile-lru"];
    let _ok: String = server.command(&volatile).await.unwrap();
    let session = session(&server, Duration::from_secs(20)).await;
    take_and_give_back(&session).await;
    session.close().await;
}

#[tokio::test]
async fn server_without_resp3() {
    let server = RedisServer::builder().setting("rename-command", "HELLO \"\"");
    let server = server.start().await.unwrap();
    let text = refused(&server.url()).await;
    assert!(text.contains("RESP3") || text.contains("HELLO"), "{text}");
}

#[tokio::test]
async fn cluster_whose_keys_are_elsewhere() {
    let server = RedisServer::builder().setting("cluster-enabled", "yes");
    let server = server.setting("cluster-require-full-coverage", "no");
    let server = server.start().await.unwrap();
    // One half of the slots is served; `{locks}` is in slot 4,213, and `{other}` in 13,162.
    let half = ["CLUSTER", "ADDSLOTSRANGE", "0", "8191"];
    let _ok: String = server.command(&half).await.unwrap();
    until("the cluster", async || {
        let info: String = server.command(&["CLUSTER", "INFO"]).await.unwrap();
        info.contains("cluster_state:ok").then_some(())
    })
    .await;
    let slot: i64 = server
        .command(&["CLUSTER", "KEYSLOT", "{locks}:x"])
        .await
        .unwrap();
    let (here, elsewhere) = match slot < 8192 {
        true => ("locks", "other"),
        false => ("other", "locks"),
    };
    let here = options(Duration::from_secs(20)).prefix(here);
    let session = here.connect(&server.url()).await.unwrap();
    take_and_give_back(&session).await;
    session.close().await;
    let error = options(Duration::from_secs(20))
        .connect_timeout(Duration::from_secs(10))
        .prefix(elsewhere)
        .connect(&server.url())
        .await
        .unwrap_err();
    let text = chain(&error);
    let said = format!("the keys of prefix \"{{{elsewhere}}}\" are on another server");
    assert!(
        text.contains(&said) || text.contains("Hash slot not served"),
        "{text}"
    );
}

#[tokio::test]
async fn what_is_wrong_before_anything_is_sent() {
    let url = "redis://127.0.0.1:1";
    let text = misconfigured(Redis::builder().prefix("a{b}"), url).await;
    assert!(text.contains("braces"), "{text}");
    let text = misconfigured(Redis::builder(), "redis://127.0.0.1:1/0?prefix=").await;
    assert!(text.contains("empty"), "{text}");
    let short = Redis::builder().session_timeout(Duration::from_millis(1));
    let text = misconfigured(short, url).await;
    assert!(text.contains("100ms to"), "{text}");
    let text = misconfigured(Redis::builder(), "redis+sentinel://a").await;
    assert!(text.contains("name of the primary"), "{text}");
    let cluster = "redis+cluster://127.0.0.1:1";
    let text = misconfigured(Redis::builder().prefix("a}b"), cluster).await;
    assert!(
        text.ends_with("nor contain braces; they are put around it"),
        "{text}"
    );
    let text = misconfigured(Redis::builder().database(1), cluster).await;
    assert!(text.ends_with("a cluster has no database but 0"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushall_under_a_holder_is_told() {
    let server = RedisServer::start().await.unwrap();
    let timeout = Duration::from_secs(40);
    let session = session(&server, timeout).await;
    let guard = mutex(&session).acquire().await.unwrap();
    let token = guard.fencing_token();
    let _ok: String = server.command(&["FLUSHALL"]).await.unwrap();
    let lost = tokio::time::timeout(PATIENCE, guard.lost()).await.unwrap();
    assert_eq!(lost.reason, LostReason::SessionExpired);
    // The numbers follow the clock, so tokens rise all the same.
    let next = mutex(&session).acquire().await.unwrap();
    assert!(next.fencing_token() > token);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_that_an_operator_flushes_are_handed_over_again() {
    let server = RedisServer::start().await.unwrap();
    let session = session(&server, Duration::from_secs(20)).await;
    let guard = mutex(&session).acquire().await.unwrap();
    // The connection is given up, and they are loaded over the next.
    let _ok: String = server.command(&["FUNCTION", "FLUSH"]).await.unwrap();
    let busy = mutex(&session).try_acquire().await.unwrap();
    assert!(busy.is_none());
    cut(&server).await;
    guard.release().await.unwrap();
    let next = mutex(&session).acquire().await.unwrap();
    next.release().await.unwrap();
}

/// A script of somebody else holds the server up until it is killed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn script_that_an_operator_kills_holds_up_and_no_more() {
    let server = RedisServer::builder().setting("busy-reply-threshold", "50");
    let server = std::sync::Arc::new(server.start().await.unwrap());
    let session = session(&server, Duration::from_secs(20)).await;
    let guard = mutex(&session).acquire().await.unwrap();
    let stuck = std::sync::Arc::clone(&server);
    let stuck = tokio::spawn(async move {
        let forever = ["EVAL", "while true do end", "0"];
        stuck.command::<String>(&forever).await
    });
    until("a server that is busy", async || {
        let refused = server.command::<String>(&["PING"]).await.err()?;
        chain(&refused).contains("BUSY").then_some(())
    })
    .await;
    let lock = mutex(&session);
    let tried = tokio::spawn(async move { lock.try_acquire().await });
    let _ok: String = server.command(&["SCRIPT", "KILL"]).await.unwrap();
    let killed = stuck.await.unwrap().unwrap_err();
    assert!(chain(&killed).contains("killed by user"), "{killed}");
    assert!(tried.await.unwrap().unwrap().is_none());
    guard.verify().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(session.epoch(), 1);
}

#[tokio::test]
async fn user_without_rights_is_told_which() {
    let server = RedisServer::start().await.unwrap();
    let user = [
        "ACL",
        "SETUSER",
        "bob",
        "on",
        ">secret",
        "~{locks}*",
        "+@all",
        "-function",
    ];
    let _ok: String = server.command(&user).await.unwrap();
    let url = format!("redis://bob:secret@127.0.0.1:{}", server.port());
    let text = refused(&url).await;
    assert!(text.contains("function"), "{text}");
}

/// The session is open, and an operator changes what the server takes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusal_of_what_an_open_session_asks_is_told() {
    let changes = [
        (["ACL", "SETUSER", "default", "-time"], "run TIME"),
        (["ACL", "SETUSER", "default", "-fcall"], "'fcall' command"),
    ];
    for (change, word) in changes {
        let server = RedisServer::start().await.unwrap();
        let session = session(&server, Duration::from_secs(60)).await;
        take_and_give_back(&session).await;
        let _ok: String = server.command(&change).await.unwrap();
        let told = until("the server's word", async || {
            let asked = mutex(&session)
                .acquire()
                .timeout(Duration::from_millis(100));
            let error = asked.await.unwrap_err();
            Some(chain(&error)).filter(|it| it.contains(word))
        });
        let told = told.await;
        assert!(told.contains("has not answered"), "{told}");
    }
}

#[tokio::test]
async fn path_that_is_none_is_refused_and_a_wait_ends_in_time() {
    let server = RedisServer::start().await.unwrap();
    let timeout = Duration::from_secs(20);
    let here = session(&server, timeout).await;
    let there = session(&server, timeout).await;
    let error = lock_recipes::InterProcessMutex::new(&here, "locks").unwrap_err();
    assert!(error.to_string().contains("locks"), "{error}");
    let guard = mutex(&here).acquire().await.unwrap();
    let waits = mutex(&there).acquire().timeout(Duration::from_millis(50));
    let error = waits.await.unwrap_err();
    assert!(
        matches!(error, Error::Acquire(AcquireError::TimedOut { .. })),
        "{error}"
    );
    guard.release().await.unwrap();
}

/// What is released makes room. What is created would take it from everybody else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_server_releases_and_creates_nothing() {
    let server = RedisServer::start().await.unwrap();
    let here = session(&server, Duration::from_secs(20)).await;
    let guard = mutex(&here).acquire().await.unwrap();
    let orders = async |number: u32| {
        let lock = InterProcessMutex::new(&here, &format!("/locks/{number}")).unwrap();
        lock.acquire().await
    };
    let mut held = Vec::new();
    for number in 0..2_000 {
        held.push(orders(number).await.unwrap());
    }
    let info: String = server.command(&["INFO", "memory"]).await.unwrap();
    let used = info.lines().find_map(|it| it.strip_prefix("used_memory:"));
    let room = (used.unwrap().parse::<u64>().unwrap() - 200_000).to_string();
    let limit = ["CONFIG", "SET", "maxmemory", &room];
    let _ok: String = server.command(&limit).await.unwrap();
    let set = ["SET", "a", "b"];
    let refused = server.command::<String>(&set).await;
    assert!(chain(&refused.unwrap_err()).contains("maxmemory"));
    // The functions ask the server every tenth of a second, in which it carries out some hundred of these.
    let mut refused = String::new();
    for _ in 0..5_000 {
        match orders(2_000).await {
            Ok(guard) => drop(guard.release().await.unwrap()),
            Err(error) => {
                refused = chain(&error);
                break;
            }
        }
    }
    assert!(refused.contains("maxmemory"), "{refused:?}");
    // What is there goes on, over a new connection too, and goes.
    cut(&server).await;
    verified(&guard).await;
    guard.release().await.unwrap();
    for guard in held {
        guard.release().await.unwrap();
    }
    until("room for the service", async || {
        server.command::<String>(&set).await.ok()
    })
    .await;
    let room = until("room for a lock", async || orders(2_000).await.ok()).await;
    room.release().await.unwrap();
    assert_eq!(here.epoch(), 1);
}

#[tokio::test]
async fn full_server_on_which_nobody_had_locks_is_told() {
    let server = RedisServer::start().await.unwrap();
    let full = ["CONFIG", "SET", "maxmemory", "1"];
    let _ok: String = server.command(&full).await.unwrap();
    let builder = Redis::builder().connect_timeout(Duration::from_secs(5));
    let error = builder.connect(&server.url()).await.unwrap_err();
    // It may have room soon.
    assert!(
        matches!(error, Error::Connect(ConnectError::TimedOut { .. })),
        "{error}"
    );
    let text = chain(&error);
    assert!(text.contains("maxmemory"), "{text}");
}

/// Those that docs/redis.md lists, and no others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documented_rights_are_enough() {
    let server = RedisServer::start().await.unwrap();
    let who = "reset on >secret ~{locks}* &{locks}:*";
    let may = "+fcall +function|list +function|load +subscribe +info +exists +hello +wait +@read \
               +@write +time +publish +config|get";
    let mut user = vec!["ACL", "SETUSER", "bob"];
    user.extend(who.split_whitespace().chain(may.split_whitespace()));
    let _ok: String = server.command(&user).await.unwrap();
    let url = format!("redis://bob:secret@127.0.0.1:{}", server.port());
    let here = options(Duration::from_secs(20))
        .connect(&url)
        .await
        .unwrap();
    let guard = mutex(&here).acquire().await.unwrap();
    cut(&server).await;
    verified(&guard).await;
    guard.release().await.unwrap();
    assert_eq!(here.epoch(), 1);
}
