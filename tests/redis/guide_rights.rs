//! The users of the guide for operators can do what it says, and no more.

use lock_recipes::SessionOptions;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, RedisResult, Value, cmd};
use test_rig::RedisServer;

use super::guide::block;
use super::reads::{assert_reads, assert_shows_no_silence, assert_shows_silence};
use super::refused::{chain, refused};
use super::{PATH, SOON, mutex, options, session};

pub(super) async fn set_user(server: &RedisServer, name: &str) {
    let line = block("redis.md", name);
    let words: Vec<_> = line.split_whitespace().collect();
    let _ok: String = server.command(&words).await.unwrap();
}

async fn connected(url: &str) -> MultiplexedConnection {
    let client = Client::open(url).unwrap();
    // A busy machine may take longer than the half second of the defaults.
    let patient = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&patient);
    connection.await.unwrap()
}

async fn says(connection: &mut MultiplexedConnection, words: &[&str]) -> RedisResult<Value> {
    let (name, arguments) = words.split_first().unwrap();
    cmd(name).arg(arguments).query_async(connection).await
}

async fn assert_refuses(connection: &mut MultiplexedConnection, words: &[&str]) {
    let error = says(connection, words).await.unwrap_err();
    assert!(
        error.to_string().contains("permission"),
        "{words:?}: {error}"
    );
}

#[tokio::test]
async fn service_takes_locks_and_a_watcher_reads_who_holds_them() {
    let server = RedisServer::start().await.unwrap();
    let url_of = |name| format!("redis://{name}:{name}-secret@127.0.0.1:{}", server.port());
    let (orders, watcher) = (url_of("orders"), url_of("watcher"));
    set_user(&server, "service").await;
    set_user(&server, "watcher").await;
    let why = refused(&orders).await;
    assert!(why.contains("function|load"), "{why}");
    // Any session of a user who may has it loaded.
    session(&server, SOON).await.close().await;

    let session = options(SOON).connect(&orders).await.unwrap();
    let guard = mutex(&session).acquire().await.unwrap();
    let mut service = connected(&orders).await;
    for words in [
        &["FLUSHALL"][..],
        &["FLUSHDB"],
        &["KEYS", "*"],
        &["SWAPDB", "0", "1"],
        &["GET", "others"],
        &["FUNCTION", "FLUSH"],
        &["PUBLISH", "others", "x"],
    ] {
        assert_refuses(&mut service, words).await;
    }

    let mut client = connected(&watcher).await;
    let queue = format!("{{locks}}:c:{PATH}");
    let names = says(&mut client, &["ZRANGE", &queue, "0", "-1"]).await;
    let names: Vec<String> = redis::from_redis_value(names.unwrap()).unwrap();
    let node = format!("{{locks}}:n:{PATH}/{}", names.first().unwrap());
    let told = says(&mut client, &["HMGET", &node, "c"]).await.unwrap();
    let told: Vec<i64> = redis::from_redis_value(told).unwrap();
    assert_eq!(told, [guard.fencing_token().as_i64()]);
    for words in [
        &["HSET", &node, "c", "1"][..],
        &["DEL", &node],
        &["ZRANGE", "{locks}:s", "0", "-1"],
        &["PUBLISH", "{locks}:e:1", "x"],
    ] {
        assert_refuses(&mut client, words).await;
    }
    let why = refused(&watcher).await;
    assert!(why.contains("permission"), "{why}");
    assert_reads(&watcher, &guard).await;
    let range = ["ZRANGE", "{locks}:s", "0", "-1", "WITHSCORES"];
    let lives: Vec<(String, f64)> = server.command(&range).await.unwrap();
    let late = lives[0].1 - SOON.as_micros() as f64 * 0.6;
    let silence = async || {
        let late = ["ZADD", "{locks}:s", &late.to_string(), &lives[0].0];
        let _new: i64 = server.command(&late).await.unwrap();
    };
    assert_shows_no_silence(&watcher, &guard, silence).await;
    set_user(&server, "silence").await;
    assert_shows_silence(&watcher, &guard, silence).await;
    for right in ["info", "exists", "hmget"] {
        let lacks = format!("-{right}");
        let _ok: String = server
            .command(&["ACL", "SETUSER", "watcher", &lacks])
            .await
            .unwrap();
        let reads = SessionOptions::new().read_only(true);
        let refused = lock_recipes::connect_with(&watcher, reads)
            .await
            .unwrap_err();
        let why = chain(&refused);
        assert!(why.contains(&format!("'{right}'")), "{why}");
        let _ok: String = server
            .command(&["ACL", "SETUSER", "watcher", &format!("+{right}")])
            .await
            .unwrap();
    }
    guard.release().await.unwrap();
    session.close().await;
}
