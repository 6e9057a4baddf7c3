//! A transaction of the service that checks the lock commits only while the lock is held.
//!
//! Judged by the database alone: what a holder has committed is there when the next one is granted, and
//! nothing of it comes later.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::maybe_done;
use futures::stream::{self, StreamExt as _};
use lock_recipes::{
    Dialect, Error, FenceError, InterProcessMutex, LockOptions, Member, MultiLock, MutexGuard,
    Session, SessionOptions,
};
use test_rig::{MariaDbServer, PostgresServer, TestEnsemble, asked_for};
use tokio::time::timeout;

use super::PATIENCE;
use super::database::Database;

const SESSION_TIMEOUT: Duration = Duration::from_secs(20);
/// Schedules for each database. Each kind of schedule is in every 24 of them, and in every 54 of those with two
/// phases.
const SCHEDULES: usize = 54;
/// Schedules that run at the same time.
const SIDE_BY_SIDE: usize = 8;
/// Those of the schedules before may not have ended yet.
const CONNECTIONS_MAX: u16 = 500;

async fn on_postgres() -> TestEnsemble {
    let builder = PostgresServer::builder().max_connections(CONNECTIONS_MAX);
    TestEnsemble::Postgres(builder.start().await.unwrap().into())
}

async fn on_mariadb() -> TestEnsemble {
    let builder = MariaDbServer::builder().max_connections(CONNECTIONS_MAX);
    TestEnsemble::MariaDb(builder.start().await.unwrap().into())
}

async fn on_both(test: impl AsyncFn(TestEnsemble)) {
    test(on_postgres().await).await;
    test(on_mariadb().await).await;
}

/// When the holder loses the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    BeforeTheWrite,
    BeforeTheFence,
    BeforeTheCommit,
    AfterTheCommit,
}

const WHEN: [When; 4] = [
    When::BeforeTheWrite,
    When::BeforeTheFence,
    When::BeforeTheCommit,
    When::AfterTheCommit,
];

/// How the holder loses the lock.
#[derive(Clone, Copy, Debug)]
enum How {
    /// Its session ends, as if its process had been paused.
    Expires,
    /// An operator deletes its node.
    IsBroken,
    /// It releases before its commit.
    Releases,
}

const HOW: [How; 3] = [How::Expires, How::IsBroken, How::Releases];

struct Stage {
    ensemble: Arc<TestEnsemble>,
    lock: String,
}

impl Stage {
    async fn lose(&self, how: How, guard: &mut Option<MutexGuard>, session: &Session, node: &str) {
        match how {
            How::Expires => {
                let id = session.session_id();
                self.ensemble.end_session(id.unwrap_or_default()).await;
            }
            How::IsBroken => {
                // It waits for the holder's transaction, and this must not wait for it.
                drop(tokio::spawn(delete(
                    Arc::clone(&self.ensemble),
                    node.to_owned(),
                )));
            }
            How::Releases => drop(guard.take()),
        }
    }
}

/// As an operator does.
async fn delete(ensemble: Arc<TestEnsemble>, node: String) {
    let options = SessionOptions::new().session_timeout(SESSION_TIMEOUT);
    let store = ensemble.store_at(None, options, SESSION_TIMEOUT);
    let nodes = loop {
        match store.connect().await {
            Err(error) if error.is_transient() => {}
            opened => break opened.unwrap(),
        }
    };
    while nodes.delete(&node).await.is_err_and(|it| it.is_transient()) {}
}

