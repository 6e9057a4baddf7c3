//! What the error says of an acquire that ran out of time: a busy lock, or an outage.

use std::error::Error as _;
use std::time::Duration;

use lock_recipes::{
    Acquire, AcquireError, Error, InterProcessMutex, InterProcessReadWriteLock, LockOptions,
    Member, MultiLock, Owner, Session, SessionHealth, TimeoutReason,
};
use recipes_core::internal::human;
use test_rig::{MemoryEnsemble, TestEnsemble, on_ensembles_of_their_own, on_every_ensemble};
use tokio::time::sleep;

const PATH: &str = "/locks/orders";
const HALF_A_SECOND: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(120);

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

/// How long an acquire of a busy lock waited, and its error. On a busy machine the store may not have
/// answered by then, and it has more time.
async fn late<G: Send + 'static>(acquire: impl Fn() -> Acquire<G>) -> (Duration, Error) {
    let mut waited = HALF_A_SECOND;
    loop {
        let Err(error) = acquire().timeout(waited).await else {
            panic!("the lock is held");
        };
        if error.is_busy() || waited > PATIENCE {
            return (waited, error);
        }
        waited *= 4;
    }
}

/// The text of the error of a busy lock, whose nearest contender has this node.
fn busy(waited: Duration, node: &str) -> String {
    let waited = match waited.is_zero() {
        true => "at once".to_owned(),
        false => format!("within {}", human(waited)),
    };
    format!(
        "lock \"/locks/orders\" not acquired {waited}: held by another contender ({node} is ahead)"
    )
}

fn assert_busy(error: &Error, text: &str) {
    assert_eq!(error.to_string(), text);
    assert!(error.source().is_none(), "{error:?}");
    assert!(
        error.is_busy() && !error.is_transient() && !error.is_lost(),
        "{error:?}"
    );
}

on_every_ensemble!(
    timeout_names_the_node_ahead,
    timeout_of_a_set_names_the_member_that_is_busy,
    acquire_without_time_names_the_node_ahead,
    acquire_of_an_owner_that_acquires_already_says_so,
    timeout_says_that_another_owner_of_this_session_holds_the_lock,
    timeout_of_a_task_that_waits_for_itself_says_so,
    reader_behind_a_stranger_is_not_told_of_a_reader_of_its_session,
    timeout_in_the_queue_of_the_process_names_the_node_that_is_held,
);
on_ensembles_of_their_own!(timeout_of_a_waiter_in_an_outage_is_no_contention);

async fn timeout_names_the_node_ahead(ensemble: TestEnsemble) {
    let (holding, waiting) = (ensemble.session().await, ensemble.session().await);
    let held = mutex(&holding).acquire().await.unwrap();
    let [node] = &*ensemble.await_children(PATH, 1).await else {
        panic!("one node");
    };
    let (waited, late) = late(|| mutex(&waiting).acquire()).await;
    assert_busy(&late, &busy(waited, node));
    held.release().await.unwrap();
}

async fn timeout_of_a_set_names_the_member_that_is_busy(ensemble: TestEnsemble) {
    let (holding, waiting) = (ensemble.session().await, ensemble.session().await);
    let held = mutex(&holding).acquire().await.unwrap();
    let [node] = &*ensemble.await_children(PATH, 1).await else {
        panic!("one node");
    };
    let set = ["/locks/invoices", PATH, "/locks/stock"].map(Member::mutex);
    let set = MultiLock::new(&waiting, set).unwrap();
    let (waited, late) = late(|| set.acquire()).await;
    let text = format!(
        "lock \"/locks/invoices, /locks/orders, /locks/stock\" not acquired within {}: \
         \"/locks/orders\" is held by another contender ({node} is ahead)",
        human(waited)
    );
    assert_busy(&late, &text);
    held.release().await.unwrap();
}

async fn acquire_without_time_names_the_node_ahead(ensemble: TestEnsemble) {
    let (holding, waiting) = (ensemble.session().await, ensemble.session().await);
    let held = mutex(&holding).acquire().await.unwrap();
    let [node] = &*ensemble.await_children(PATH, 1).await else {
        panic!("one node");
    };
    let late = mutex(&waiting).acquire().timeout(Duration::ZERO);
    let late = late.await.unwrap_err();
    assert_busy(&late, &busy(Duration::ZERO, node));
    held.release().await.unwrap();
}

