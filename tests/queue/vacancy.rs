//! A lock that only one session has used for a while. The numbers of its nodes prove that no other
//! node was made in between, so no listing is needed. The actions of other clients must still be
//! noticed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use lock_recipes::{
    DistributedLock, InterProcessMutex, InterProcessReadWriteLock, Member, MultiLock, MutexGuard,
    Session, SessionHealth, ZooKeeper,
};
use test_rig::{
    Cut, Direction, Fault, FaultProxy, MemoryEnsemble, Opcode, Operation, TestEnsemble,
    ZooKeeperServer, on_ensembles_of_their_own, on_every_ensemble,
};
use tokio::task::JoinHandle;

const PATH: &str = "/locks/orders";
const OTHER: &str = "/locks/stock";
/// Long enough that a busy machine loses no session.
const SESSION_TIMEOUT: Duration = Duration::from_secs(40);
/// After this many cycles there are no more lists.
const CYCLES: usize = 12;

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

/// A session that is connected through a proxy.
async fn proxied() -> (TestEnsemble, FaultProxy, Session) {
    let server = ZooKeeperServer::start().await.unwrap();
    let proxy = FaultProxy::start(&server.connect_string()).await.unwrap();
    let options = ZooKeeper::builder().session_timeout(SESSION_TIMEOUT);
    let session = options.connect(&proxy.connect_string()).await.unwrap();
    (TestEnsemble::Real(server.into()), proxy, session)
}

async fn cycle(lock: &dyn DistributedLock) {
    lock.acquire().await.unwrap().release().await.unwrap();
}

async fn cycles(lock: &dyn DistributedLock) {
    for _ in 0..CYCLES {
        cycle(lock).await;
    }
}

/// A contender that must not be granted before another one has left.
struct Contender {
    session: Session,
    may_be_granted: Arc<AtomicBool>,
    granted: JoinHandle<()>,
}

impl Contender {
    fn start(session: &Session, lock: impl DistributedLock) -> Self {
        let may_be_granted = Arc::new(AtomicBool::new(false));
        let may = Arc::clone(&may_be_granted);
        let granted = tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            assert!(may.load(Ordering::SeqCst), "granted beside the holder");
            guard.release().await.unwrap();
        });
        Self {
            session: session.clone(),
            may_be_granted,
            granted,
        }
    }

    /// Once both are in the queue and the contender has had its answers, the other one leaves.
    async fn outwaits(self, ensemble: &TestEnsemble, leave: impl Future) {
        ensemble.await_children(PATH, 2).await;
        // Answered after all earlier requests of the contender.
        for _ in 0..4 {
            self.session.read(PATH).await.unwrap();
            ensemble.let_something_happen().await;
        }
        assert!(!self.granted.is_finished(), "granted beside the holder");
        self.may_be_granted.store(true, Ordering::SeqCst);
        leave.await;
        self.granted.await.unwrap();
    }
}

on_every_ensemble!(
    contender_that_came_in_between_is_waited_for,
    member_of_a_set_that_somebody_else_holds_is_waited_for,
    writer_waits_for_a_reader_beside_whom_we_have_read,
    session_closes_at_once_beside_a_lock_that_knows_its_directory,
);
on_every_ensemble!(
    but_etcd:
    directory_made_anew_is_not_the_one_that_was_vacant,
    stranger_that_comes_to_be_ahead_is_waited_for,
    what_an_ended_session_knew_is_forgotten,
);
// On Redis a create and a listing are one request, so no directory is watched.
on_ensembles_of_their_own!(zookeeper: watch_on_the_directory_goes_with_the_last_handle);

async fn contender_that_came_in_between_is_waited_for(ensemble: TestEnsemble) {
    let (ours, theirs) = (ensemble.session().await, ensemble.session().await);
    let (lock, other) = (mutex(&ours), mutex(&theirs));
    for _ in 0..3 {
        cycles(&lock).await;
        let held = other.acquire().await.unwrap();
        Contender::start(&ours, lock.clone())
            .outwaits(&ensemble, release(held))
            .await;
    }
}

async fn directory_made_anew_is_not_the_one_that_was_vacant(ensemble: TestEnsemble) {
    let (ours, theirs) = (ensemble.session().await, ensemble.session().await);
    let (lock, other) = (mutex(&ours), mutex(&theirs));
    ensemble.create(PATH, b"").await;
    cycles(&lock).await;
    make_anew(&ensemble).await;
    let held = same_number_again(&other).await;
    Contender::start(&ours, lock)
        .outwaits(&ensemble, release(held))
        .await;
}

async fn member_of_a_set_that_somebody_else_holds_is_waited_for(ensemble: TestEnsemble) {
    let (ours, theirs) = (ensemble.session().await, ensemble.session().await);
    let set = MultiLock::new(&ours, [Member::mutex(OTHER), Member::mutex(PATH)]).unwrap();
    cycles(&set).await;
    let held = mutex(&theirs).acquire().await.unwrap();
    Contender::start(&ours, set.clone())
        .outwaits(&ensemble, release(held))
        .await;
    cycles(&set).await;
    ensemble.await_children(OTHER, 0).await;
}

