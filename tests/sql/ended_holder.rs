//! What a holder whose session has ended can still do to others with its transactions.

use std::time::Duration;

use lock_recipes::{InterProcessMutex, MutexGuard, MySql, Postgres, Session};
use test_rig::TestEnsemble;
use tokio::time::timeout;

use super::PATIENCE;
use super::database::Database;

async fn on_both(test: impl AsyncFn(TestEnsemble)) {
    test(test_rig::own::on_postgres().await).await;
    test(test_rig::own::on_mariadb().await).await;
}

async fn session(url: &str, session_timeout: Duration) -> Session {
    if url.starts_with("postgres") {
        let builder = Postgres::builder().new_server();
        let builder = builder.session_timeout(session_timeout);
        return builder.connect(url).await.unwrap();
    }
    let builder = MySql::builder().new_server();
    let builder = builder.session_timeout(session_timeout);
    builder.connect(url).await.unwrap()
}

async fn acquire(session: &Session, path: &str) -> MutexGuard {
    let mutex = InterProcessMutex::new(session, path).unwrap();
    timeout(PATIENCE, mutex.acquire()).await.unwrap().unwrap()
}

/// Begins a transaction of the holder that is fenced.
async fn fenced(ensemble: &TestEnsemble, guard: &MutexGuard) -> Database {
    let own = Database::connect(ensemble).await;
    own.run("BEGIN").await.unwrap();
    own.run(guard.fence().unwrap().sql()).await.unwrap();
    own
}

/// Otherwise it could keep the lock from others for ever: each transaction begins before the one before is
/// over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_that_begins_after_the_end_of_the_session_is_refused_while_another_goes_on() {
    on_both(async |ensemble| {
        let holder = ensemble.session().await;
        let guard = acquire(&holder, "/locks/a").await;
        let fence = guard.fence().unwrap();
        let first = fenced(&ensemble, &guard).await;
        ensemble
            .end_session(holder.session_id().unwrap_or_default())
            .await;
        let second = Database::connect(&ensemble).await;
        second.run("BEGIN").await.unwrap();
        second.run(fence.sql()).await.unwrap_err();
        second.run("ROLLBACK").await.unwrap();
        first.run("COMMIT").await.unwrap();
        let other = ensemble.session().await;
        acquire(&other, "/locks/a").await.release().await.unwrap();
    })
    .await;
}

/// A process ends in good order, but for a transaction of its that goes on elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_of_a_closed_session_is_free_when_the_transaction_is_over() {
    // Sessions look after others every sixth of it. By itself one would be due much later.
    const SESSION_TIMEOUT: Duration = Duration::from_secs(180);
    on_both(async |ensemble| {
        let url = ensemble.url();
        let session = || session(&url, SESSION_TIMEOUT);
        let (holder, other) = (session().await, session().await);
        let guard = acquire(&holder, "/locks/a").await;
        let transaction = fenced(&ensemble, &guard).await;
        let waiter = InterProcessMutex::new(&other, "/locks/a").unwrap();
        let waiter = tokio::spawn(waiter.acquire());
        ensemble.await_children("/locks/a", 2).await;
        drop(guard);
        holder.close().await;
        transaction.run("COMMIT").await.unwrap();
        drop(timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap());
    })
    .await;
}

/// Nobody else is connected, and whoever tries goes at once, before its first beat.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lock_of_a_crashed_holder_is_had_by_those_who_only_try() {
    const HOLDERS_TIMEOUT: Duration = Duration::from_secs(2);
    on_both(async |ensemble| {
        let url = ensemble.url();
        let process = tokio::task::spawn_blocking(move || {
            let process = tokio::runtime::Runtime::new().unwrap();
            process.block_on(async {
                let holder = session(&url, HOLDERS_TIMEOUT).await;
                std::mem::forget(acquire(&holder, "/locks/a").await);
            });
            process.shutdown_background();
        });
        process.await.unwrap();
        let url = ensemble.url();
        let tried = async {
            loop {
                // As after any silence, the store counts a quarter of the shortest timeout a time.
                tokio::time::sleep(HOLDERS_TIMEOUT / 4).await;
                let other = session(&url, Duration::from_secs(600)).await;
                let mutex = InterProcessMutex::new(&other, "/locks/a").unwrap();
                let tried = mutex.try_acquire().await.unwrap();
                if let Some(guard) = tried {
                    return guard.release().await.unwrap();
                }
                other.close().await;
            }
        };
        timeout(PATIENCE, tried).await.unwrap();
    })
    .await;
}
