//! Each recipe of the cookbook does what it promises.

#[path = "../../examples/cookbook/batch_reservation.rs"]
mod batch_reservation;
#[path = "../../examples/cookbook/config_reload.rs"]
mod config_reload;
#[path = "../../examples/cookbook/cron_job.rs"]
mod cron_job;
#[path = "../../examples/cookbook/fenced_write.rs"]
mod fenced_write;
#[path = "../../examples/cookbook/few_at_a_time.rs"]
mod few_at_a_time;
#[path = "../../examples/cookbook/graceful_shutdown.rs"]
#[expect(
    dead_code,
    reason = "signals are for the whole process; the executable waits for them"
)]
mod graceful_shutdown;
#[path = "../../examples/cookbook/leader.rs"]
mod leader;
#[path = "../../examples/cookbook/rate_of_one.rs"]
mod rate_of_one;
#[path = "../../examples/cookbook/testing_your_code.rs"]
mod testing_your_code;
mod unanswered;

use std::cell::Cell;
use std::pin::pin;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lock_recipes::{
    InterProcessMutex, InterProcessReadWriteLock, LeaderElection, LockFactory, LockOptions, Owner,
    Session, SessionHealth,
};
use test_rig::{TestEnsemble, ZooKeeperServer, on_every_ensemble};
use testing_your_code::Export;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::executable::executable;

async fn mutex(ensemble: &TestEnsemble, path: &str) -> (Session, InterProcessMutex) {
    let session = ensemble.session().await;
    let mutex = InterProcessMutex::new(&session, path).unwrap();
    (session, mutex)
}

on_every_ensemble!(
    job_runs_on_one_machine_and_once_for_a_slot,
    job_whose_lock_is_lost_is_left_to_another_machine,
    one_leads_until_it_is_done_or_loses_its_term,
    one_call_for_each_key_in_a_period,
    no_more_calls_are_under_way_than_are_allowed,
    late_writer_is_refused_by_the_table,
    late_writer_of_the_same_process_is_refused_after_a_local_hand_off,
    service_that_is_asked_to_stop_ends_its_job_and_leaves_nothing,
    service_that_waits_for_its_turn_stops_at_once,
    configuration_is_read_as_one_writer_left_it,
    seats_are_reserved_together_or_not_at_all,
    export_runs_unless_somebody_else_is_at_it,
);

async fn job_runs_on_one_machine_and_once_for_a_slot(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let runs = Cell::new(0);
    let count = async || runs.set(runs.get() + 1);
    let beside = async {
        count().await;
        // The job is already running here.
        let ran = cron_job::run_once(&there, "nightly", "2026-11-21", count()).await;
        assert!(!ran.unwrap());
    };
    assert!(
        cron_job::run_once(&here, "nightly", "2026-11-21", beside)
            .await
            .unwrap()
    );
    for (machine, slot, runs_then) in [
        (&there, "2026-11-21", 1),
        (&there, "2026-11-22", 2),
        (&here, "2026-11-21", 2),
    ] {
        let ran = cron_job::run_once(machine, "nightly", slot, count())
            .await
            .unwrap();
        assert_eq!(
            (ran, runs.get()),
            (runs_then == 2 && slot == "2026-11-22", runs_then)
        );
    }
    assert!(ensemble.children("/cron/nightly/lock").await.is_empty());
}

async fn job_whose_lock_is_lost_is_left_to_another_machine(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let hangs = async {
        ensemble.expire(&here).await;
        std::future::pending::<()>().await;
    };
    cron_job::run_once(&here, "nightly", "2026-11-21", hangs)
        .await
        .unwrap_err();
    assert!(
        cron_job::run_once(&there, "nightly", "2026-11-21", async {})
            .await
            .unwrap()
    );
}

