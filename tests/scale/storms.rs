//! Endless work, or very much of it at once, which must not become a storm of requests.

use std::time::Duration;

use futures::future::join_all;
use lock_recipes::{
    GuardState, InterProcessMutex, InterProcessReadWriteLock, MutexGuard, Session, ZooKeeper,
};
use test_rig::{
    Direction, FaultProxy, Frame, MemoryEnsemble, Opcode, Operation, Request, ZooKeeperServer,
};
use tokio::time::{sleep, timeout};
use zookeeper_client::{Acl, AuthId, Permission};

use crate::log::{Log, logging};

const PATH: &str = "/locks/orders";
/// An awaited event that takes longer never happens.
const PATIENCE: Duration = Duration::from_secs(120);

mod nodes_that_may_not_be_read {
    use super::*;

    /// For each lock.
    const READS_A_MINUTE: usize = 10;

    fn assert_said_once(log: &Log) {
        let warnings = log.lines("WARN");
        assert_eq!(warnings.len(), 1, "{warnings:#?}");
        assert!(warnings.iter().all(|line| line.contains(PATH)));
    }

    fn is_look(request: &Request) -> bool {
        let reads = [Operation::Read, Operation::Stat, Operation::Watch];
        reads.contains(&request.operation) && request.path.starts_with(&format!("{PATH}/"))
    }

    #[tokio::test(start_paused = true)]
    async fn are_looked_at_now_and_then_and_spoken_of_once_in_memory() {
        let (log, _logging) = logging();
        let memory = MemoryEnsemble::builder()
            .session_timeout(Duration::from_secs(12))
            .build();
        let session = memory.session();
        memory.deny(PATH, Operation::Read);
        memory.deny(PATH, Operation::Watch);
        let lock = InterProcessMutex::new(&session, PATH).unwrap();
        let held = lock.acquire().await.unwrap();
        let mut minutes = Vec::new();
        for _ in 0..10 {
            memory.reset_requests();
            sleep(Duration::from_secs(60)).await;
            let requests = memory.requests();
            minutes.push(requests.iter().filter(|it| is_look(it)).count());
        }
        println!("looks in each minute: {minutes:?}");
        assert!(
            minutes.iter().all(|looks| *looks <= READS_A_MINUTE),
            "{minutes:?}"
        );
        assert_said_once(&log);
        assert_eq!(held.state(), GuardState::Held);
        // A node that disappears is noticed as soon as it may be read.
        memory.allow_all();
        memory.delete(&held.members().remove(0).node_path).unwrap();
        timeout(PATIENCE, held.lost()).await.unwrap();
    }

    /// This holds however often the lock is acquired, and by which sessions.
    #[tokio::test(start_paused = true)]
    async fn of_one_lock_are_looked_at_now_and_then_and_spoken_of_once_in_memory() {
        let (log, _logging) = logging();
        let memory = MemoryEnsemble::new();
        let session = memory.session();
        memory.deny(PATH, Operation::Read);
        memory.deny(PATH, Operation::Watch);
        let lock = InterProcessReadWriteLock::new(&session, PATH).unwrap();
        let mut looks = 0;
        for _ in 0..60 {
            let held = [lock.read().await.unwrap(), lock.read().await.unwrap()];
            // Longer than a hold that costs no watch.
            sleep(Duration::from_millis(700)).await;
            drop(held);
            sleep(Duration::from_millis(300)).await;
            let requests = memory.requests();
            looks += requests.iter().filter(|it| is_look(it)).count();
            memory.reset_requests();
        }
        println!("{looks} looks in a minute");
        assert!(looks <= READS_A_MINUTE, "{looks}");
        assert_said_once(&log);
    }

