use std::pin::pin;

use futures::{FutureExt, poll};

use super::*;
use crate::error::ReleaseError;
use crate::lock::local_queue::AttemptFuture;
use crate::lock::release::ReleaseOutcome;
use crate::lock::target::Target;
use crate::rules::acquire::Outcome;
use crate::scripted::{
    Answer, Asked, MILLI, Read, SECOND, Stage, T, contend, failed, is_beat, jump, node, node_watch,
    settle, unknown,
};
use crate::session::epoch::Link;
use crate::store::nodes::{Connection, EndReason, NodeEvent, NodeOpDone};

mod hand_off;

const CHECKED: NodeOpDone = NodeOpDone::Checked;

/// The requests of a verification: first the check, then the read.
struct Verifying {
    check: Answer<Vec<NodeOpDone>, crate::store::nodes::MultiError>,
    read: Answer<Read>,
}

/// Requests that the epoch task sends meanwhile get no answer.
async fn verifying(stage: &Stage) -> Verifying {
    let check = loop {
        match stage.asked().await {
            Asked::Multi(operations, check) if !is_beat(&operations) => {
                assert!(matches!(&*operations, [NodeOp::Check { .. }]));
                break check;
            }
            _ => {}
        }
    };
    let read = reading(stage).await;
    Verifying { check, read }
}

async fn reading(stage: &Stage) -> Answer<Read> {
    loop {
        if let Asked::Read(_, read) = stage.asked().await {
            return read;
        }
    }
}

impl Verifying {
    fn found(self, found: Read) {
        self.check.send(Ok(vec![CHECKED])).unwrap();
        // The verification may have ended already.
        drop(self.read.send(Ok(found)));
    }
}

#[tokio::test(start_paused = true)]
async fn slow_verification_counts_from_its_sending() {
    let stage = Stage::new().await;
    let lease = stage.lease(1);
    assert_eq!(lease.valid_until(), Some(stage.start + T / 2));
    tokio::time::advance(SECOND).await;
    let mut verified = pin!(lease.verify());
    assert!(poll!(verified.as_mut()).is_pending());
    let asked = verifying(&stage).await;
    jump(3 * SECOND);
    asked.found(Some(node(1, b"")));
    verified.await.unwrap();
    assert_eq!(lease.valid_until(), Some(stage.start + SECOND + T / 2));
}

/// An answer in time would have extended the deadline by two seconds.
#[tokio::test(start_paused = true)]
async fn verification_that_is_answered_after_the_deadline_is_no_proof() {
    let stage = Stage::new().await;
    let (lease, other) = (stage.lease(1), stage.lease(2));
    let mut other_lost = pin!(other.lost());
    tokio::time::advance(2 * SECOND).await;
    let mut verified = pin!(lease.verify());
    assert!(poll!(verified.as_mut()).is_pending());
    let asked = verifying(&stage).await;
    assert!(poll!(other_lost.as_mut()).is_pending());
    jump(T / 2 - 2 * SECOND);
    asked.found(Some(node(1, b"")));
    let lost = verified.await.unwrap_err();
    let reason = LostReason::DeadlinePassed;
    assert!(
        matches!(&lost, VerifyError::Lost(lost) if lost.reason == reason),
        "{lost}"
    );
    // A lapse is reported without a call to `state`.
    settle().await;
    let told = other_lost.now_or_never();
    assert_eq!(told.map(|it| it.reason), Some(reason));
    // A lease that is granted after the lapse is not affected.
    assert_eq!(stage.lease(3).state(), GuardState::Held);
}

#[tokio::test(start_paused = true)]
async fn verification_that_finds_another_node_loses_the_lock() {
    let mut of_others = node(1, b"");
    of_others.1.ephemeral_owner += 1;
    for found in [None, Some(node(2, b"")), Some(of_others)] {
        let stage = Stage::new().await;
        let lease = stage.lease(1);
        let mut verified = pin!(lease.verify());
        assert!(poll!(verified.as_mut()).is_pending());
        verifying(&stage).await.found(found);
        let lost = verified.await.unwrap_err();
        let removed = LostReason::NodeRemoved;
        assert!(matches!(&lost, VerifyError::Lost(lost) if lost.reason == removed));
        assert_eq!(lease.valid_until(), None);
    }
}

