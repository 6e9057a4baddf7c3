//! What a guard offers to code that must not run without the lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lock_recipes::{
    Error, InterProcessMutex, LostReason, NodesError, Session, TransactionError, TransactionResult,
    VerifyError,
};
use test_rig::{TestEnsemble, on_every_ensemble};

const PATH: &str = "/locks/orders";

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

/// Set when this is dropped.
struct Flag(Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Expired explicitly, so news of the node's deletion may arrive before the end of the session.
fn assert_expired(reason: LostReason) {
    let is_expired = matches!(reason, LostReason::SessionExpired | LostReason::NodeRemoved);
    assert!(is_expired, "{reason}");
}

on_every_ensemble!(
    transaction_commits_while_the_lock_is_held,
    refused_operation_is_named_and_nothing_is_changed,
    transaction_of_a_lost_lock_changes_nothing,
    transaction_of_an_expired_session_changes_nothing,
    run_gives_the_output_of_its_future,
    run_drops_its_future_when_the_lock_is_lost,
    future_that_ends_after_the_loss_has_no_output,
    verify_finds_out_what_no_watch_has_told,
    lost_never_completes_after_a_release,
);

async fn transaction_commits_while_the_lock_is_held(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    ensemble.create("/orders", b"").await;
    ensemble.create("/orders/next", b"7").await;
    ensemble.create("/orders/old", b"").await;
    let held = mutex(&session).acquire().await.unwrap();
    let (_, stat) = session.read("/orders/next").await.unwrap().unwrap();
    let done = held
        .transaction()
        .check("/orders")
        .set_version("/orders/next", "8", stat.version)
        .create("/orders/7", "a book")
        .delete("/orders/old")
        .commit()
        .await
        .unwrap();
    assert_eq!(done[0], TransactionResult::Checked);
    assert!(
        matches!(&done[1], TransactionResult::Set(stat) if stat.version == 1),
        "{done:?}"
    );
    assert_eq!(done[2], TransactionResult::Created("/orders/7".to_owned()));
    assert_eq!(done[3], TransactionResult::Deleted);
    assert_eq!(ensemble.children("/orders").await, ["7", "next"]);
    assert_eq!(ensemble.read("/orders/next").await.unwrap().0, b"8");
    assert_eq!(ensemble.read("/orders/7").await.unwrap().0, b"a book");
    held.release().await.unwrap();
}

async fn refused_operation_is_named_and_nothing_is_changed(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    ensemble.create("/orders", b"7").await;
    ensemble.create("/orders/next", b"7").await;
    let held = mutex(&session).acquire().await.unwrap();
    let refused = held
        .transaction()
        .set("/orders", "8")
        .set_version("/orders/next", "9", 7)
        .commit()
        .await
        .unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Transaction(TransactionError::Refused {
                index: 1,
                source: NodesError::BadVersion,
                ..
            })
        ),
        "{refused:?}"
    );
    assert_eq!(
        refused.to_string(),
        "operation 1 of a transaction under \"/locks/orders\", on \"/orders/next\", refused, nothing \
         was changed"
    );
    assert_eq!(ensemble.read("/orders").await.unwrap().0, b"7");
    // The lock is still held.
    held.verify().await.unwrap();
    held.release().await.unwrap();
}

async fn transaction_of_a_lost_lock_changes_nothing(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    ensemble.create("/orders", b"7").await;
    let held = mutex(&session).acquire().await.unwrap();
    // The node is gone. It makes no difference whether the guard knows it yet.
    ensemble.delete(&held.members()[0].node_path).await;
    let refused = held
        .transaction()
        .set("/orders", "8")
        .commit()
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, Error::Transaction(TransactionError::Lost(lost)) if lost.reason == LostReason::NodeRemoved),
        "{refused:?}"
    );
    assert_eq!(ensemble.read("/orders").await.unwrap().0, b"7");
    assert!(!held.is_valid());
}

async fn transaction_of_an_expired_session_changes_nothing(ensemble: TestEnsemble) {
    let (session, other) = (ensemble.session().await, ensemble.session().await);
    ensemble.create("/orders", b"7").await;
    let held = mutex(&session).acquire().await.unwrap();
    ensemble.expire(&session).await;
    held.lost().await;
    let successor = mutex(&other).acquire().await.unwrap();
    let refused = held
        .transaction()
        .set("/orders", "8")
        .commit()
        .await
        .unwrap_err();
    assert!(
        matches!(refused, Error::Transaction(TransactionError::Lost(_))),
        "{refused:?}"
    );
    assert_eq!(ensemble.read("/orders").await.unwrap().0, b"7");
    successor
        .transaction()
        .set("/orders", "9")
        .commit()
        .await
        .unwrap();
    assert_eq!(ensemble.read("/orders").await.unwrap().0, b"9");
}

async fn run_gives_the_output_of_its_future(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    let output = held
        .run(async {
            tokio::task::yield_now().await;
            42
        })
        .await
        .unwrap();
    assert_eq!(output, 42);
    held.release().await.unwrap();
}

async fn run_drops_its_future_when_the_lock_is_lost(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    let dropped = Arc::new(AtomicBool::new(false));
    let flag = Flag(Arc::clone(&dropped));
    let body = async {
        let _flag = flag;
        ensemble.expire(&session).await;
        std::future::pending::<()>().await;
    };
    let lost = held.run(body).await.unwrap_err();
    assert_expired(lost.lost().unwrap().reason);
    assert!(dropped.load(Ordering::SeqCst));
    // Later ones do not even start.
    let mut started = false;
    assert!(held.run(async { started = true }).await.is_err());
    assert!(!started);
}

async fn future_that_ends_after_the_loss_has_no_output(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    let lost = held.lost();
    let body = async {
        ensemble.expire(&session).await;
        lost.await;
    };
    assert!(held.run(body).await.is_err());
}

async fn verify_finds_out_what_no_watch_has_told(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    held.verify().await.unwrap();
    ensemble.delete(&held.members()[0].node_path).await;
    let lost = held.verify().await.unwrap_err();
    assert!(
        matches!(&lost, Error::Verify(VerifyError::Lost(lost)) if lost.reason == LostReason::NodeRemoved)
    );
}

async fn lost_never_completes_after_a_release(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let held = mutex(&session).acquire().await.unwrap();
    let mut lost = Box::pin(held.lost());
    held.release().await.unwrap();
    ensemble.expire(&session).await;
    mutex(&session)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert!(futures::poll!(&mut lost).is_pending());
}
