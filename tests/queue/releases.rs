//! Locks of one session that are released at the same time. Their nodes are deleted in few
//! transactions, and each holder learns the result for its own node.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{self, BoxFuture, join_all};
use lock_recipes::{
    Error, InterProcessMutex, LostReason, Member, MultiLock, MutexGuard, ReleaseError,
    ReleaseOutcome, Session,
};
use test_rig::{Lost, MemoryEnsemble, Operation, TestEnsemble, on_every_ensemble};
use tokio::time::{Instant, sleep, timeout};

/// More than fit in one transaction.
const LOCKS: usize = 100;
/// A guard after the first, whose delete is sent alone.
const ODD_ONE: usize = 40;
/// An awaited event that takes longer never happens.
const PATIENCE: Duration = Duration::from_secs(120);

fn directory(number: usize) -> String {
    format!("/locks/seat-{number}")
}

fn mutex(session: &Session, number: usize) -> InterProcessMutex {
    InterProcessMutex::new(session, &directory(number)).unwrap()
}

type Released = Result<ReleaseOutcome, Error>;

async fn held(session: &Session) -> Vec<MutexGuard> {
    let locks: Vec<_> = (0..LOCKS).map(|it| mutex(session, it)).collect();
    let acquired = join_all(locks.iter().map(InterProcessMutex::acquire)).await;
    acquired.into_iter().map(Result::unwrap).collect()
}

async fn release(held: Vec<MutexGuard>) -> Vec<Released> {
    let released = join_all(held.into_iter().map(MutexGuard::release));
    timeout(PATIENCE, released).await.unwrap()
}

async fn await_free(ensemble: &TestEnsemble) {
    for number in 0..LOCKS {
        ensemble.await_children(&directory(number), 0).await;
    }
}

/// Releases that have been polled once.
fn sent(held: Vec<MutexGuard>) -> Vec<BoxFuture<'static, Released>> {
    let mut released: Vec<_> = held.into_iter().map(|it| it.release().boxed()).collect();
    for released in &mut released {
        // If this thread was halted meanwhile, the release may already be done.
        if let Some(over) = released.now_or_never() {
            *released = future::ready(over).boxed();
        }
    }
    released
}

fn node_of(guard: &MutexGuard) -> String {
    guard.members().remove(0).node_path
}

on_every_ensemble!(
    all_are_freed,
    guards_that_are_dropped_free_theirs,
    what_is_dropped_is_gone_for_whatever_the_session_asks_next,
    releases_that_are_dropped_go_on,
    node_that_somebody_removed_is_told_to_its_holder_alone,
    release_that_nobody_polls_delays_no_other,
    releases_are_finished_before_a_session_is_closed,
    releases_of_a_session_that_expires_say_so,
);

async fn all_are_freed(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    for _ in 0..3 {
        let held = held(&session).await;
        for released in release(held).await {
            assert_eq!(released.unwrap(), ReleaseOutcome::Released);
        }
        await_free(&ensemble).await;
    }
}

async fn guards_that_are_dropped_free_theirs(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    drop(held(&session).await);
    await_free(&ensemble).await;
}

async fn what_is_dropped_is_gone_for_whatever_the_session_asks_next(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let (first, second) = (mutex(&session, 0), mutex(&session, 1));
    let set = MultiLock::new(&session, [0, 1].map(|it| Member::mutex(directory(it)))).unwrap();
    for _ in 0..20 {
        let held = (
            first.acquire().await.unwrap(),
            second.acquire().await.unwrap(),
        );
        drop(held);
        drop(second.try_acquire().await.unwrap().unwrap());
        drop(set.try_acquire().await.unwrap().unwrap());
        drop(set.try_acquire().await.unwrap().unwrap());
        drop(first.try_acquire().await.unwrap().unwrap());
    }
}

async fn releases_that_are_dropped_go_on(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    drop(sent(held(&session).await));
    await_free(&ensemble).await;
}

async fn node_that_somebody_removed_is_told_to_its_holder_alone(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let held = held(&session).await;
    ensemble.delete(&node_of(held.get(ODD_ONE).unwrap())).await;
    for (number, released) in release(held).await.into_iter().enumerate() {
        match released {
            Ok(outcome) => {
                assert_eq!(outcome, ReleaseOutcome::Released);
                assert_ne!(number, ODD_ONE);
            }
            Err(Error::Release(ReleaseError::Lost(lost))) => {
                assert_eq!(number, ODD_ONE);
                assert_eq!(lost.reason, LostReason::NodeRemoved);
            }
            Err(error) => panic!("{error}"),
        }
    }
    await_free(&ensemble).await;
}

async fn release_that_nobody_polls_delays_no_other(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let mut held = held(&session).await;
    // The one that is sent alone, and one after it.
    let unpolled = sent(held.drain(..2).collect());
    for released in release(held).await {
        assert_eq!(released.unwrap(), ReleaseOutcome::Released);
    }
    await_free(&ensemble).await;
    for released in join_all(unpolled).await {
        assert_eq!(released.unwrap(), ReleaseOutcome::Released);
    }
}

async fn releases_are_finished_before_a_session_is_closed(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let released = sent(held(&session).await);
    session.close().await;
    for released in timeout(PATIENCE, join_all(released)).await.unwrap() {
        assert_eq!(released.unwrap(), ReleaseOutcome::Released);
    }
    await_free(&ensemble).await;
}

