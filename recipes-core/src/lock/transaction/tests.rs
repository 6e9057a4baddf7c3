use std::pin::pin;
use std::task::Poll;

use futures::poll;

use super::*;
use crate::scripted::{Answer, Asked, Stage, failed, unknown};
use crate::store::nodes::Created;

async fn committing(stage: &Stage) -> (Vec<NodeOp>, Answer<Vec<NodeOpDone>, MultiError>) {
    match stage.asked().await {
        Asked::Multi(operations, answer) => (operations, answer),
        other => panic!("{other:?}"),
    }
}

fn checks(operations: &[NodeOp]) -> Vec<&str> {
    let paths = operations.iter().filter_map(|it| match it {
        NodeOp::Check { path, .. } => Some(path.as_str()),
        _ => None,
    });
    paths.collect()
}

/// The ensemble would check a node of one session in a transaction of another. The node may still
/// exist although the other session has lost its lock.
#[tokio::test(start_paused = true)]
async fn transaction_under_locks_of_two_sessions_is_not_sent() {
    let (one, other) = (Stage::new().await, Stage::new().await);
    let (first, second) = (one.lease(1), other.lease(2));
    for leases in [vec![&first, &second], vec![&second, &first]] {
        let path = leases[0].path().to_owned();
        let transaction = Transaction::new(leases).set("/x", "1");
        let mut committed = pin!(transaction.commit());
        let Poll::Ready(refused) = poll!(committed.as_mut()) else {
            panic!("sent");
        };
        let refused = refused.unwrap_err();
        let source = NodesError::Unsupported;
        assert!(
            matches!(&refused, Error::Transaction(TransactionError::Rejected { path: its, source: why })
                if *its == path && std::mem::discriminant(why) == std::mem::discriminant(&source)),
            "{refused:?}"
        );
    }
    assert!(one.log().await.is_empty());
    assert!(other.log().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn every_lock_of_a_set_is_checked_before_the_first_operation() {
    let stage = Stage::new().await;
    let leases = [stage.lease(1), stage.lease(2)];
    let transaction = Transaction::new(leases.iter().collect()).create("/x/1", "new");
    let mut committed = pin!(transaction.set_version("/x", "1", 3).commit());
    assert!(poll!(committed.as_mut()).is_pending());
    let (operations, answer) = committing(&stage).await;
    assert_eq!(operations.len(), 4);
    assert_eq!(checks(&operations[..2]), ["/a/n1", "/a/n2"]);
    let created = Created {
        path: "/x/1".to_owned(),
        czxid: None,
    };
    let stat = NodeStat::new(1, 1, 0, 0, 0);
    let done = vec![
        NodeOpDone::Checked,
        NodeOpDone::Checked,
        NodeOpDone::Created(created),
        NodeOpDone::Set(stat),
    ];
    answer.send(Ok(done)).unwrap();
    let done = committed.await.unwrap();
    let created = TransactionResult::Created("/x/1".to_owned());
    assert_eq!(done, [created, TransactionResult::Set(stat)]);
}

#[tokio::test(start_paused = true)]
async fn refusal_says_which_lock_is_gone_or_which_operation_failed() {
    let error = |index, source| MultiError { index, source };
    type Case = (MultiError, fn(&Error) -> bool);
    let cases: [Case; 7] = [
        (
            error(Some(1), NodesError::NoNode),
            |it| matches!(it, Error::Transaction(TransactionError::Lost(lost)) if lost.reason == LostReason::NodeRemoved),
        ),
        (error(Some(1), NodesError::NoAuth), |it| {
            matches!(it, Error::Transaction(TransactionError::Rejected { .. }))
        }),
        (
            error(Some(2), NodesError::NoNode),
            |it| matches!(it, Error::Transaction(TransactionError::Refused { index: 0, node, .. }) if node == "/x"),
        ),
        (
            error(Some(3), NodesError::BadVersion),
            |it| matches!(it, Error::Transaction(TransactionError::Refused { index: 1, node, .. }) if node == "/y"),
        ),
        // No store gives such a number.
        (error(Some(4), NodesError::BadVersion), |it| {
            matches!(it, Error::Transaction(TransactionError::Rejected { .. }))
        }),
        (error(None, unknown()), |it| {
            matches!(it, Error::Transaction(TransactionError::Unknown { .. }))
        }),
        (error(None, NodesError::Unsupported), |it| {
            matches!(it, Error::Transaction(TransactionError::Rejected { .. }))
        }),
    ];
    for (error, is_it) in cases {
        let stage = Stage::new().await;
        let leases = [stage.lease(1), stage.lease(2)];
        let is_loss = error.index == Some(1) && matches!(error.source, NodesError::NoNode);
        let transaction = Transaction::new(leases.iter().collect());
        let mut committed = pin!(transaction.delete("/x").check("/y").commit());
        assert!(poll!(committed.as_mut()).is_pending());
        let (_, answer) = committing(&stage).await;
        let case = format!("{error:?}");
        answer.send(Err(error)).unwrap();
        let told = committed.await.unwrap_err();
        assert!(is_it(&told), "{case}: {told:?}");
        let [first, second] = &leases;
        assert!(first.check().is_ok(), "{case}");
        assert_eq!(second.check().is_err(), is_loss, "{case}");
    }
}

/// It may commit when the next contender of this process holds the node.
#[tokio::test(start_paused = true)]
async fn node_is_tied_while_a_transaction_has_no_answer() {
    for is_answered in [false, true] {
        let stage = Stage::new().await;
        let lease = stage.lease(1);
        let mut committed = pin!(Transaction::new(vec![&lease]).check("/x").commit());
        assert!(poll!(committed.as_mut()).is_pending());
        assert!(lease.is_tied());
        let (_, answer) = committing(&stage).await;
        let refusal = match is_answered {
            true => failed(NodesError::NoNode),
            false => MultiError {
                index: None,
                source: unknown(),
            },
        };
        answer.send(Err(refusal)).unwrap();
        committed.await.unwrap_err();
        assert_eq!(lease.is_tied(), !is_answered);
    }
}

#[tokio::test(start_paused = true)]
async fn transaction_ends_with_its_lock() {
    let stage = Stage::new().await;
    let lease = stage.lease(1);
    let mut committed = pin!(Transaction::new(vec![&lease]).check("/x").commit());
    assert!(poll!(committed.as_mut()).is_pending());
    let _unanswered = committing(&stage).await;
    lease.note_loss(LostReason::SessionExpired);
    let Poll::Ready(told) = poll!(committed.as_mut()) else {
        panic!("it waits");
    };
    let told = told.unwrap_err();
    assert!(
        matches!(told, Error::Transaction(TransactionError::Unknown { .. })),
        "{told:?}"
    );
    // After the loss, a transaction is not even sent.
    let transaction = Transaction::new(vec![&lease]).check("/x");
    let told = transaction.commit().await.unwrap_err();
    assert!(
        matches!(told, Error::Transaction(TransactionError::Lost(_))),
        "{told:?}"
    );
    assert!(stage.log().await.is_empty());
}

/// As with PostgreSQL, where news have a connection of their own.
#[tokio::test(start_paused = true)]
async fn answer_decides_whether_the_node_was_removed_before() {
    for was_removed_before in [false, true] {
        let stage = Stage::new().await;
        let lease = stage.lease(1);
        let mut committed = pin!(Transaction::new(vec![&lease]).check("/x").commit());
        assert!(poll!(committed.as_mut()).is_pending());
        let (_, answer) = committing(&stage).await;
        lease.note_loss(LostReason::NodeRemoved);
        assert!(poll!(committed.as_mut()).is_pending());
        let done = match was_removed_before {
            true => Err(MultiError {
                index: Some(0),
                source: NodesError::NoNode,
            }),
            false => Ok(vec![NodeOpDone::Checked, NodeOpDone::Checked]),
        };
        answer.send(done).unwrap();
        match committed.await {
            Ok(done) => {
                assert!(!was_removed_before);
                assert_eq!(done, [TransactionResult::Checked]);
            }
            Err(Error::Transaction(TransactionError::Lost(lost))) => {
                assert!(was_removed_before);
                assert_eq!(lost.reason, LostReason::NodeRemoved);
            }
            Err(told) => panic!("{told:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn transaction_of_a_removed_node_is_given_up_at_the_deadline() {
    let stage = Stage::new().await;
    let lease = stage.lease(1);
    let deadline = lease.epoch().deadline();
    let mut committed = pin!(Transaction::new(vec![&lease]).check("/x").commit());
    assert!(poll!(committed.as_mut()).is_pending());
    let _unanswered = committing(&stage).await;
    lease.note_loss(LostReason::NodeRemoved);
    let told = committed.await.unwrap_err();
    assert!(
        matches!(told, Error::Transaction(TransactionError::Unknown { .. })),
        "{told:?}"
    );
    assert!(tokio::time::Instant::now() >= deadline);
}
