//! Processes that are halted for longer than their session, as by a debugger, a machine without
//! free memory, or a virtual machine that is moved.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use lock_recipes::{
    Client, Error, FencingToken, LostReason, MutexGuard, ReleaseError, TransactionError, ZooKeeper,
};
use rustix::process::Signal;
use test_rig::TestEnsemble;
use test_rig::history::monotonic_now;

use crate::again;
use crate::talk::{Talk, listen, say};
use crate::{LONG, PATH, assert_nothing_left, mutex, server, session, start};

/// A store that refuses tokens lower than the highest that it has seen.
const REGISTER: &str = "/register";
/// A node that is written only under the lock.
const GUARDED: &str = "/guarded";
/// Of processes that are halted for longer. A busy machine lets none of them end before.
const SESSION_TIMEOUT: Duration = Duration::from_secs(8);
/// A thread that has not run for this long was halted with its process.
const HALTED: Duration = Duration::from_secs(4);

/// Writes to the store, unless it has seen a higher token.
async fn write_fenced(client: &Client, token: FencingToken, text: &str) -> bool {
    loop {
        let (data, stat) = client.get_data(REGISTER).await.unwrap();
        let data = String::from_utf8(data).unwrap();
        let seen = data.split(' ').next().unwrap().parse().unwrap_or(0);
        if token.as_i64() < seen {
            return false;
        }
        let data = format!("{token} {text}");
        let written = client
            .set_data(REGISTER, data.as_bytes(), Some(stat.version))
            .await;
        if written.is_ok() {
            return true;
        }
    }
}