/// One schedule: a holder writes, fences and commits, and loses the lock meanwhile; another waits.
async fn schedule(number: u64, stage: &Stage) {
    let (when, how) = (
        WHEN[usize::try_from(number % 4).unwrap()],
        HOW[usize::try_from(number / 4 % 3).unwrap()],
    );
    // Whether the next one is granted before the schedule goes on.
    let waits = number / 12 % 2 == 0;
    let name = format!("schedule {number}: {how:?} {when:?} {waits}");
    let (first, second) = (
        stage.ensemble.session().await,
        stage.ensemble.session().await,
    );
    let guard = mutex(&first, stage).acquire().await.unwrap();
    let node = guard.members()[0].node_path.clone();
    let fence = guard.fence().unwrap();
    let mut guard = Some(guard);
    let own = Database::connect(&stage.ensemble).await;
    let waiter = mutex(&second, stage);
    let insert = format!("INSERT INTO journal VALUES ({number})");
    let count = format!("SELECT count(*) FROM journal WHERE schedule = {number}");
    let next = tokio::spawn({
        let (theirs, count) = (Database::connect(&stage.ensemble).await, count.clone());
        async move {
            let guard = waiter.acquire().await.unwrap();
            let seen = theirs.numbers(&count).await[0];
            (guard, seen)
        }
    });
    let mut next = maybe_done(next);
    stage.ensemble.await_children(&stage.lock, 2).await;

    let mut failed = None;
    for (step, sql) in [
        (When::BeforeTheWrite, "BEGIN".to_owned()),
        (When::BeforeTheFence, insert),
        (When::BeforeTheCommit, fence.sql().to_owned()),
        (When::AfterTheCommit, "COMMIT".to_owned()),
    ] {
        if let Err(error) = own.run(&sql).await {
            failed = Some(error);
            own.run("ROLLBACK").await.unwrap();
            break;
        }
        if step == when {
            stage.lose(how, &mut guard, &first, &node).await;
            if when == When::BeforeTheCommit {
                // Nobody is granted the lock before the commit.
                let early = timeout(Duration::from_millis(number % 7), &mut next);
                assert!(early.await.is_err(), "{name}: granted beside a transaction");
            } else if waits && when != When::AfterTheCommit {
                timeout(PATIENCE, &mut next).await.unwrap();
            }
        }
    }
    timeout(PATIENCE, &mut next).await.unwrap();
    let (granted, seen) = Pin::new(&mut next).take_output().unwrap().unwrap();
    let committed = own.numbers(&count).await[0];
    assert_eq!(seen, committed, "{name}: something came after the grant");
    judge(&name, when, waits, committed, failed);
    granted.release().await.unwrap();
    drop(guard);
    first.close().await;
    second.close().await;
}

/// Whether what was committed, and the failure, are those of the schedule.
fn judge(name: &str, when: When, waits: bool, committed: i64, failed: Option<String>) {
    match when {
        When::BeforeTheCommit | When::AfterTheCommit => {
            assert_eq!((committed, failed), (1, None), "{name}");
        }
        When::BeforeTheWrite | When::BeforeTheFence if waits => {
            let failed = failed.unwrap_or_default();
            let mut dialects = [Dialect::Postgres, Dialect::MySql].iter();
            assert!(
                dialects.any(|it| failed.contains(it.refusal())),
                "{name}: {failed}"
            );
            assert_eq!(committed, 0, "{name}");
        }
        // Either may come first.
        When::BeforeTheWrite | When::BeforeTheFence => {
            assert_eq!(committed == 0, failed.is_some(), "{name}: {failed:?}");
        }
    }
}

fn mutex(session: &Session, stage: &Stage) -> InterProcessMutex {
    InterProcessMutex::new(session, &stage.lock).unwrap()
}