#[tokio::test(start_paused = true)]
async fn verification_without_a_commit_says_nothing() {
    for (error, is_lost) in [
        (NodesError::NoNode, true),
        (NodesError::NoAuth, false),
        (NodesError::Throttled, false),
        (unknown(), false),
    ] {
        let stage = Stage::new().await;
        let lease = stage.lease(1);
        let mut verified = pin!(lease.verify());
        assert!(poll!(verified.as_mut()).is_pending());
        let asked = verifying(&stage).await;
        let case = error.to_string();
        asked.check.send(Err(failed(error))).unwrap();
        // A server that is cut off may still return the node.
        drop(asked.read.send(Ok(Some(node(1, b"")))));
        match verified.await.unwrap_err() {
            VerifyError::Lost(_) => assert!(is_lost, "{case}"),
            VerifyError::Unknown { .. } => assert!(!is_lost, "{case}"),
        }
        assert_eq!(lease.check().is_err(), is_lost, "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn verification_ends_with_the_session() {
    let stage = Stage::new().await;
    let lease = stage.lease(1);
    let mut verified = pin!(lease.verify());
    assert!(poll!(verified.as_mut()).is_pending());
    let expired = Connection::Ended(EndReason::Expired);
    stage.nodes.connection_is(expired);
    let lost = verified.await.unwrap_err();
    let reason = LostReason::SessionExpired;
    assert!(matches!(&lost, VerifyError::Lost(lost) if lost.reason == reason));
    assert_eq!(lease.state(), GuardState::Lost(reason));
}

#[tokio::test(start_paused = true)]
async fn lock_is_suspended_until_its_node_was_seen_on_the_new_connection() {
    let stage = Stage::new().await;
    let lease = stage.lease(1);
    assert_eq!(lease.state(), GuardState::Held);
    let mut early = pin!(lease.verify());
    assert!(poll!(early.as_mut()).is_pending());
    let early_asked = verifying(&stage).await;
    stage.nodes.connection_is(Connection::Disconnected);
    let until = stage.start + T / 2;
    let suspended = GuardState::Suspended { until };
    assert_eq!(lease.state(), suspended);
    assert!(lease.check().is_ok());
    stage.nodes.connection_is(Connection::Connected);
    assert_eq!(lease.state(), suspended);
    // An answer of the earlier connection verifies nothing on the present one.
    early_asked.found(Some(node(1, b"")));
    early.await.unwrap();
    assert_eq!(lease.state(), suspended);

    let mut again = pin!(lease.verify());
    assert!(poll!(again.as_mut()).is_pending());
    verifying(&stage).await.found(Some(node(1, b"")));
    again.await.unwrap();
    assert_eq!(lease.state(), GuardState::Held);
}

#[tokio::test(start_paused = true)]
async fn verification_that_was_sent_without_a_connection_is_of_none() {
    let stage = Stage::new().await;
    let lease = stage.lease(1);
    stage.nodes.connection_is(Connection::Disconnected);
    let mut verified = pin!(lease.verify());
    assert!(poll!(verified.as_mut()).is_pending());
    let asked = verifying(&stage).await;
    asked.found(Some(node(1, b"")));
    verified.await.unwrap();
    stage.nodes.connection_is(Connection::Connected);
    assert!(matches!(lease.state(), GuardState::Suspended { .. }));
}

#[tokio::test(start_paused = true)]
async fn lock_is_lost_at_its_deadline_for_good_and_the_first_reason_stays() {
    let stage = Stage::new().await;
    let lease = stage.lease(1);
    jump(T / 2 - MILLI);
    assert_eq!(lease.state(), GuardState::Held);
    jump(MILLI);
    let lost = GuardState::Lost(LostReason::DeadlinePassed);
    assert_eq!(lease.state(), lost);
    assert_eq!(
        lease.note_loss(LostReason::NodeRemoved).reason,
        LostReason::DeadlinePassed
    );
    stage
        .nodes
        .connection_is(Connection::Ended(EndReason::Expired));
    settle().await;
    assert_eq!(lease.state(), lost);
}

#[tokio::test(start_paused = true)]
async fn request_for_the_lock_is_told_until_it_is_released() {
    let stage = Stage::new().await;
    let lease = stage.lease(1);
    let (mut told, mut late) = (
        pin!(lease.revocation_requested()),
        pin!(lease.revocation_requested()),
    );
    assert!(poll!(told.as_mut()).is_pending());
    let mut verified = pin!(lease.verify());
    assert!(poll!(verified.as_mut()).is_pending());
    let asked = verifying(&stage).await;
    asked.found(Some(node(1, b"__REVOKE__")));
    verified.await.unwrap();
    assert!(poll!(told.as_mut()).is_ready());
    assert_eq!(lease.state(), GuardState::Held);
    drop(lease.retire());
    assert!(poll!(late.as_mut()).is_pending(), "released meanwhile");
}

#[tokio::test(start_paused = true)]
async fn released_lease_is_shared_with_nobody_and_deleted_once() {
    let stage = Stage::new().await;
    let lease = stage.lease(1);
    assert!(lease.writer().tie());
    assert!(lease.retire().is_some());
    assert!(!lease.writer().tie());
    assert!(lease.retire().is_none());
    assert!(stage.epoch.leases().is_empty());
    assert!(lease.lost().now_or_never().is_none());
}

#[tokio::test(start_paused = true)]
async fn hold_is_measured_until_its_end_whenever_that_came() {
    let stage = Stage::new().await;
    let [released, lost, early] = [1, 2, 3].map(|it| stage.lease(it));
    released.begin(LockKind::Mutex);
    lost.begin(LockKind::Mutex);
    assert!(released.is_measured() && lost.is_measured());
    drop(released.retire());
    lost.note_loss(LostReason::NodeRemoved);
    // This lease is lost before an owner has it.
    early.note_loss(LostReason::NodeRemoved);
    early.begin(LockKind::Mutex);
    for lease in [released, lost, early] {
        assert!(!lease.is_measured(), "{}", lease.node_path());
    }
}

#[tokio::test(start_paused = true)]
async fn lease_of_a_session_that_is_over_is_lost() {
    let stage = Stage::new().await;
    let early = stage.lease(1);
    let expired = Connection::Ended(EndReason::Expired);
    stage.nodes.connection_is(expired);
    settle().await;
    let lost = GuardState::Lost(LostReason::SessionExpired);
    assert_eq!(early.state(), lost);
    // This lease was granted in the moment of the end, and was not notified with the others.
    assert_eq!(stage.lease(2).state(), lost);
    // The epoch task is gone by now, but its reason stays.
    assert_eq!(stage.epoch.link(), Link::Ended(LostReason::SessionExpired));
}

/// The node was still ours to delete, but another contender may have held the lock all the same.
#[tokio::test(start_paused = true)]
async fn release_of_a_lock_that_was_lost_says_so_though_its_node_was_there() {
    let stage = Stage::new().await;
    let lease = stage.lease(1);
    jump(T / 2);
    let leases = [&lease];
    let mut released = Box::pin(crate::lock::release::release_all(&leases));
    let told = poll!(released.as_mut());
    let reason = LostReason::DeadlinePassed;
    assert!(
        matches!(&told, std::task::Poll::Ready(each) if matches!(&each[..], [Err(ReleaseError::Lost(lost))] if lost.reason == reason)),
        "{told:?}"
    );
    assert!(stage.log().await.contains(&"delete /a/n1".to_owned()));
}

/// A query that recorded a loss would end the metrics, log, and wake who listens.
#[tokio::test(start_paused = true)]
async fn state_says_that_a_lease_is_over_and_records_nothing() {
    let stage = Stage::new().await;
    let lease = stage.lease(1);
    lease.begin(LockKind::Mutex);
    jump(T / 2);
    let lost = GuardState::Lost(LostReason::DeadlinePassed);
    assert_eq!(lease.state(), lost);
    assert!(lease.is_measured(), "the hold was ended");
    assert_eq!(*lease.state.signal.borrow(), None, "the loss was recorded");
    // A check does record it.
    lease.check().unwrap_err();
    assert!(!lease.is_measured());
    assert_eq!(
        *lease.state.signal.borrow(),
        Some(LostReason::DeadlinePassed)
    );
    assert_eq!(lease.state(), lost);
}

/// The release began in time, so the work is good although nobody answers. One that begins too late
/// is never only pending.
#[tokio::test(start_paused = true)]
async fn release_without_an_answer_is_pending_and_a_late_one_is_an_error() {
    for is_late in [false, true] {
        let stage = Stage::new().await;
        let lease = stage.lease(1);
        if is_late {
            jump(T / 2);
        }
        let leases = [&lease];
        let mut released = pin!(crate::lock::release::release_all(&leases));
        let told = poll!(released.as_mut());
        if is_late {
            let is_lost = matches!(&told, std::task::Poll::Ready(each) if matches!(each[..], [Err(ReleaseError::Lost(_))]));
            assert!(is_lost, "{told:?}");
            continue;
        }
        assert!(told.is_pending(), "{told:?}");
        assert!(matches!(stage.asked().await, Asked::Delete(..)));
        jump(T / 2);
        let released = released.await;
        assert!(
            matches!(released[..], [Ok(ReleaseOutcome::Pending)]),
            "{released:?}"
        );
    }
}

/// Whoever asks for the lock next, over the same session, finds it free.
#[tokio::test(start_paused = true)]
async fn lease_that_is_dropped_is_deleted_before_anything_else_is_sent() {
    let stage = Stage::new().await;
    drop(stage.lease(1));
    let asked = stage.nodes.asked();
    assert!(matches!(asked, Some(Asked::Delete(..))), "{asked:?}");
}