async fn writer_waits_for_a_reader_beside_whom_we_have_read(ensemble: TestEnsemble) {
    let (session, theirs) = (ensemble.session().await, ensemble.session().await);
    let ours = InterProcessReadWriteLock::new(&session, PATH).unwrap();
    let theirs = InterProcessReadWriteLock::new(&theirs, PATH)
        .unwrap()
        .read_lock();
    let held = theirs.acquire().await.unwrap();
    cycles(&ours.read_lock()).await;
    let leave = async { held.release().await.unwrap() };
    Contender::start(&session, ours.write_lock())
        .outwaits(&ensemble, leave)
        .await;
}

async fn stranger_that_comes_to_be_ahead_is_waited_for(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    // After the numbers of all our cycles, and ahead of the next.
    let stranger = format!("{PATH}/lock-{CYCLES:010}a");
    ensemble.create(&stranger, b"").await;
    let lock = mutex(&session);
    cycles(&lock).await;
    Contender::start(&session, lock)
        .outwaits(&ensemble, ensemble.delete(&stranger))
        .await;
}

async fn watch_on_the_directory_goes_with_the_last_handle(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = mutex(&session);
    // A slow cycle watches its node, and ends the run of cycles that justifies a watch on the
    // directory.
    ensemble
        .until("one watch", async || {
            cycles(&lock).await;
            (ensemble.watch_count().await == 1).then_some(())
        })
        .await;
    drop(lock);
    ensemble.await_watches(0).await;
}

async fn session_closes_at_once_beside_a_lock_that_knows_its_directory(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let lock = mutex(&session);
    cycles(&lock).await;
    tokio::time::timeout(SESSION_TIMEOUT / 4, session.close())
        .await
        .unwrap();
    let again = ensemble.session().await;
    cycles(&mutex(&again)).await;
}

async fn what_an_ended_session_knew_is_forgotten(ensemble: TestEnsemble) {
    let (ours, theirs) = (ensemble.session().await, ensemble.session().await);
    let (lock, other) = (mutex(&ours), mutex(&theirs));
    ensemble.create(PATH, b"").await;
    cycles(&lock).await;
    ensemble.expire(&ours).await;
    // While we have no session that could be notified.
    make_anew(&ensemble).await;
    let held = same_number_again(&other).await;
    Contender::start(&ours, lock)
        .outwaits(&ensemble, release(held))
        .await;
}

async fn release(held: MutexGuard) {
    held.release().await.unwrap();
}

/// Re-creates the directory, but not as a container, which might be reaped at any moment.
async fn make_anew(ensemble: &TestEnsemble) {
    ensemble.delete(PATH).await;
    ensemble.create(PATH, b"").await;
}

/// Holds the lock of a re-created directory by the number before the one that the old directory
/// would have given next. The next contender gets that one.
async fn same_number_again(lock: &InterProcessMutex) -> MutexGuard {
    for _ in 1..CYCLES {
        cycle(lock).await;
    }
    let held = lock.acquire().await.unwrap();
    let last = format!("-{:010}", CYCLES - 1);
    assert!(
        held.members()
            .iter()
            .all(|it| it.node_path.ends_with(&last))
    );
    held
}

