//! Sessions of threads: who waits, who is let in, and what is left.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self as channel, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use futures::future::join;
use lock_recipes::{
    ConfigError, Error, GuardState, InterProcessMutex, LeaderLatch, LockFactory, MutexGuard,
    Session, SessionHealth, blocking,
};
use test_rig::{MemoryEnsemble, TestEnsemble, shared};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

const PATH: &str = "/locks/deploy";
const SHORT: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(120);

/// A store on the machine's clock. Its sessions do not expire by time.
fn store() -> MemoryEnsemble {
    MemoryEnsemble::builder().without_session_timeout().build()
}

fn open(store: &MemoryEnsemble) -> blocking::Session {
    blocking::Session::open(async { Ok(store.session()) }).unwrap()
}

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

fn acquire(session: &blocking::Session) -> MutexGuard {
    let acquired = session.wait(mutex(session).acquire().timeout(PATIENCE));
    acquired.unwrap()
}

/// The error of an acquire of the lock, which another session holds. On a busy machine the store may not have
/// answered in a short time, and has more.
fn late(session: &blocking::Session) -> Error {
    let mut waits = SHORT;
    loop {
        let waited = session.wait(mutex(session).acquire().timeout(waits));
        let late = waited.unwrap_err();
        if late.is_busy() || waits > PATIENCE {
            return late;
        }
        waits *= 4;
    }
}

/// Acquires and releases as another process would, which waits until the lock is free.
fn assert_free(store: &MemoryEnsemble) {
    let other = open(store);
    other.wait(acquire(&other).release()).unwrap();
    other.close();
}

fn await_no_sessions(store: &MemoryEnsemble) {
    let is_over = async {
        while !store.sessions().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let is_over = runtime.block_on(async { tokio::time::timeout(PATIENCE, is_over).await });
    is_over.unwrap();
}

/// Fails if the test hangs.
fn in_time(test: impl FnOnce() + Send + 'static) {
    let (sender, ended) = channel::channel::<()>();
    let testing = thread::spawn(move || {
        let _sender = sender;
        test();
    });
    // Nothing is sent: it ends with the thread.
    assert_ne!(ended.recv_timeout(PATIENCE), Err(RecvTimeoutError::Timeout));
    testing.join().unwrap();
}

fn can_be_shared_by_threads<T: Send + Sync + Clone + std::fmt::Debug + 'static>() {}

#[test]
fn threads_keep_each_other_out() {
    can_be_shared_by_threads::<blocking::Session>();
    let store = store();
    let (one, two) = (open(&store), open(&store));
    let is_inside = AtomicBool::new(false);
    let work = |session: &blocking::Session| {
        for _ in 0..50 {
            let guard = acquire(session);
            assert!(!is_inside.swap(true, Ordering::SeqCst));
            thread::yield_now();
            assert!(guard.is_valid());
            is_inside.store(false, Ordering::SeqCst);
            session.wait(guard.release()).unwrap();
        }
    };
    thread::scope(|scope| {
        // Two of one session, and one of another.
        for session in [&one, &one, &two] {
            scope.spawn(|| work(session));
        }
    });
    assert!(store.children(PATH).is_empty());
}

#[test]
fn busy_lock_is_an_error_of_the_acquire() {
    let store = store();
    let (session, other) = (open(&store), open(&store));
    let guard = acquire(&session);
    let lock = mutex(&other);
    let late = late(&other);
    assert!(late.is_busy(), "{late}");
    assert!(other.wait(lock.try_acquire()).unwrap().is_none());
    session.wait(guard.verify()).unwrap();
    assert_eq!(guard.state(), GuardState::Held);
    session.wait(guard.release()).unwrap();
    assert!(other.wait(lock.try_acquire()).unwrap().is_some());
}

#[test]
fn every_recipe_takes_the_session() {
    let store = store();
    let session = open(&store);
    let orders = LockFactory::new(&session, "/locks/orders").unwrap();
    let both = orders.multi_lock(["4711", "4712"]).unwrap();
    let guard = session.wait(both.acquire()).unwrap();
    let done = orders.mutex("4713").unwrap().acquire();
    let done = session.wait(done.run(async |_| 1)).unwrap();
    assert_eq!((guard.members().len(), done.output), (2, 1));
    let latch = async { LeaderLatch::start(&session, "/leader", "here") };
    let latch = session.wait(latch).unwrap();
    session.wait(latch.wait_until_leader()).unwrap();
    assert!(latch.is_leader());
}

#[test]
fn guard_that_a_plain_thread_drops_frees_the_lock() {
    let store = store();
    let session = open(&store);
    let guard = acquire(&session);
    assert_eq!(store.children(PATH).len(), 1);
    thread::spawn(move || drop(guard)).join().unwrap();
    assert_free(&store);
    assert_eq!(session.health(), SessionHealth::Connected);
}

#[test]
fn panic_of_a_holder_frees_the_lock() {
    let store = store();
    let session = open(&store);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _guard = acquire(&session);
        panic!("the work failed");
    }));
    panicked.unwrap_err();
    assert_free(&store);
    drop(acquire(&session));
}

#[test]
fn panic_of_a_future_reaches_its_caller_and_leaves_the_session_as_it_was() {
    let store = store();
    let session = open(&store);
    let work = mutex(&session)
        .acquire()
        .run(async |_| panic!("the work failed"));
    let panicked = catch_unwind(AssertUnwindSafe(|| session.wait(work).map(drop)));
    assert_eq!(
        panicked.unwrap_err().downcast_ref(),
        Some(&"the work failed")
    );
    assert_free(&store);
    session.wait(acquire(&session).release()).unwrap();
}

