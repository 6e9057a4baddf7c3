//! What an inspection costs, however many locks there are and whatever nodes lie among them.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures::future::join_all;
use futures::poll;
use lock_recipes::{
    InterProcessMutex, InterProcessReadWriteLock, ReadGuard, Session, ZooKeeper, inspect, scan,
};
use test_rig::{MemoryEnsemble, Operation, TestEnsemble, on_every_ensemble};
use tokio::task::yield_now;
use tokio::time::advance;

const LATENCY: Duration = Duration::from_millis(10);

/// Requests of the inspecting session, without heartbeats.
fn sent(ensemble: &MemoryEnsemble, session: i64) -> usize {
    let looks = [Operation::List, Operation::Read];
    let requests = ensemble.requests().into_iter();
    requests
        .filter(|it| it.session == session && looks.contains(&it.operation))
        .count()
}

/// The most requests that are in flight at a time: those that are sent before the clock moves on,
/// which answers all of them.
async fn at_once_max<T>(
    ensemble: &MemoryEnsemble,
    session: &Session,
    asking: impl Future<Output = T>,
) -> (T, usize) {
    let session = session.session_id().unwrap();
    let mut asking = pin!(asking);
    let mut max = 0;
    loop {
        ensemble.reset_requests();
        let mut idle = 0;
        // A task with much to do does some of it and wakes itself.
        while idle < 10 {
            let before = sent(ensemble, session);
            if let Poll::Ready(answer) = poll!(&mut asking) {
                return (answer, max);
            }
            yield_now().await;
            idle = match sent(ensemble, session) == before {
                true => idle + 1,
                false => 0,
            };
        }
        max = max.max(sent(ensemble, session));
        advance(LATENCY).await;
    }
}

async fn readers(session: &Session, path: &str, count: usize) -> Vec<ReadGuard> {
    let lock = InterProcessReadWriteLock::new(session, path).unwrap();
    let reading = join_all((0..count).map(|_| lock.read())).await;
    reading.into_iter().map(Result::unwrap).collect()
}

/// Beyond a thousand (`globalOutstandingLimit`), a server makes all its clients wait.
#[tokio::test(start_paused = true)]
async fn few_requests_are_under_way_at_a_time() {
    let ensemble = MemoryEnsemble::builder().latency(LATENCY).build();
    let (holder, session) = (ensemble.session(), ensemble.session());
    let mut held = readers(&holder, "/one", 1_500).await;
    for number in 0..50 {
        held.extend(readers(&holder, &format!("/many/{number}"), 20).await);
    }
    session.read("/").await.unwrap();
    let (seen, max) = at_once_max(&ensemble, &session, scan(&session, "/")).await;
    let seen = seen.unwrap().locks;
    let contenders: usize = seen.iter().map(|it| it.contenders.len()).sum();
    assert_eq!((seen.len(), contenders, max), (51, 2_500, 64));

    let (seen, max) = at_once_max(&ensemble, &session, inspect(&session, "/one")).await;
    assert_eq!((seen.unwrap().contenders.len(), max), (1_500, 32));

    let lock = InterProcessReadWriteLock::new(&session, "/one").unwrap();
    let (seen, max) = at_once_max(&ensemble, &session, lock.read_participants()).await;
    assert_eq!((seen.unwrap().len(), max), (1_500, 64));
    drop(held);
}

on_every_ensemble!(of_a_stranger_the_beginning_is_kept_and_of_a_contender_all);

/// Large data of other nodes in a lock directory is not kept in memory.
async fn of_a_stranger_the_beginning_is_kept_and_of_a_contender_all(ensemble: TestEnsemble) {
    let path = "/locks/orders";
    let options = ZooKeeper::builder().identity(vec![b'y'; 100_000]);
    let session = ensemble.session_with(options).await;
    let lock = InterProcessMutex::new(&session, path).unwrap();
    let held = lock.acquire().await.unwrap();
    ensemble
        .create(&format!("{path}/stranger"), &vec![b'x'; 1_000_000])
        .await;
    let seen = inspect(&session, path).await.unwrap();
    let data: Vec<_> = seen
        .contenders
        .iter()
        .map(|it| &it.participant.data)
        .collect();
    let lengths: Vec<_> = data.iter().map(|it| it.len()).collect();
    assert_eq!(lengths, [100_000, 1_000]);
    assert!(data[1].capacity() < 2_000);
    held.release().await.unwrap();
}
