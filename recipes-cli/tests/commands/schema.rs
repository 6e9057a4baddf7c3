//! The statements of `lockctl schema`, run by the clients of the databases.

use std::process::Stdio;

use recipes_core::Session;
use recipes_multilock::{Member, MultiLock};
use recipes_sql::{MySql, Postgres};
use test_rig::{MariaDbServer, PostgresServer};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use crate::lockctl::{PATIENCE, lockctl, output, said};

async fn printed(url: &str) -> Vec<u8> {
    let printed = output(lockctl(url, &["schema"])).await;
    assert!(printed.status.success(), "{printed:?}");
    printed.stdout
}

/// Has another client carry out what was printed.
async fn carried_out(mut client: Command, statements: &[u8]) {
    let mut client = client
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut input = client.stdin.take().unwrap();
    input.write_all(statements).await.unwrap();
    drop(input);
    let ended = timeout(PATIENCE, client.wait_with_output()).await.unwrap();
    let ended = ended.unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

/// Commands that only look, in a database that no service has used.
async fn look_creates_nothing(url: &str, missing: &str) {
    for arguments in [
        &["ls"][..],
        &["inspect", "/locks/orders"],
        &["deadlocks", "/"],
    ] {
        let refused = output(lockctl(url, arguments)).await;
        assert_eq!(refused.status.code(), Some(66), "{refused:?}");
        let said = said(&refused);
        assert!(
            said.contains(missing) && said.contains("creates nothing"),
            "{said}"
        );
    }
}

async fn takes_a_lock(session: &Session) {
    let lock = MultiLock::new(session, [Member::mutex("/locks/orders")]).unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_without_the_right_use_the_schema_that_psql_has_created() {
    let server = PostgresServer::start().await.unwrap();
    let url = format!("{}?schema=orders", server.url());
    let connect = || Postgres::builder().create_schema(false).new_server();
    look_creates_nothing(&url, "\"orders\" does not exist").await;
    assert!(connect().connect(&url).await.is_err(), "nothing is there");
    let statements = printed(&url).await;
    // Twice: what exists is left alone.
    for _ in 0..2 {
        let mut client = Command::new("psql");
        client.args(["--set", "ON_ERROR_STOP=1", "--quiet", &server.url()]);
        carried_out(client, &statements).await;
    }
    takes_a_lock(&connect().connect(&url).await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_without_the_right_use_the_tables_that_the_client_of_mariadb_has_created() {
    let server = MariaDbServer::start().await.unwrap();
    let url = format!("{}?prefix=orders_", server.url());
    let connect = || MySql::builder().create_schema(false).new_server();
    look_creates_nothing(&url, "orders_").await;
    assert!(connect().connect(&url).await.is_err(), "nothing is there");
    let statements = printed(&url).await;
    for _ in 0..2 {
        let mut client = Command::new("mariadb");
        let port = server.port().to_string();
        client.args(["--no-defaults", "--host=127.0.0.1", "--user=root", "--port"]);
        client.args([&port, "locks"]);
        carried_out(client, &statements).await;
    }
    takes_a_lock(&connect().connect(&url).await.unwrap()).await;
}

#[tokio::test]
async fn where_no_schema_is_and_what_is_no_name_is_refused() {
    for (url, reason) in [
        ("127.0.0.1:1", "only a database has a schema"),
        ("etcd://127.0.0.1:1", "only a database has a schema"),
        ("redis://127.0.0.1:1", "only a database has a schema"),
        ("postgres://127.0.0.1:1/shop?schema=a%20b", "a%20b"),
        ("mysql://127.0.0.1:1/shop?prefix=1a", "1a"),
    ] {
        let refused = output(lockctl(url, &["schema"])).await;
        assert_eq!(refused.status.code(), Some(64), "{refused:?}");
        assert!(said(&refused).contains(reason), "{refused:?}");
    }
}