async fn acquire_of_an_owner_that_acquires_already_says_so(ensemble: TestEnsemble) {
    let (holding, waiting) = (ensemble.session().await, ensemble.session().await);
    let held = mutex(&holding).acquire().await.unwrap();
    let (owner, lock) = (Owner::new(), mutex(&waiting));
    let first = tokio::spawn(lock.acquire().owner(&owner));
    ensemble.await_children(PATH, 2).await;
    let (waited, second) = late(|| lock.acquire().owner(&owner)).await;
    let text = format!(
        "lock \"/locks/orders\" not acquired within {}: already being acquired by the same owner",
        human(waited)
    );
    assert_busy(&second, &text);
    held.release().await.unwrap();
    first.await.unwrap().unwrap().release().await.unwrap();
}

async fn timeout_in_the_queue_of_the_process_names_the_node_that_is_held(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let options = LockOptions::new().local_handoffs(8);
    let lock = InterProcessMutex::with_options(&session, PATH, &options).unwrap();
    let held = lock.acquire().await.unwrap();
    let [node] = &*ensemble.await_children(PATH, 1).await else {
        panic!("one node");
    };
    let late = tokio::spawn(late(move || lock.acquire()));
    let (waited, late) = late.await.unwrap();
    assert_busy(&late, &held_here(waited, node));
    held.release().await.unwrap();
}

/// The text of the error of a lock that another owner of the same session holds by this node.
fn held_here(waited: Duration, node: &str) -> String {
    format!(
        "lock \"/locks/orders\" not acquired within {}: held by another owner in this session \
         ({node})",
        human(waited)
    )
}

