//! Tokens of a service's table stay right when its locks move to another store.
//!
//! All stores at once, and every change from one to another, there and back.

use lock_recipes::{FencingToken, InterProcessMutex};
use test_rig::{TestEnsemble, own};

use super::database::Database;

/// Whether the table takes the write of a holder with this token.
async fn takes(database: &Database, row: &str, token: i64) -> bool {
    // The row then has what it had, or the token.
    let sql = format!("UPDATE orders SET token = {token} WHERE id = '{row}' AND token <= {token}");
    database.run(&sql).await.unwrap();
    let sql = format!("SELECT token FROM orders WHERE id = '{row}'");
    database.numbers(&sql).await == [token]
}

/// The token of a grant there.
async fn token(ensemble: &TestEnsemble) -> FencingToken {
    let session = ensemble.session().await;
    let lock = InterProcessMutex::new(&session, "/locks/orders").unwrap();
    let guard = lock.acquire().await.unwrap();
    let token = guard.fencing_token();
    guard.release().await.unwrap();
    session.close().await;
    token
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_of_the_next_era_are_taken_and_late_ones_refused_whichever_the_stores_are() {
    let stores = [
        ("zookeeper", own::on_a_real_server().await),
        ("redis", own::on_redis().await),
        ("mariadb", own::on_mariadb().await),
        ("postgres", own::on_postgres().await),
    ];
    let database = Database::connect(&stores[3].1).await;
    let table = "CREATE TABLE orders (id TEXT PRIMARY KEY, token BIGINT NOT NULL DEFAULT 0)";
    database.run(table).await.unwrap();
    let mut refused_without = Vec::new();
    for (from, old) in &stores {
        for (to, new) in &stores {
            let row = format!("{from}-{to}");
            let insert = format!("INSERT INTO orders (id) VALUES ('{row}'), ('{row} without')");
            database.run(&insert).await.unwrap();
            let (first, next) = (token(old).await, token(new).await);
            let back = token(old).await;
            let plain = format!("{row} without");
            assert!(takes(&database, &plain, first.as_i64()).await);
            if !takes(&database, &plain, next.as_i64()).await {
                refused_without.push(row.clone());
            }

            let write = async |token: FencingToken, era| {
                takes(&database, &row, token.in_era(era).unwrap()).await
            };
            assert!(write(first, 0).await, "{row}");
            assert!(
                write(next, 1).await,
                "{row}: the first write after the change"
            );
            assert!(!write(first, 0).await, "{row}: a late write of before");
            assert!(
                write(back, 2).await,
                "{row}: the first write after the way back"
            );
            assert!(!write(next, 1).await && !write(back, 0).await, "{row}");
        }
    }
    // The table would be locked for good without eras, and who set it back would let late writers in.
    let to_zookeeper = ["redis-zookeeper", "mariadb-zookeeper", "postgres-zookeeper"];
    assert_eq!(refused_without, to_zookeeper);
}