/// As [`directory_made_anew_is_not_the_one_that_was_vacant`], but no watch can report it.
#[tokio::test(start_paused = true)]
async fn directory_made_anew_while_cut_off_is_not_the_one_that_was_vacant_in_memory() {
    let memory = MemoryEnsemble::new();
    let (ours, theirs) = (memory.session(), memory.session());
    let ensemble = TestEnsemble::Memory(memory.clone());
    let (lock, other) = (mutex(&ours), mutex(&theirs));
    ensemble.create(PATH, b"").await;
    cycles(&lock).await;
    let id = ours.session_id().unwrap();
    memory.disconnect(id);
    make_anew(&ensemble).await;
    let held = same_number_again(&other).await;
    let contender = Contender::start(&ours, lock);
    memory.reconnect(id);
    contender.outwaits(&ensemble, release(held)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directory_made_anew_while_cut_off_is_not_the_one_that_was_vacant_on_a_real_server() {
    let (ensemble, proxy, ours) = proxied().await;
    let theirs = ensemble.session().await;
    let (lock, other) = (mutex(&ours), mutex(&theirs));
    ensemble.create(PATH, b"").await;
    cycles(&lock).await;
    proxy.refuse_connections().await;
    proxy.cut_all(Cut::Fin);
    let is_off = async || (ours.health() == SessionHealth::Disconnected).then_some(());
    ensemble.until("a session that is cut off", is_off).await;
    make_anew(&ensemble).await;
    let held = same_number_again(&other).await;
    let contender = Contender::start(&ours, lock);
    proxy.accept_connections().await.unwrap();
    contender.outwaits(&ensemble, release(held)).await;
    assert_eq!(ours.epoch(), 1, "the session lives");
}

async fn lists(ensemble: &MemoryEnsemble, lock: &dyn DistributedLock) -> usize {
    ensemble.reset_requests();
    cycles(lock).await;
    ensemble.request_count(Operation::List)
}

#[tokio::test(start_paused = true)]
async fn lock_of_one_session_is_listed_for_a_while_and_then_no_more() {
    let ensemble = MemoryEnsemble::new();
    let session = ensemble.session();
    let lock = mutex(&session);
    assert!(lists(&ensemble, &lock).await < CYCLES);
    assert_eq!(lists(&ensemble, &lock).await, 0);
    // Another handle of the lock knows it as well.
    assert_eq!(lists(&ensemble, &mutex(&session)).await, 0);
    assert_eq!(ensemble.request_count(Operation::Watch), 0);
}

#[tokio::test(start_paused = true)]
async fn sessions_that_alternate_list_each_time_and_need_no_second_round_trip() {
    let ensemble = MemoryEnsemble::new();
    let (lock, other) = (mutex(&ensemble.session()), mutex(&ensemble.session()));
    // This creates the directory.
    cycle(&other).await;
    ensemble.reset_requests();
    for _ in 0..CYCLES {
        cycle(&lock).await;
        cycle(&other).await;
    }
    // Each in the flush of its create, because no session seemed to be alone.
    assert_eq!(ensemble.request_count(Operation::List), 2 * CYCLES);
    assert_eq!(ensemble.request_count(Operation::Watch), 0);
}

#[tokio::test(start_paused = true)]
async fn contender_that_came_in_between_and_left_costs_a_listing() {
    let ensemble = MemoryEnsemble::new();
    let (lock, other) = (mutex(&ensemble.session()), mutex(&ensemble.session()));
    cycles(&lock).await;
    cycle(&other).await;
    ensemble.reset_requests();
    cycle(&lock).await;
    assert_eq!(ensemble.request_count(Operation::List), 1);
    ensemble.reset_requests();
    cycle(&lock).await;
    assert_eq!(ensemble.request_count(Operation::List), 1, "in the flush");
}

#[tokio::test(start_paused = true)]
async fn node_whose_deletion_is_not_known_of_is_looked_for() {
    let ensemble = MemoryEnsemble::new();
    let session = ensemble.session();
    let lock = mutex(&session);
    cycles(&lock).await;
    drop(lock.acquire().await.unwrap());
    ensemble.reset_requests();
    cycle(&lock).await;
    assert_eq!(ensemble.request_count(Operation::List), 1);
}

/// The node is gone either way, but here its directory was deleted as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_of_a_node_that_went_with_its_directory_tells_nothing_about_the_next_on_a_real_server()
 {
    let (ensemble, proxy, ours) = proxied().await;
    let theirs = ensemble.session().await;
    ensemble.create(PATH, b"").await;
    // From one cycle before the directory is watched to some after it.
    for before in 7..CYCLES {
        // A slow holder watches its node, learns that it is gone, and then deletes nothing.
        ensemble
            .until("a release that deletes", async || {
                release_after_its_directory(&ensemble, &proxy, [&ours, &theirs], before).await
            })
            .await;
    }
}

/// Returns `None` if the holder knew that its node was gone, so that its release sent no request.
async fn release_after_its_directory(
    ensemble: &TestEnsemble,
    proxy: &FaultProxy,
    [ours, theirs]: [&Session; 2],
    before: usize,
) -> Option<()> {
    let (lock, other) = (mutex(ours), mutex(theirs));
    for _ in 1..before {
        cycle(&lock).await;
    }
    let held = lock.acquire().await.unwrap();
    let node = held.members().remove(0).node_path;
    ensemble.delete(&node).await;
    make_anew(ensemble).await;
    for _ in 1..before {
        cycle(&other).await;
    }
    let same = other.acquire().await.unwrap();
    let deleted = proxy.on(Direction::FromServer).opcode(Opcode::Delete);
    let cut = deleted.then(Fault::CutBefore(Cut::Fin));
    held.release().await.ok();
    let deletes = cut.count() == 1;
    // It would cut the contender's release otherwise.
    proxy.clear_rules();
    let contender = Contender::start(ours, lock);
    contender.outwaits(ensemble, release(same)).await;
    make_anew(ensemble).await;
    deletes.then_some(())
}

/// A client that has more to watch again than a request holds (128 KiB) can never reconnect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_with_many_locks_for_itself_survives_a_reconnect_on_a_real_server() {
    let (_ensemble, proxy, session) = proxied().await;
    let long = "x".repeat(900);
    let paths = (0..160).map(|number| format!("/{long}/{number}"));
    let locks = paths.map(|path| InterProcessMutex::new(&session, &path).unwrap());
    let locks: Vec<_> = locks.collect();
    for _ in 0..CYCLES {
        join_all(locks.iter().map(|lock| cycle(lock))).await;
    }
    let connections = proxy.connections();
    proxy.cut_all(Cut::Fin);
    join_all(locks.iter().map(|lock| cycle(lock))).await;
    assert_eq!(session.epoch(), 1);
    // The session's, and that over which it asks what the server grants now.
    let connections = proxy.connections() - connections;
    assert!((1..=2).contains(&connections), "{connections}");
}