async fn schedules(ensemble: TestEnsemble, schedule: impl AsyncFn(u64, &Stage)) {
    // It says that nobody held a lock before.
    ensemble.session().await.close().await;
    let operator = Database::connect(&ensemble).await;
    operator
        .run("CREATE TABLE journal (schedule bigint)")
        .await
        .unwrap();
    let ensemble = Arc::new(ensemble);
    let schedules = stream::iter(0..asked_for("FENCE_SCHEDULES", SCHEDULES) as u64)
        .for_each_concurrent(SIDE_BY_SIDE, |number| {
            let stage = Stage {
                ensemble: Arc::clone(&ensemble),
                lock: format!("/fenced/{number}"),
            };
            let schedule = &schedule;
            async move { schedule(number, &stage).await }
        });
    schedules.await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_of_a_holder_that_lost_its_lock_never_commits_on_postgres() {
    schedules(on_postgres().await, schedule).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transaction_of_a_holder_that_lost_its_lock_never_commits_on_mariadb() {
    schedules(on_mariadb().await, schedule).await;
}

const ISOLATIONS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

/// One schedule: a holder writes and fences in a transaction of two phases, and loses the lock between both
/// phases. InnoDB gives shared locks up after the first.
async fn two_phases(number: u64, stage: &Stage) {
    let of = |all: u64, each: u64| usize::try_from(number / each % all).unwrap();
    let (isolation, how) = (ISOLATIONS[of(3, 1)], HOW[of(3, 3)]);
    let is_killed = of(2, 9) == 0;
    let name = format!("schedule {number}: {isolation} {how:?} {is_killed}");
    let (first, second) = (
        stage.ensemble.session().await,
        stage.ensemble.session().await,
    );
    let guard = mutex(&first, stage).acquire().await.unwrap();
    let (node, fence) = (guard.members()[0].node_path.clone(), guard.fence().unwrap());
    let mut guard = Some(guard);
    let own = Database::connect(&stage.ensemble).await;
    let operator = Database::connect(&stage.ensemble).await;
    let next = tokio::spawn(mutex(&second, stage).acquire());
    stage.ensemble.await_children(&stage.lock, 2).await;

    let isolation = format!("SET SESSION TRANSACTION ISOLATION LEVEL {isolation}");
    own.run(&isolation).await.unwrap();
    own.run(&format!("XA START 'x{number}'")).await.unwrap();
    let insert = format!("INSERT INTO journal VALUES ({number})");
    own.run(&insert).await.unwrap();
    let fenced = own.run(fence.sql()).await;
    let id = own.numbers("SELECT CONNECTION_ID()").await[0];
    own.run(&format!("XA END 'x{number}'")).await.unwrap();
    if fenced.is_ok() {
        own.run(&format!("XA PREPARE 'x{number}'")).await.unwrap();
    }
    stage.lose(how, &mut guard, &first, &node).await;
    if is_killed {
        operator.run(&format!("KILL {id}")).await.unwrap();
    }
    let granted = timeout(PATIENCE, next).await.unwrap().unwrap().unwrap();
    let count = format!("SELECT count(*) FROM journal WHERE schedule = {number}");
    let seen = operator.numbers(&count).await[0];
    if fenced.is_ok() {
        while operator
            .run(&format!("XA COMMIT 'x{number}'"))
            .await
            .is_err()
        {}
    } else if !is_killed {
        own.run(&format!("XA ROLLBACK 'x{number}'")).await.unwrap();
    }
    let committed = operator.numbers(&count).await[0];
    assert_eq!(seen, committed, "{name}: something came after the grant");
    let refused = fenced.unwrap_err();
    assert!(
        refused.contains("45000") && refused.contains("XA"),
        "{name}: {refused}"
    );
    granted.release().await.unwrap();
    drop(guard);
    first.close().await;
    second.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fence_in_a_transaction_of_two_phases_is_refused_on_mariadb() {
    schedules(on_mariadb().await, two_phases).await;
}

/// The same on PostgreSQL, whose locks stay until the second phase, whoever ends it.
async fn prepared(number: u64, stage: &Stage) {
    let of = |all: u64, each: u64| usize::try_from(number / each % all).unwrap();
    let (isolation, how) = (ISOLATIONS[of(3, 1)], HOW[of(3, 3)]);
    let (is_killed, commits) = (of(2, 9) == 0, of(3, 18) < 2);
    let name = format!("schedule {number}: {isolation} {how:?} {is_killed} {commits}");
    let (first, second) = (
        stage.ensemble.session().await,
        stage.ensemble.session().await,
    );
    let guard = mutex(&first, stage).acquire().await.unwrap();
    let (node, fence) = (guard.members()[0].node_path.clone(), guard.fence().unwrap());
    let mut guard = Some(guard);
    let own = Database::connect(&stage.ensemble).await;
    let operator = Database::connect(&stage.ensemble).await;
    let mut next = maybe_done(tokio::spawn(mutex(&second, stage).acquire()));
    stage.ensemble.await_children(&stage.lock, 2).await;

    let id = own.numbers("SELECT pg_backend_pid()::bigint").await[0];
    for sql in [
        format!("BEGIN ISOLATION LEVEL {isolation}"),
        format!("INSERT INTO journal VALUES ({number})"),
        fence.sql().to_owned(),
        format!("PREPARE TRANSACTION 'x{number}'"),
    ] {
        own.run(&sql)
            .await
            .unwrap_or_else(|error| panic!("{name}: {sql}: {error}"));
    }
    stage.lose(how, &mut guard, &first, &node).await;
    if is_killed {
        let kill = format!("SELECT pg_terminate_backend({id})");
        operator.run(&kill).await.unwrap();
    }
    let early = timeout(Duration::from_millis(number % 7), &mut next);
    assert!(early.await.is_err(), "{name}: granted between the phases");
    let end = if commits { "COMMIT" } else { "ROLLBACK" };
    let end = format!("{end} PREPARED 'x{number}'");
    operator.run(&end).await.unwrap();
    timeout(PATIENCE, &mut next).await.unwrap();
    let granted = Pin::new(&mut next).take_output().unwrap().unwrap().unwrap();
    let count = format!("SELECT count(*) FROM journal WHERE schedule = {number}");
    let committed = operator.numbers(&count).await[0];
    assert_eq!(committed, i64::from(commits), "{name}");
    granted.release().await.unwrap();
    drop(guard);
    first.close().await;
    second.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fence_holds_until_the_second_phase_on_postgres() {
    let builder = PostgresServer::builder().max_connections(CONNECTIONS_MAX);
    let builder = builder.setting("max_prepared_transactions", "64");
    let server = builder.start().await.unwrap();
    schedules(TestEnsemble::Postgres(server.into()), prepared).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn set_is_fenced_as_a_whole() {
    on_both(async |ensemble| {
        let session = ensemble.session().await;
        let members = ["/seats/1", "/seats/2"].map(Member::mutex);
        let guard = MultiLock::new(&session, members)
            .unwrap()
            .acquire()
            .await
            .unwrap();
        let (fence, second) = (guard.fence().unwrap(), guard.members()[1].node_path.clone());
        let dialect = match &ensemble {
            TestEnsemble::Postgres(_) => Dialect::Postgres,
            _ => Dialect::MySql,
        };
        assert_eq!(fence.dialect(), dialect);
        let own = Database::connect(&ensemble).await;
        own.run("BEGIN").await.unwrap();
        own.run(fence.sql()).await.unwrap();
        own.run("COMMIT").await.unwrap();
        ensemble.delete(&second).await;
        own.run("BEGIN").await.unwrap();
        own.run(fence.sql()).await.unwrap_err();
        own.run("ROLLBACK").await.unwrap();
    })
    .await;
}

/// The next contender of the process would have the node that the statement checks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fenced_node_is_not_handed_on_within_the_process() {
    on_both(async |ensemble| {
        let session = ensemble.session().await;
        let options = LockOptions::new().local_handoffs(100);
        let lock = InterProcessMutex::with_options(&session, "/fenced", &options).unwrap();
        let guard = lock.acquire().await.unwrap();
        let (fence, node) = (guard.fence().unwrap(), guard.members()[0].node_path.clone());
        let next = tokio::spawn(lock.acquire());
        guard.release().await.unwrap();
        let next = timeout(PATIENCE, next).await.unwrap().unwrap().unwrap();
        assert_ne!(next.members()[0].node_path, node);
        let own = Database::connect(&ensemble).await;
        own.run("BEGIN").await.unwrap();
        own.run(fence.sql()).await.unwrap_err();
    })
    .await;
}

#[tokio::test]
async fn lock_on_another_store_has_no_fence() {
    let ensemble = TestEnsemble::in_memory();
    let session = ensemble.session().await;
    let lock = InterProcessMutex::new(&session, "/locks/orders").unwrap();
    let guard = lock.acquire().await.unwrap();
    let refused = guard.fence().unwrap_err();
    assert!(
        matches!(refused, Error::Fence(FenceError::Unsupported { .. })),
        "{refused}"
    );
    assert!(refused.to_string().contains("/locks/orders"), "{refused}");
    ensemble.expire(&session).await;
    timeout(PATIENCE, guard.lost()).await.unwrap();
    let refused = guard.fence().unwrap_err();
    assert!(
        matches!(refused, Error::Fence(FenceError::Lost(_))),
        "{refused}"
    );
}
