use super::*;
use crate::session::own_watch::OwnWatch;

/// A lock that two contenders share: the lease of the first, and the second, which waits.
struct Shared {
    stage: Stage,
    lease: Lease,
    waiter: AttemptFuture,
}

async fn shared(own_watch: Option<OwnWatch>) -> Shared {
    let stage = Stage::new().await;
    let lock = stage.lock("/a", 5);
    let queue = Arc::clone(lock.local_queue(LockKind::Mutex).unwrap());
    let lease = stage.lease_of(&lock, 1, own_watch);
    lease.keep(queue.take_for_test());
    let target = Target {
        lock,
        kind: LockKind::Mutex,
        beside: None,
        owner: None,
        permits: None,
        data: None,
    };
    let mut waiter = contend(queue, target);
    assert!(poll!(waiter.as_mut()).is_pending());
    stage.log().await;
    Shared {
        stage,
        lease,
        waiter,
    }
}

impl Shared {
    /// The next contender's lease, if it got one without a node of its own.
    async fn next(&mut self) -> Option<Lease> {
        match poll!(self.waiter.as_mut()) {
            std::task::Poll::Ready(Ok(Outcome::Granted(mut leases))) => leases.pop(),
            std::task::Poll::Ready(other) => panic!("{other:?}"),
            std::task::Poll::Pending => None,
        }
    }
}

fn successor(lease: &Lease) -> Lease {
    let token = lease.fencing_token().handed_on();
    Lease::on(lease.node(), lease.lock(), token).unwrap()
}

fn watched() -> (tokio::sync::oneshot::Sender<NodeEvent>, Option<OwnWatch>) {
    let (event, watch) = node_watch();
    (event, Some(OwnWatch::new(watch)))
}

#[tokio::test(start_paused = true)]
async fn watched_node_is_handed_on_without_a_request() {
    let (_event, watch) = watched();
    let mut shared = shared(watch).await;
    assert!(shared.lease.retire().is_none());
    let next = shared.next().await.unwrap();
    assert_eq!(next.fencing_token(), FencingToken::new(1).handed_on());
    assert_eq!(next.state(), GuardState::Held);
    assert!(shared.stage.log().await.is_empty());
    // The epoch task still watches over the node.
    let id = next.state.node.id();
    let watched_over = shared.stage.epoch.lease(id).unwrap();
    assert!(std::ptr::addr_eq(
        Arc::as_ptr(&watched_over),
        Arc::as_ptr(&next.state.node)
    ));
    // Dropping the first lease does not end the second.
    drop(shared.lease);
    assert!(shared.stage.epoch.lease(id).is_some());
    assert!(next.check().is_ok());
}

