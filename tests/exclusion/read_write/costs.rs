//! What reading and writing cost.

use std::time::Duration;

use test_rig::{MemoryEnsemble, Operation, TestEnsemble};
use tokio::time::Instant;

use super::{PATH, lock};

#[tokio::test(start_paused = true)]
async fn uncontended_read_or_write_is_one_create_one_list_one_delete() {
    let ensemble = MemoryEnsemble::new();
    let session = ensemble.session();
    lock(&session)
        .write()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    for writes in [false, true] {
        ensemble.reset_requests();
        if writes {
            lock(&session)
                .write()
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
        } else {
            lock(&session)
                .read()
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
        }
        let requests: Vec<_> = ensemble.requests().iter().map(|it| it.operation).collect();
        assert_eq!(
            requests,
            [Operation::Create, Operation::List, Operation::Delete]
        );
    }
}

/// Each reply and each watch event takes as long as a round trip here.
#[tokio::test(start_paused = true)]
async fn twenty_readers_behind_a_writer_hold_within_two_round_trips_of_its_release() {
    const ROUND_TRIP: Duration = Duration::from_millis(100);
    let ensemble = MemoryEnsemble::builder().latency(ROUND_TRIP).build();
    let sessions: Vec<_> = (0..20).map(|_| ensemble.session()).collect();
    let writer = lock(&sessions[0]).write().await.unwrap();
    let readers: Vec<_> = sessions
        .iter()
        .map(|session| {
            let reader = lock(session);
            tokio::spawn(async move { (reader.read().await, Instant::now()) })
        })
        .collect();
    let ensemble = TestEnsemble::Memory(ensemble);
    ensemble.await_children(PATH, 21).await;
    // Their watches are set by then.
    tokio::time::sleep(ROUND_TRIP * 5).await;
    let released = Instant::now();
    writer.release().await.unwrap();
    let mut guards = Vec::new();
    for reader in readers {
        let (guard, granted) = reader.await.unwrap();
        assert!(
            granted - released <= ROUND_TRIP * 2,
            "{:?}",
            granted - released
        );
        guards.push(guard.unwrap());
    }
    assert!(guards.iter().all(|guard| guard.is_valid()));
}