async fn releases_of_a_session_that_expires_say_so(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let held = held(&session).await;
    ensemble.expire(&session).await;
    for released in release(held).await {
        let Err(Error::Release(ReleaseError::Lost(lost))) = released else {
            panic!("{released:?}");
        };
        // Expired explicitly, so news of the nodes' deletion may arrive before the end of the session.
        let is_expired = matches!(
            lost.reason,
            LostReason::SessionExpired | LostReason::NodeRemoved
        );
        assert!(is_expired, "{lost}");
    }
    await_free(&ensemble).await;
}

mod in_memory {
    use super::*;

    fn changes(ensemble: &MemoryEnsemble) -> usize {
        ensemble.request_count(Operation::Delete) + ensemble.request_count(Operation::Multi)
    }

    #[tokio::test(start_paused = true)]
    async fn hundred_go_in_five_transactions() {
        let ensemble = MemoryEnsemble::new();
        let session = ensemble.session();
        // Released one by one, each is sent at once.
        for guard in held(&session).await {
            ensemble.reset_requests();
            guard.release().await.unwrap();
            assert_eq!(ensemble.request_count(Operation::Delete), 1);
            assert_eq!(changes(&ensemble), 1);
        }
        let held = held(&session).await;
        ensemble.reset_requests();
        let zxid = ensemble.zxid();
        for released in release(held).await {
            assert_eq!(released.unwrap(), ReleaseOutcome::Released);
        }
        // One alone, and four of up to 32 nodes.
        assert_eq!(changes(&ensemble), 5);
        assert_eq!(ensemble.zxid() - zxid, 5);
    }

    #[tokio::test(start_paused = true)]
    async fn full_transactions_wait_for_no_answer() {
        const LATENCY: Duration = Duration::from_millis(100);
        let ensemble = MemoryEnsemble::builder().latency(LATENCY).build();
        let session = ensemble.session();
        let many = (0..1_000).map(|it| mutex(&session, it)).collect::<Vec<_>>();
        let held = join_all(many.iter().map(InterProcessMutex::acquire)).await;
        let start = Instant::now();
        for released in release(held.into_iter().map(Result::unwrap).collect()).await {
            assert_eq!(released.unwrap(), ReleaseOutcome::Released);
        }
        // The last ones, which do not fill a transaction, wait for one in flight.
        assert!(start.elapsed() <= 5 * LATENCY, "{:?}", start.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn paths_of_any_length_fit() {
        let ensemble = MemoryEnsemble::new();
        let session = ensemble.session();
        let long = |number: usize| format!("/locks/{}-{number}", "long".repeat(1_000));
        let locks: Vec<_> = (0..32)
            .map(|it| InterProcessMutex::new(&session, &long(it)).unwrap())
            .collect();
        let held = join_all(locks.iter().map(InterProcessMutex::acquire)).await;
        ensemble.reset_requests();
        for released in release(held.into_iter().map(Result::unwrap).collect()).await {
            assert_eq!(released.unwrap(), ReleaseOutcome::Released);
        }
        // 4 kB each, so four fit into 16 KiB.
        assert_eq!(changes(&ensemble), 1 + 31_usize.div_ceil(4));
    }

    #[tokio::test(start_paused = true)]
    async fn answer_that_is_lost_frees_all_the_same() {
        for lost in [Lost::BeforeCommit, Lost::AfterCommit] {
            for times in 1..4 {
                let ensemble = MemoryEnsemble::new();
                let session = ensemble.session();
                let held = held(&session).await;
                for _ in 0..times {
                    ensemble.lose_reply(session.session_id(), Operation::Multi, lost);
                }
                for released in release(held).await {
                    assert_eq!(released.unwrap(), ReleaseOutcome::Released);
                }
                await_free(&TestEnsemble::Memory(ensemble)).await;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn session_that_expires_meanwhile_is_told() {
        let latency = Duration::from_millis(100);
        let ensemble = MemoryEnsemble::builder().latency(latency).build();
        let session = ensemble.session();
        let held = held(&session).await;
        let released = sent(held);
        // Until the queue has sent what it can.
        sleep(latency / 2).await;
        assert!(ensemble.expire(session.session_id().unwrap()));
        for released in timeout(PATIENCE, join_all(released)).await.unwrap() {
            assert!(
                matches!(released, Err(Error::Release(ReleaseError::Lost(_)))),
                "{released:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn node_that_may_not_be_deleted_is_told_to_its_holder_alone() {
        let ensemble = MemoryEnsemble::new();
        let session = ensemble.session();
        let held = held(&session).await;
        ensemble.deny(&node_of(held.get(ODD_ONE).unwrap()), Operation::Delete);
        for (number, released) in release(held).await.into_iter().enumerate() {
            match released {
                Ok(outcome) => {
                    assert_eq!(outcome, ReleaseOutcome::Released);
                    assert_ne!(number, ODD_ONE);
                }
                Err(Error::Release(ReleaseError::Refused { path, .. })) => {
                    assert_eq!((number, path), (ODD_ONE, directory(ODD_ONE)));
                }
                Err(error) => panic!("{error}"),
            }
        }
        for number in 0..LOCKS {
            let left = usize::from(number == ODD_ONE);
            assert_eq!(ensemble.children(&directory(number)).len(), left);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn transaction_that_is_refused_is_made_up_for_one_by_one() {
        let ensemble = MemoryEnsemble::new();
        let session = ensemble.session();
        let held = held(&session).await;
        ensemble.deny("/", Operation::Multi);
        for released in release(held).await {
            assert_eq!(released.unwrap(), ReleaseOutcome::Released);
        }
        await_free(&TestEnsemble::Memory(ensemble)).await;
    }
}