#[tokio::test(start_paused = true)]
async fn suspended_node_is_not_handed_on() {
    let (_event, watch) = watched();
    let mut shared = shared(watch).await;
    shared.stage.nodes.connection_is(Connection::Disconnected);
    assert!(shared.lease.retire().is_some());
    assert!(shared.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn node_that_was_not_seen_since_a_reconnect_is_not_handed_on() {
    let (_event, watch) = watched();
    let mut shared = shared(watch).await;
    shared.stage.nodes.reconnect();
    assert!(shared.lease.retire().is_some());
    assert!(shared.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn node_is_not_handed_on_past_its_deadline() {
    let (_event, watch) = watched();
    let mut shared = shared(watch).await;
    jump(T / 2);
    assert!(shared.lease.retire().is_some());
    assert!(shared.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn node_that_somebody_asks_for_is_not_handed_on() {
    let (_event, watch) = watched();
    let mut shared = shared(watch).await;
    let data = node(1, b"__REVOKE__");
    shared.lease.state.node.observe(Some(&data), Some(1));
    assert!(shared.lease.retire().is_some());
    assert!(shared.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn node_with_something_beside_it_is_not_handed_on() {
    for is_settled in [false, true] {
        let (_event, watch) = watched();
        let mut shared = shared(watch).await;
        shared.lease.unsettled();
        if is_settled {
            shared.lease.settled();
        }
        assert_eq!(shared.lease.retire().is_none(), is_settled);
        assert_eq!(shared.next().await.is_some(), is_settled);
    }
    let (_event, watch) = watched();
    let mut shared = shared(watch).await;
    assert!(shared.lease.writer().tie());
    assert!(shared.lease.retire().is_some());
    assert!(shared.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn loss_frees_the_turn_at_once() {
    let (_event, watch) = watched();
    let mut shared = shared(watch).await;
    shared.lease.state.node.observe(None, None);
    assert!(shared.next().await.is_none());
    // The waiter creates a node of its own, while a guard of the lost lease is still alive.
    let asked = shared.stage.asked().await;
    assert!(matches!(asked, Asked::Create(..)), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn turn_that_comes_to_a_lost_lease_goes_on() {
    let stage = Stage::new().await;
    let lock = stage.lock("/a", 5);
    let queue = Arc::clone(lock.local_queue(LockKind::Mutex).unwrap());
    let lease = stage.lease_of(&lock, 1, None);
    lease.note_loss(LostReason::NodeRemoved);
    lease.keep(queue.take_for_test());
    // The turn is free for another contender.
    drop(queue.take_for_test());
}

#[tokio::test(start_paused = true)]
async fn loss_and_request_from_before_the_hand_over_are_told_to_the_next() {
    let stage = Stage::new().await;
    let lease = stage.lease(1);
    lease.note_loss(LostReason::NodeRemoved);
    let next = successor(&lease);
    assert_eq!(next.state(), GuardState::Lost(LostReason::NodeRemoved));
    let asked_for = stage.lease(2);
    let data = node(2, b"__REVOKE__");
    asked_for.state.node.observe(Some(&data), Some(1));
    let next = successor(&asked_for);
    assert!(next.revocation_requested().now_or_never().is_some());
    assert_eq!(next.state(), GuardState::Held);
}

/// A node without a watch that goes with the turn, after the first contender has released it.
async fn handed_unwatched() -> Shared {
    let mut shared = shared(None).await;
    assert!(shared.lease.retire().is_none());
    assert!(shared.next().await.is_none(), "granted without asking");
    shared
}

#[tokio::test(start_paused = true)]
async fn unwatched_node_is_handed_on_once_it_was_seen() {
    let mut shared = handed_unwatched().await;
    let read = reading(&shared.stage).await;
    read.send(Ok(Some(node(1, b"")))).unwrap();
    let next = shared.next().await.unwrap();
    assert_eq!(next.fencing_token(), FencingToken::new(1).handed_on());
}

#[tokio::test(start_paused = true)]
async fn unwatched_node_that_is_not_as_it_was_is_not_handed_on() {
    let answers: [fn() -> Result<Read, NodesError>; 4] = [
        || Ok(None),
        || Ok(Some(node(2, b""))),
        || Ok(Some(node(1, b"__REVOKE__"))),
        || Err(NodesError::NoAuth),
    ];
    for answer in answers {
        let mut shared = handed_unwatched().await;
        let read = reading(&shared.stage).await;
        read.send(answer()).unwrap();
        assert!(shared.next().await.is_none());
        let asked = shared.stage.log().await;
        assert!(asked.iter().any(|it| it.starts_with("create")), "{asked:?}");
        // Left in place, it would block the node that the waiter creates.
        assert!(asked.contains(&"delete /a/n1".to_owned()), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn node_that_is_lost_while_it_is_asked_for_is_not_waited_for() {
    let mut shared = handed_unwatched().await;
    let _unanswered = reading(&shared.stage).await;
    shared.stage.log().await;
    for lease in shared.stage.epoch.leases() {
        lease.observe(None, None);
    }
    assert!(shared.next().await.is_none());
    let asked = shared.stage.log().await;
    assert!(asked.iter().any(|it| it.starts_with("create")), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn answer_of_a_connection_that_is_lost_hands_nothing_on() {
    let mut shared = handed_unwatched().await;
    let read = reading(&shared.stage).await;
    shared.stage.nodes.reconnect();
    read.send(Ok(Some(node(1, b"")))).unwrap();
    assert!(shared.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn watch_that_has_heard_of_the_end_hands_nothing_on() {
    let (event, watch) = watched();
    let mut shared = shared(watch).await;
    event.send(NodeEvent::Deleted).unwrap();
    // No poll has seen the event yet.
    drop(shared.lease.retire());
    assert!(shared.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn node_that_was_seen_is_watched_for_whoever_it_is_handed_on_to() {
    let mut shared = handed_unwatched().await;
    // The watch is requested at once, together with the read.
    let asked = shared.stage.log().await;
    assert!(asked.contains(&"watch /a/n1".to_owned()), "{asked:?}");
    assert!(shared.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn lapse_from_before_the_hand_over_is_the_next_ones() {
    let stage = Stage::new().await;
    let lease = stage.lease(1);
    let nodes = stage.epoch.nodes().unwrap();
    let mut written = nodes.delete("/x");
    assert!(poll!(written.as_mut()).is_pending());
    jump(T / 2);
    let Some(Asked::Delete(_, answer)) = stage.nodes.asked() else {
        panic!("no delete");
    };
    answer.send(Ok(())).unwrap();
    written.await.unwrap();
    assert_eq!(stage.epoch.lapses(), 1);
    // The first lease has not noticed the lapse itself.
    let next = successor(&lease);
    assert_eq!(next.state(), GuardState::Lost(LostReason::DeadlinePassed));
}