    /// On one thread, which logs to the test.
    #[tokio::test]
    async fn are_looked_at_now_and_then_and_spoken_of_once_on_a_real_server() {
        // A part of a minute.
        const WATCHED_FOR: Duration = Duration::from_secs(15);
        let (log, _logging) = logging();
        let server = ZooKeeperServer::start().await.unwrap();
        let proxy = FaultProxy::start(&server.connect_string()).await.unwrap();
        let unreadable =
            Permission::CREATE | Permission::DELETE | Permission::WRITE | Permission::ADMIN;
        let options = ZooKeeper::builder()
            .session_timeout(Duration::from_secs(40))
            .acl_by_path(move |path| {
                let is_node = path.starts_with(&format!("{PATH}/"));
                is_node.then(|| vec![Acl::new(unreadable, AuthId::anyone())])
            });
        let session = options.connect(&proxy.connect_string()).await.unwrap();
        let lock = InterProcessMutex::new(&session, PATH).unwrap();
        let held = lock.acquire().await.unwrap();
        sleep(WATCHED_FOR).await;
        let looks = [Opcode::GetData, Opcode::Exists].map(|opcode| {
            let requests = proxy.on(Direction::ToServer).opcode(opcode);
            requests.path_contains(&format!("{PATH}/")).count()
        });
        println!("looks in {WATCHED_FOR:?}: {looks:?}");
        assert!(looks.iter().sum::<usize>() <= READS_A_MINUTE, "{looks:?}");
        assert_said_once(&log);
        held.release().await.unwrap();
    }
}

mod guards_of_a_session_that_has_expired {
    use super::*;

    const LOCKS: usize = 2_000;
    const REQUESTS_MAX: usize = 100;

    fn mutex(session: &Session, number: usize) -> InterProcessMutex {
        let path = format!("/locks/seat-{number}");
        InterProcessMutex::new(session, &path).unwrap()
    }

    async fn hold(session: &Session) -> Vec<MutexGuard> {
        let locks: Vec<_> = (0..LOCKS).map(|it| mutex(session, it)).collect();
        let held = join_all(locks.iter().map(InterProcessMutex::acquire)).await;
        held.into_iter().map(Result::unwrap).collect()
    }

    /// Returns after the work for the guards is done: requests of a session keep their order.
    async fn lose(session: &Session, held: Vec<MutexGuard>) {
        let lost = join_all(held.iter().map(|guard| guard.lost()));
        timeout(PATIENCE, lost).await.unwrap();
        drop(held);
        let again = mutex(session, LOCKS).acquire().await.unwrap();
        again.release().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn are_dropped_without_a_request_for_each_in_memory() {
        let memory = MemoryEnsemble::new();
        let session = memory.session();
        let held = hold(&session).await;
        memory.reset_requests();
        assert!(memory.expire(session.session_id().unwrap()));
        lose(&session, held).await;
        sleep(Duration::from_secs(600)).await;
        let requests = memory.requests().len();
        println!("{requests} requests");
        assert!(requests <= REQUESTS_MAX, "{requests}");
        assert_eq!(session.epoch(), 2);
    }

    fn is_request(frame: &Frame) -> bool {
        let is_kept_alive = matches!(frame.opcode, Opcode::Ping | Opcode::Connect);
        frame.direction == Direction::ToServer && !is_kept_alive
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn are_dropped_without_a_request_for_each_on_a_real_server() {
        let server = ZooKeeperServer::start().await.unwrap();
        let proxy = FaultProxy::start(&server.connect_string()).await.unwrap();
        let options = ZooKeeper::builder().session_timeout(Duration::from_secs(40));
        let session = options.connect(&proxy.connect_string()).await.unwrap();
        let held = hold(&session).await;
        server.expire(session.session_id().unwrap()).await.unwrap();
        lose(&session, held).await;
        // All further requests of the clean-up come soon, with pauses of less than a second.
        sleep(Duration::from_secs(3)).await;
        // Earlier connections are those of the lost session. There are two where it reconnected
        // before it expired, and then it asked for each of its nodes.
        let last = proxy.connections();
        let is_of_the_next = |it: &&Frame| it.connection == last && is_request(it);
        let requests = proxy.log().iter().filter(is_of_the_next).count();
        println!("{requests} requests");
        assert!(requests <= REQUESTS_MAX, "{requests}");
        assert_eq!(session.epoch(), 2);
    }
}