async fn one_leads_until_it_is_done_or_loses_its_term(ensemble: TestEnsemble) {
    let (first, second) = (ensemble.session().await, ensemble.session().await);
    let led_by = |session, id| LeaderElection::new(session, "/workers/leader", id).unwrap();
    let (led_by_first, led_by_second) = (led_by(&first, "first"), led_by(&second, "second"));
    let log = Arc::new(Mutex::new(Vec::new()));
    let (started, is_at_work) = oneshot::channel();
    let mut started = Some(started);
    let of_the_first = Arc::clone(&log);
    let leads = tokio::spawn(async move {
        let work = |token| {
            of_the_first.lock().unwrap().push(("first", token));
            let started = started.take();
            async move {
                let Some(started) = started else { return };
                started.send(()).unwrap();
                std::future::pending().await
            }
        };
        leader::lead(&led_by_first, work).await
    });
    is_at_work.await.unwrap();
    let after = leader::lead(&led_by_second, async |token| {
        log.lock().unwrap().push(("second", token));
    });
    let mut after = std::pin::pin!(after);
    assert!(futures::poll!(&mut after).is_pending());
    let stands_by = ensemble.await_children("/workers/leader", 2);
    tokio::select! {
        _ = &mut after => panic!("two leaders"),
        _ = stands_by => {}
    }
    // Anyone can ask who leads.
    let leader = led_by_second.leader().await.unwrap().unwrap();
    assert_eq!(leader.id, "first");
    ensemble.expire(&first).await;
    after.await.unwrap();
    leads.await.unwrap().unwrap();
    let log = log.lock().unwrap();
    assert_eq!(
        log.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
        ["first", "second", "first"]
    );
    assert!(log.is_sorted_by(|(_, a), (_, b)| a < b), "{log:?}");
}

async fn one_call_for_each_key_in_a_period(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let [here, there] = [&here, &there].map(|it| LockFactory::new(it, "/reminders").unwrap());
    let call = async |keys: &LockFactory, key: &str, period| {
        let called = rate_of_one::call_at_most_once(keys, key, period, async { 7 }).await;
        called.unwrap()
    };
    let (long, short) = (Duration::from_secs(3600), Duration::from_millis(200));
    assert_eq!(call(&here, "alice", long).await, Some(7));
    assert_eq!(call(&here, "alice", long).await, None);
    assert_eq!(call(&there, "alice", long).await, None);
    assert_eq!(call(&there, "bob", short).await, Some(7));
    ensemble.await_children("/reminders/bob", 0).await;
    assert_eq!(call(&here, "bob", long).await, Some(7));
    // This is true even in a scope, where a second acquire would re-enter.
    let twice = async {
        assert_eq!(call(&here, "carol", long).await, Some(7));
        assert_eq!(call(&here, "carol", long).await, None);
    };
    Owner::new().scope(twice).await;
}

async fn no_more_calls_are_under_way_than_are_allowed(ensemble: TestEnsemble) {
    const MOST: usize = 2;
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let here = LockFactory::new(&here, "/partners").unwrap();
    let there = LockFactory::new(&there, "/partners").unwrap();
    let (inside, most) = (Cell::new(0_usize), Cell::new(0_usize));
    let call = |keys| {
        let work = async {
            inside.set(inside.get() + 1);
            most.set(most.get().max(inside.get()));
            ensemble.let_something_happen().await;
            inside.set(inside.get() - 1);
        };
        few_at_a_time::call(keys, "acme", MOST, work)
    };
    let calls = [&here, &there, &here, &there, &here].map(call);
    let calls = futures::future::try_join_all(calls);
    timeout(Duration::from_secs(120), calls)
        .await
        .unwrap()
        .unwrap();
    assert!((1..=MOST).contains(&most.get()), "{}", most.get());
    for below in ["locks", "leases"] {
        ensemble
            .await_children(&format!("/partners/acme/{below}"), 0)
            .await;
    }
}

async fn late_writer_is_refused_by_the_table(ensemble: TestEnsemble) {
    let db = rusqlite::Connection::open_in_memory().unwrap();
    fenced_write::create(&db).unwrap();
    let (sleeper, its_lock) = mutex(&ensemble, "/accounts/alice").await;
    let late = its_lock.acquire().await.unwrap().fencing_token();
    let balance = fenced_write::read(&db, "alice", late).unwrap().unwrap();
    ensemble.expire(&sleeper).await;
    let (_next, lock) = mutex(&ensemble, "/accounts/alice").await;
    let guard = lock.acquire().await.unwrap();
    let token = guard.fencing_token();
    // After this read no holder with a lower token may write, not even before the write.
    assert_eq!(
        fenced_write::read(&db, "alice", token).unwrap(),
        Some(balance)
    );
    assert!(!fenced_write::write(&db, "alice", balance - 100, late).unwrap());
    assert_eq!(fenced_write::read(&db, "alice", late).unwrap(), None);
    assert!(fenced_write::write(&db, "alice", balance + 50, token).unwrap());
    assert_eq!(
        fenced_write::read(&db, "alice", token).unwrap(),
        Some(balance + 50)
    );
    guard.release().await.unwrap();
}