/// Even if a contender of another session waits ahead.
async fn timeout_says_that_another_owner_of_this_session_holds_the_lock(ensemble: TestEnsemble) {
    let (session, other) = (ensemble.session().await, ensemble.session().await);
    let held = tokio::spawn(mutex(&session).acquire()).await.unwrap();
    let held = held.unwrap();
    let node = ensemble.await_children(PATH, 1).await.remove(0);
    let (waited, error) = late(|| mutex(&session).acquire()).await;
    assert_busy(&error, &held_here(waited, &node));

    let waiter = tokio::spawn(mutex(&other).acquire());
    ensemble.await_children(PATH, 2).await;
    let (waited, error) = late(|| mutex(&session).acquire()).await;
    assert_busy(&error, &held_here(waited, &node));
    held.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

/// It would wait for ever, so the error says how to re-enter.
async fn timeout_of_a_task_that_waits_for_itself_says_so(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    let node = ensemble.await_children(PATH, 1).await.remove(0);
    let cause = format!(
        "held by the task that waits for it ({node}); to re-enter, acquire both times inside one \
         Owner::scope, or name one owner"
    );
    let (waited, error) = late(|| mutex(&session).acquire()).await;
    let waited = human(waited);
    let text = format!("lock \"/locks/orders\" not acquired within {waited}: {cause}");
    assert_busy(&error, &text);

    let set = ["/locks/invoices", PATH].map(Member::mutex);
    let set = MultiLock::new(&session, set).unwrap();
    let (waited, error) = late(|| set.acquire()).await;
    let waited = human(waited);
    let text = format!(
        "lock \"/locks/invoices, /locks/orders\" not acquired within {waited}: \"/locks/orders\" is \
         {cause}"
    );
    assert_busy(&error, &text);
    held.release().await.unwrap();
}

async fn reader_behind_a_stranger_is_not_told_of_a_reader_of_its_session(ensemble: TestEnsemble) {
    let (session, other) = (ensemble.session().await, ensemble.session().await);
    let [here, there] = [&session, &other].map(|it| InterProcessReadWriteLock::new(it, PATH));
    let (here, there) = (here.unwrap(), there.unwrap());
    let reading = here.read().await.unwrap();
    let writer = tokio::spawn(there.write());
    let nodes = ensemble.await_children(PATH, 2).await;
    let writes = nodes.iter().find(|node| node.contains("__WRIT__"));
    let (waited, late) = late(|| here.read()).await;
    assert_busy(&late, &busy(waited, writes.unwrap()));
    reading.release().await.unwrap();
    writer.await.unwrap().unwrap().release().await.unwrap();
}

/// One waits when the server stops, and one comes later.
async fn timeout_of_a_waiter_in_an_outage_is_no_contention(ensemble: TestEnsemble) {
    let (holding, waiting) = (ensemble.session().await, ensemble.session().await);
    let held = mutex(&holding).acquire().await.unwrap();
    let lock = mutex(&waiting);
    let waiter = tokio::spawn(lock.acquire().timeout(Duration::from_secs(20)));
    ensemble.await_children(PATH, 2).await;
    ensemble.stop().await;
    let newcomer = lock.acquire().timeout(HALF_A_SECOND).await.unwrap_err();
    for (waited, error) in [
        ("500 ms", newcomer),
        ("20 s", waiter.await.unwrap().unwrap_err()),
    ] {
        let Error::Acquire(AcquireError::TimedOut { reason, .. }) = &error else {
            panic!("{error}");
        };
        let text = match reason {
            TimeoutReason::StoreSilent { silence } => {
                assert!(*silence > Duration::ZERO);
                format!("the store has not answered for {}", human(*silence))
            }
            // On a busy machine the session may have expired by now.
            TimeoutReason::Reconnecting => "the session is being re-established".to_owned(),
            reason => panic!("{reason}"),
        };
        let text = format!("lock \"/locks/orders\" not acquired within {waited}: {text}");
        assert_eq!(error.to_string(), text);
        assert!(error.is_transient() && !error.is_busy(), "{error:?}");
    }
    ensemble.start_again().await;
    drop(held);
    waiting.close().await;
}

/// A store that answers, and grants nothing because it may have forgotten holders, is not silent.
#[tokio::test(start_paused = true)]
async fn quarantine_is_told_as_such_in_memory() {
    let timeout = Duration::from_secs(12);
    let memory = MemoryEnsemble::builder().on_redis(timeout).build();
    let session = memory.session();
    let lock = mutex(&session);
    lock.acquire().await.unwrap().release().await.unwrap();
    memory.forget(memory.checkpoint());
    memory.restart();
    let mut health = session.watch_health();
    while session.health() != SessionHealth::Connected {
        health.changed().await;
    }
    let error = lock.acquire().timeout(HALF_A_SECOND).await.unwrap_err();
    let Error::Acquire(AcquireError::TimedOut { reason, .. }) = &error else {
        panic!("{error}");
    };
    let TimeoutReason::Quarantined { left } = reason else {
        panic!("{reason}");
    };
    assert!(*left > Duration::ZERO && *left < timeout, "{left:?}");
    assert!(
        error.to_string().contains("may have forgotten holders"),
        "{error}"
    );
    assert!(error.is_transient() && !error.is_busy(), "{error:?}");
    lock.acquire().await.unwrap().release().await.unwrap();
}

/// The timeout may pass while the store is asked for the member after the one that was busy.
#[tokio::test(start_paused = true)]
async fn set_that_waited_for_a_contender_is_busy_whenever_its_time_is_up() {
    const MILLI: Duration = Duration::from_millis(1);
    let mut refused = 0;
    for timeout in 50..=150 {
        let memory = MemoryEnsemble::builder().latency(5 * MILLI).build();
        let (holding, waiting) = (memory.session(), memory.session());
        let first = mutex(&holding).acquire().await.unwrap();
        let set = [PATH, "/locks/stock"].map(Member::mutex);
        let set = MultiLock::new(&waiting, set).unwrap();
        let releases = async {
            sleep(100 * MILLI).await;
            first.release().await.unwrap();
        };
        let acquire = set.acquire().timeout(timeout * MILLI);
        let (late, ()) = tokio::join!(acquire, releases);
        if let Err(late) = late {
            assert!(late.is_busy(), "{timeout} ms: {late}");
            refused += 1;
        }
    }
    assert!((50..=100).contains(&refused), "{refused}");
}