fn use_within_a_runtime(store: &MemoryEnsemble) {
    let session = open(store);
    session.wait(acquire(&session).release()).unwrap();
    // More answers than tokio lets a task have before it yields.
    for _ in 0..200 {
        let (sender, received) = oneshot::channel();
        sender.send(()).unwrap();
        session.wait(received).unwrap();
    }
    // Tokio wakes it when the task yields that waits for it.
    session.wait(tokio::task::yield_now());
    let guard = acquire(&session);
    // Nothing panics when the last of it goes.
    drop(session);
    assert!(guard.is_valid());
    drop(guard);
    assert_free(store);
}

#[test]
fn works_in_tasks_of_a_runtime_and_in_its_blocking_threads() {
    in_time(|| {
        let runtime = Builder::new_multi_thread().worker_threads(1).build();
        let runtime = runtime.unwrap();
        let task = runtime.spawn(async { use_within_a_runtime(&store()) });
        runtime.block_on(task).unwrap();
        let blocking = runtime.spawn_blocking(|| use_within_a_runtime(&store()));
        runtime.block_on(blocking).unwrap();
    });
}

#[test]
fn works_on_a_runtime_of_one_thread() {
    in_time(|| {
        let runtime = Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            use_within_a_runtime(&store());
            // The runtime has its context again.
            tokio::spawn(async {}).await.unwrap();
        });
    });
}

#[test]
fn nested_wait_takes_no_wake_up_of_the_outer_one() {
    in_time(|| {
        let session = open(&store());
        let (sender, received) = oneshot::channel();
        let nested = async {
            session.wait(async {
                // Wakes the outer wait, which has polled the receiver, and is not parked.
                sender.send(()).unwrap();
                tokio::time::sleep(SHORT).await;
                drop(acquire(&session));
            });
        };
        let (received, ()) = session.wait(join(received, nested));
        received.unwrap();
    });
}

#[test]
fn close_frees_what_is_held_and_later_calls_say_so() {
    let store = store();
    let session = open(&store);
    let guard = acquire(&session);
    session.close();
    assert!(store.children(PATH).is_empty() && store.sessions().is_empty());
    assert!(!guard.is_valid());
    let lost = session.wait(guard.release()).unwrap_err();
    assert!(lost.is_lost() && lost.is_closed(), "{lost}");
    // With timers, which need the runtime.
    let late = mutex(&session).acquire().timeout(PATIENCE);
    let late = session.wait(late).unwrap_err();
    assert!(late.is_closed(), "{late}");
    session.wait(async { tokio::time::sleep(SHORT).await });
    session.close();
}

#[test]
fn last_handle_waits_for_the_close_of_the_session() {
    let store = store();
    let session = open(&store);
    let handle = session.clone();
    drop(acquire(&session));
    drop(session);
    assert_eq!(store.sessions().len(), 1);
    drop(acquire(&handle));
    drop(handle);
    assert!(store.children(PATH).is_empty() && store.sessions().is_empty());
}

#[test]
fn guard_outlives_the_handles_and_takes_the_session_with_it() {
    let store = store();
    let session = open(&store);
    let guard = acquire(&session);
    drop(session);
    let other = open(&store);
    let late = late(&other);
    assert!(late.is_busy() && guard.is_valid(), "{late}");
    drop(guard);
    drop(acquire(&other));
    drop(other);
    await_no_sessions(&store);
}

#[test]
fn task_of_the_runtime_is_refused_and_may_drop_the_last_handle() {
    let store = store();
    let session = open(&store);
    let handle = session.clone();
    let task = async { tokio::spawn(async move { drop(acquire(&handle)) }).await };
    let refused = session.wait(task).unwrap_err();
    assert!(refused.is_panic());
    let (sender, received) = channel::channel::<blocking::Session>();
    session.wait(async { drop(tokio::spawn(async move { drop(received.recv()) })) });
    sender.send(session).unwrap();
    await_no_sessions(&store);
}

#[test]
fn address_that_cannot_be_used_is_refused() {
    let refused = blocking::connect("mongodb://localhost").unwrap_err();
    assert!(
        matches!(refused, Error::Config(ConfigError::UnknownScheme { .. })),
        "{refused}"
    );
}

fn use_of_a_server(ensemble: &TestEnsemble) {
    let open = || blocking::Session::open(async { Ok(ensemble.session().await) }).unwrap();
    let (session, other) = (open(), open());
    let guard = acquire(&session);
    let late = other.wait(mutex(&other).acquire().timeout(SHORT));
    late.unwrap_err();
    session.wait(guard.verify()).unwrap();
    let first = guard.fencing_token();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| acquire(&other));
        // On a thread without a runtime.
        scope.spawn(move || drop(guard));
        let next = waiting.join().unwrap();
        assert!(next.fencing_token() > first);
        other.wait(next.release()).unwrap();
    });
    let left = acquire(&session);
    session.close();
    assert!(!left.is_valid());
    drop(acquire(&other));
    drop(other);
    let operator = open();
    assert!(operator.wait(ensemble.children(PATH)).is_empty());
}

#[tokio::test]
async fn blocking_sessions_keep_each_other_out_on_redis() {
    let ensemble = shared::on_redis().await;
    let TestEnsemble::Redis(server) = &ensemble else {
        panic!("{ensemble:?}");
    };
    let url = server.url();
    let test = move || {
        // By its address, outside of the place. A lock there would wait for a quarantine.
        let session = blocking::connect(&url).unwrap();
        assert!(session.wait(session.read(PATH)).unwrap().is_none());
        session.close();
        use_of_a_server(&ensemble);
    };
    tokio::task::spawn_blocking(test).await.unwrap();
}