/// Both grants rest on one node, so they share the number.
async fn late_writer_of_the_same_process_is_refused_after_a_local_hand_off(ensemble: TestEnsemble) {
    let db = rusqlite::Connection::open_in_memory().unwrap();
    fenced_write::create(&db).unwrap();
    let session = ensemble.session().await;
    let options = LockOptions::new().local_handoffs(100);
    let lock = InterProcessMutex::with_options(&session, "/accounts/alice", &options).unwrap();
    let first = lock.acquire().await.unwrap();
    let mut next = pin!(lock.acquire());
    assert!(futures::poll!(&mut next).is_pending());
    let late = first.fencing_token();
    assert_eq!(fenced_write::read(&db, "alice", late).unwrap(), Some(100));
    assert!(fenced_write::write(&db, "alice", 90, late).unwrap());
    let (released, next) = futures::join!(first.release(), next);
    released.unwrap();
    let next = next.unwrap();
    let token = next.fencing_token();
    assert_eq!((token.as_i64(), token.handoff()), (late.as_i64(), 1));
    assert!(fenced_write::overwrite(&db, "alice", 80, token).unwrap());
    for refused in [fenced_write::write, fenced_write::overwrite] {
        assert!(!refused(&db, "alice", 0, late).unwrap());
    }
    assert_eq!(fenced_write::read(&db, "alice", late).unwrap(), None);
    assert_eq!(fenced_write::read(&db, "alice", token).unwrap(), Some(80));
    // A later node counts its hand-offs from 0 again, and is higher all the same.
    next.release().await.unwrap();
    let later = lock.acquire().await.unwrap();
    assert_eq!(later.fencing_token().handoff(), 0);
    assert!(fenced_write::overwrite(&db, "alice", 70, later.fencing_token()).unwrap());
    assert!(!fenced_write::overwrite(&db, "alice", 80, token).unwrap());
    later.release().await.unwrap();
}

async fn service_that_is_asked_to_stop_ends_its_job_and_leaves_nothing(ensemble: TestEnsemble) {
    let (session, lock) = mutex(&ensemble, "/service/lock").await;
    let (stop, stopped) = oneshot::channel::<()>();
    let (mut stop, jobs) = (Some(stop), Cell::new(0));
    let job = || {
        // The request comes in the middle of the second job.
        if jobs.get() == 1 {
            drop(stop.take());
        }
        async {
            tokio::task::yield_now().await;
            jobs.set(jobs.get() + 1);
        }
    };
    graceful_shutdown::serve(&session, &lock, stopped, job)
        .await
        .unwrap();
    assert_eq!(jobs.get(), 2);
    assert_eq!(session.health(), SessionHealth::Closed);
    ensemble.await_children("/service/lock", 0).await;
}

async fn service_that_waits_for_its_turn_stops_at_once(ensemble: TestEnsemble) {
    let (_other, held) = mutex(&ensemble, "/service/lock").await;
    let _held = held.acquire().await.unwrap();
    let (session, lock) = mutex(&ensemble, "/service/lock").await;
    let queued = ensemble.await_children("/service/lock", 2);
    let never = || async { panic!("it is not its turn") };
    let stopped = graceful_shutdown::serve(&session, &lock, queued, never);
    let stopped = timeout(Duration::from_secs(30), stopped).await;
    stopped.expect("waits for its turn").unwrap();
    ensemble.await_children("/service/lock", 1).await;
}

