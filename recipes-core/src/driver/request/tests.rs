use std::time::Duration;

use futures::poll;

use super::*;
use crate::driver::internals::LockInternals;
use crate::error::AcquireError;
use crate::names::node_name::LockKind;
use crate::scripted::{SECOND, Stage, settle};
use crate::session::options::LockOptions;

fn lock(stage: &Stage, path: &str) -> LockInternals {
    let options = LockOptions::new();
    LockInternals::new(&stage.session, path, LockKind::Mutex, &options).unwrap()
}

/// One lock, a set of one session, and locks that are acquired in turn.
fn all_locks(stage: &Stage) -> [Locks; 3] {
    let one = || Locks::One(lock(stage, "/a"));
    [
        one(),
        Locks::together(vec![lock(stage, "/a"), lock(stage, "/b")]).unwrap(),
        Locks::in_turn(vec![one(), Locks::One(lock(stage, "/b"))]).unwrap(),
    ]
}

fn acquire(locks: &Locks) -> Acquire<LockGuard> {
    Acquire::new(locks.clone(), |guard| guard)
}

fn try_acquire(locks: &Locks) -> TryAcquire<LockGuard> {
    TryAcquire::new(locks.clone(), |guard| guard)
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_before_the_first_poll() {
    let owner = Owner::new();
    for index in 0..3 {
        // Of its own: an acquire adopts what another has given up.
        let stage = Stage::new().await;
        let locks = &all_locks(&stage)[index];
        let mut request = acquire(locks).owner(&owner).timeout(SECOND);
        let mut tried = try_acquire(locks).owner(&owner);
        settle().await;
        assert!(stage.log().await.is_empty());
        assert!(poll!(&mut request).is_pending());
        assert!(!stage.log().await.is_empty());
        drop(request);
        settle().await;
        stage.log().await;
        assert!(poll!(&mut tried).is_pending());
        assert!(!stage.log().await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn request_that_was_not_polled_leaves_nothing() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    for locks in all_locks(&stage) {
        drop(acquire(&locks).owner(&owner).timeout(SECOND));
        drop(try_acquire(&locks).owner(&owner));
        settle().await;
        assert!(stage.log().await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn timeout_counts_from_the_first_poll() {
    let stage = Stage::new().await;
    for locks in all_locks(&stage) {
        let mut request = acquire(&locks).timeout(2 * SECOND);
        tokio::time::advance(5 * SECOND).await;
        assert!(poll!(&mut request).is_pending());
        tokio::time::advance(SECOND).await;
        assert!(poll!(&mut request).is_pending());
        tokio::time::advance(SECOND).await;
        let Poll::Ready(Err(Error::Acquire(AcquireError::TimedOut { waited, .. }))) =
            poll!(&mut request)
        else {
            panic!("it waits on");
        };
        assert_eq!(waited, 2 * SECOND);
    }
}

#[tokio::test(start_paused = true)]
async fn request_that_is_changed_after_a_poll_starts_over() {
    let stage = Stage::new().await;
    let locks = Locks::One(lock(&stage, "/a"));
    let mut request = acquire(&locks).timeout(2 * SECOND);
    assert!(poll!(&mut request).is_pending());
    let first = stage.log().await;
    assert!(first.iter().any(|it| it.starts_with("create")), "{first:?}");
    tokio::time::advance(SECOND).await;

    let mut request = request.owner(&Owner::new());
    assert!(poll!(&mut request).is_pending());
    let second = stage.log().await;
    assert!(
        !second.iter().any(|it| it.starts_with("create")),
        "it adopts what it has given up: {second:?}"
    );
    tokio::time::advance(SECOND).await;
    assert!(
        poll!(&mut request).is_pending(),
        "its timeout counts from this poll"
    );
    tokio::time::advance(SECOND).await;
    assert!(matches!(
        poll!(&mut request),
        Poll::Ready(Err(Error::Acquire(AcquireError::TimedOut { .. })))
    ));
}

#[tokio::test(start_paused = true)]
async fn longest_timeout_waits_for_ever() {
    let stage = Stage::new().await;
    let locks = Locks::One(lock(&stage, "/a"));
    let mut request = acquire(&locks).timeout(Duration::MAX);
    assert!(poll!(&mut request).is_pending());
    tokio::time::advance(Duration::from_secs(1_000_000)).await;
    assert!(poll!(&mut request).is_pending());
}

#[tokio::test(start_paused = true)]
async fn debug_names_the_locks_and_how_they_are_acquired() {
    let stage = Stage::new().await;
    let locks = Locks::One(lock(&stage, "/a"));
    let mut request = acquire(&locks).timeout(SECOND);
    let text = r#"Acquire { locks: ["/a"], owner: None, timeout: Some(1s), is_polled: false }"#;
    assert_eq!(format!("{request:?}"), text);
    assert!(poll!(&mut request).is_pending());
    assert!(format!("{request:?}").contains("is_polled: true"));
    let tried = try_acquire(&locks);
    let text = r#"TryAcquire { locks: ["/a"], owner: None, timeout: None, is_polled: false }"#;
    assert_eq!(format!("{tried:?}"), text);
}

/// Its timers need one. It says so before there is anything to clean up.
#[tokio::test(start_paused = true)]
async fn timeout_without_a_runtime_panics_before_anything_is_sent() {
    let stage = Stage::new().await;
    for locks in all_locks(&stage) {
        let requests: [BoxFuture<'static, bool>; 2] = [
            acquire(&locks).timeout(SECOND).map(|it| it.is_ok()).boxed(),
            try_acquire(&locks).map(|it| it.is_ok()).boxed(),
        ];
        for mut request in requests {
            let polled = std::thread::spawn(move || {
                let mut nobody = Context::from_waker(std::task::Waker::noop());
                request.poll_unpin(&mut nobody).is_pending()
            });
            let panic = polled.join().unwrap_err();
            let panic = panic.downcast_ref::<String>().map(String::as_str);
            assert!(panic.is_some_and(|it| it.contains("runtime")), "{panic:?}");
            settle().await;
            assert!(stage.log().await.is_empty());
        }
    }
}