/// Checks the guard from a thread of its own, which no task of the runtime delays. Returns the
/// result of the first check after a halt.
fn first_look_after_a_halt(guard: &MutexGuard) -> bool {
    let mut last = monotonic_now();
    loop {
        let is_valid = guard.is_valid();
        let now = monotonic_now();
        if Duration::from_nanos(now - last) > HALTED {
            // The check may have begun before the halt, so the answer may be from then.
            return guard.is_valid();
        }
        assert!(is_valid, "lost before the halt");
        last = now;
        #[expect(clippy::disallowed_methods, reason = "the thread of no runtime")]
        thread::sleep(Duration::from_millis(1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process that another test starts"]
async fn holder_process() {
    let Some(connect_string) = again::orders() else {
        return;
    };
    let options = ZooKeeper::builder().session_timeout(SESSION_TIMEOUT);
    let session = options.connect(&connect_string).await.unwrap();
    let client = Client::connect(&connect_string).await.unwrap();
    let guard = Arc::new(mutex(&session).acquire().await.unwrap());
    let token = guard.fencing_token();
    assert!(write_fenced(&client, token, "first").await);
    say(&format!("holding {token}"));

    let looking = Arc::clone(&guard);
    let look = move || first_look_after_a_halt(&looking);
    let is_valid = tokio::task::spawn_blocking(look).await.unwrap();
    say(&format!("valid {is_valid}"));
    let late = guard.transaction().set(GUARDED, "late").commit().await;
    say(&format!(
        "transaction {}",
        matches!(late, Err(Error::Transaction(TransactionError::Lost(_))))
    ));
    // A new client, because the old one's session has ended, too.
    let client = Client::connect(&connect_string).await.unwrap();
    say(&format!(
        "fenced {}",
        write_fenced(&client, token, "late").await
    ));
    let lost = guard.lost().await;
    assert!(
        matches!(
            lost.reason,
            LostReason::DeadlinePassed | LostReason::SessionExpired
        ),
        "{lost}"
    );
    let released = Arc::into_inner(guard).unwrap().release().await;
    assert!(
        matches!(released, Err(Error::Release(ReleaseError::Lost(_)))),
        "{released:?}"
    );
    let again = mutex(&session).acquire().await.unwrap();
    say(&format!("again {}", again.fencing_token()));
    again.release().await.unwrap();
    session.close().await;
}

fn number(words: &str, what: &str) -> i64 {
    let number = words
        .strip_prefix(what)
        .and_then(|it| it.trim().parse().ok());
    number.unwrap_or_else(|| panic!("{what:?} is not in {words:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_that_slept_past_its_session_is_invalid_at_once_and_its_late_writes_are_refused() {
    let ensemble = start().await;
    ensemble.create(REGISTER, b"").await;
    ensemble.create(GUARDED, b"nothing").await;
    let client = server(&ensemble).client().await.unwrap();
    let mut holder = Talk::start(
        "sleeper::holder_process",
        &server(&ensemble).connect_string(),
    );
    let first = number(&holder.says().await, "holding");
    let awake = session(&ensemble, LONG).await;
    let next = mutex(&awake);
    let next = tokio::spawn(next.acquire());
    ensemble.await_children(PATH, 2).await;

    holder.signal(Signal::STOP);
    let next = next.await.unwrap().unwrap();
    assert!(next.fencing_token().as_i64() > first);
    assert!(write_fenced(&client, next.fencing_token(), "next").await);
    next.transaction()
        .set(GUARDED, "next")
        .commit()
        .await
        .unwrap();
    // The checking thread must be able to tell this halt from a busy machine.
    tokio::time::sleep(2 * HALTED).await;
    holder.signal(Signal::CONT);

    assert_eq!(holder.says().await, "valid false");
    assert_eq!(holder.says().await, "transaction true");
    assert_eq!(holder.says().await, "fenced false");
    next.verify().await.unwrap();
    assert_eq!(ensemble.read(GUARDED).await.unwrap().0, b"next");
    let (register, _) = ensemble.read(REGISTER).await.unwrap();
    assert_eq!(
        register,
        format!("{} next", next.fencing_token()).into_bytes()
    );
    ensemble.await_children(PATH, 2).await;
    let token = next.fencing_token().as_i64();
    next.release().await.unwrap();
    assert!(number(&holder.says().await, "again") > token);
    assert!(holder.ended(LONG).await.unwrap().success());
    ensemble.await_children(PATH, 0).await;
    assert_nothing_left(server(&ensemble));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a process that another test starts"]
async fn waiter_process() {
    let Some(connect_string) = again::orders() else {
        return;
    };
    let options = ZooKeeper::builder().session_timeout(SESSION_TIMEOUT);
    let session = options.connect(&connect_string).await.unwrap();
    let guard = mutex(&session).acquire().await.unwrap();
    assert!(guard.is_valid());
    say(&format!("epoch {}", session.epoch()));
    say(&format!("holding {}", guard.fencing_token()));
    assert_eq!(listen(), "release");
    guard.release().await.unwrap();
    session.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_that_slept_past_its_session_makes_way_and_joins_again() {
    let ensemble = start().await;
    let awake = session(&ensemble, LONG).await;
    let held = mutex(&awake).acquire().await.unwrap();
    let mut waiter = Talk::start(
        "sleeper::waiter_process",
        &server(&ensemble).connect_string(),
    );
    let before = ensemble.await_children(PATH, 2).await;
    let behind = mutex(&awake);
    let behind = tokio::spawn(behind.acquire());
    ensemble.await_children(PATH, 3).await;

    waiter.signal(Signal::STOP);
    // Its node is deleted with its session. The waiter after it then has only the holder ahead.
    let left = ensemble.await_children(PATH, 2).await;
    held.release().await.unwrap();
    let granted = behind.await.unwrap().unwrap();
    waiter.signal(Signal::CONT);
    let joined = ensemble.await_children(PATH, 2).await;
    let is_new = |name: &String| !before.contains(name) && !left.contains(name);
    assert!(
        joined.iter().any(is_new),
        "{before:?}, {left:?}, {joined:?}"
    );
    assert!(granted.is_valid());
    let token = granted.fencing_token().as_i64();
    granted.release().await.unwrap();
    assert_eq!(waiter.says().await, "epoch 2");
    assert!(number(&waiter.says().await, "holding") > token);
    waiter.tell("release").await;
    assert!(waiter.ended(LONG).await.unwrap().success());
    ensemble.await_children(PATH, 0).await;
    assert_nothing_left(server(&ensemble));
}

/// A killed holder cannot be notified. Its lock is free when its session has expired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_holder_leaves_the_lock_to_the_next_one_after_its_session() {
    let ensemble: TestEnsemble = start().await;
    let mut holder = Talk::start(
        "sleeper::waiter_process",
        &server(&ensemble).connect_string(),
    );
    assert_eq!(holder.says().await, "epoch 1");
    let token = number(&holder.says().await, "holding");
    holder.kill().await;
    let awake = session(&ensemble, LONG).await;
    let next = mutex(&awake).acquire().timeout(LONG).await.unwrap();
    assert!(next.fencing_token().as_i64() > token);
    next.release().await.unwrap();
    ensemble.await_children(PATH, 0).await;
    assert_nothing_left(server(&ensemble));
}