async fn configuration_is_read_as_one_writer_left_it(ensemble: TestEnsemble) {
    let (session, other) = (ensemble.session().await, ensemble.session().await);
    assert_eq!(config_reload::load(&session).await.unwrap(), None);
    config_reload::publish(&other, ["db1", "5432"])
        .await
        .unwrap();
    let values = config_reload::load(&session).await.unwrap().unwrap();
    assert_eq!(values, [&b"db1"[..], b"5432"]);
    // A writer that is half-way keeps readers waiting. A reader keeps the next writer waiting.
    let lock = InterProcessReadWriteLock::new(&other, "/config/lock").unwrap();
    let writer = lock.write().await.unwrap();
    let mut load = std::pin::pin!(config_reload::load(&session));
    tokio::select! {
        _ = &mut load => panic!("read beside a writer"),
        _ = ensemble.await_children("/config/lock", 2) => {}
    }
    writer.release().await.unwrap();
    assert_eq!(load.await.unwrap().unwrap(), values);
    let reader = lock.read().await.unwrap();
    let mut change = std::pin::pin!(config_reload::publish(&session, ["db2", "5433"]));
    tokio::select! {
        _ = &mut change => panic!("changed under a reader"),
        _ = ensemble.await_children("/config/lock", 2) => {}
    }
    assert_eq!(ensemble.read("/config/host").await.unwrap().0, b"db1");
    reader.release().await.unwrap();
    change.await.unwrap();
    let values = config_reload::load(&session).await.unwrap().unwrap();
    assert_eq!(values, [&b"db2"[..], b"5433"]);
}

async fn seats_are_reserved_together_or_not_at_all(ensemble: TestEnsemble) {
    let (alice, bob) = (ensemble.session().await, ensemble.session().await);
    let (up, down) = (["7/11", "7/12"], ["7/12", "7/11"]);
    let both = tokio::join!(
        batch_reservation::reserve(&alice, &up, "alice"),
        batch_reservation::reserve(&bob, &down, "bob"),
    );
    let both = [both.0.unwrap(), both.1.unwrap()];
    assert_eq!(both.iter().filter(|it| it.is_ok()).count(), 1, "{both:?}");
    let more = batch_reservation::reserve(&bob, &["7/13", "7/12"], "bob")
        .await
        .unwrap();
    assert_eq!(more, Err("7/12".to_owned()));
    assert!(ensemble.read("/seats/taken-7%2F13").await.is_none());
    let owners = [
        ensemble.read("/seats/taken-7%2F11").await,
        ensemble.read("/seats/taken-7%2F12").await,
    ];
    let [(first, _), (second, _)] = owners.map(Option::unwrap);
    assert_eq!(first, second);
}

async fn export_runs_unless_somebody_else_is_at_it(ensemble: TestEnsemble) {
    let (_here, lock) = mutex(&ensemble, "/locks/export").await;
    let ended = testing_your_code::export(&lock, async {}).await.unwrap();
    assert!(matches!(ended, Export::Done), "{ended:?}");
    let (_there, other) = mutex(&ensemble, "/locks/export").await;
    let _held = other.acquire().await.unwrap();
    let ended = testing_your_code::export(&lock, async {}).await.unwrap();
    assert!(matches!(ended, Export::SomebodyElseIsAtIt), "{ended:?}");
}

const LINES: [&str; 15] = [
    "cron_job: first machine, 2026-11-21: ran = true",
    "cron_job: second machine, 2026-11-21: ran = false",
    "cron_job: first machine, 2026-11-22: ran = true",
    "leader: host-7 at work in term ",
    "rate_of_one: alice: called = true",
    "rate_of_one: alice: called = false",
    "rate_of_one: bob: called = true",
    "few_at_a_time: call 3 to acme",
    "written = true",
    "written = false",
    "graceful_shutdown: closed",
    r#"config_reload: [Ok("db1"), Ok("5432")]"#,
    r#"batch_reservation: alice has ["7-11", "7-12"]"#,
    "batch_reservation: bob has none, 7-12 is taken",
    "testing_your_code: Done",
];

fn cookbook(arguments: &[&str]) -> Output {
    let cookbook = executable("cookbook");
    Command::new(cookbook).args(arguments).output().unwrap()
}

fn assert_tells_all(output: &Output) {
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{errors}");
    for line in LINES {
        assert!(told.contains(line), "no {line:?} in\n{told}");
    }
}

#[test]
fn it_needs_no_server() {
    assert_tells_all(&cookbook(&[]));
}

#[tokio::test]
async fn it_runs_on_a_real_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    assert_tells_all(&cookbook(&["--connect", &server.connect_string()]));
}

#[test]
fn it_shows_one_recipe_and_names_them_all() {
    let one = cookbook(&["leader"]);
    assert!(one.status.success());
    let told = String::from_utf8_lossy(&one.stdout);
    assert!(
        told.starts_with("leader: ") && told.lines().count() == 1,
        "{told}"
    );
    let unknown = cookbook(&["leadre"]);
    assert!(!unknown.status.success());
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("cron_job"));
}
