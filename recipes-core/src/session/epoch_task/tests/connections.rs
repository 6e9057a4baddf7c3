use super::*;

/// Nodes of one lock may have different ACLs. One that may not be read does not keep the others from
/// being verified after a reconnect.
#[tokio::test(start_paused = true)]
async fn nodes_of_a_lock_take_turns_if_one_may_not_be_read() {
    let stage = Stage::new().await;
    let (unreadable, readable) = (stage.lease(1), stage.lease(2));
    settle().await;
    tokio::time::advance(OWN_WATCH_GRACE).await;
    let (of_first, of_second) = (watching(&stage).await, watching(&stage).await);
    assert!(of_first.send(Err(NodesError::NoAuth)).is_ok());
    settle().await;
    let (_event, watch) = node_watch();
    let (data, stat) = node(2, b"");
    assert!(of_second.send(Ok(Some((data, stat, watch)))).is_ok());
    settle().await;
    stage.nodes.reconnect();
    settle().await;
    let again = watching(&stage).await;
    assert!(again.send(Err(NodesError::NoAuth)).is_ok());
    let early = stage.log().await;
    let is_look = |it: &String| it.starts_with("read ") || it.starts_with("watch ");
    assert!(!early.iter().any(is_look), "{early:?}");
    let is_suspended = |it: &Lease| matches!(it.state(), GuardState::Suspended { .. });
    assert!(is_suspended(&unreadable) && is_suspended(&readable));
    stage.beat_for(REFUSED_PAUSE + MILLI).await;
    // It was watched before, so it is only read.
    let of_second = reading(&stage).await;
    of_second.send(Ok(Some(node(2, b"")))).unwrap();
    settle().await;
    assert_eq!(readable.state(), GuardState::Held);
    assert!(is_suspended(&unreadable));
}

#[tokio::test(start_paused = true)]
async fn all_nodes_are_looked_at_after_a_reconnect_and_held_once_they_were_seen() {
    let stage = Stage::new().await;
    let (first, _event) = watched(&stage, 1).await;
    let (second, _event) = watched(&stage, 2).await;
    stage.log().await;
    stage.nodes.connection_is(Connection::Disconnected);
    settle().await;
    assert_eq!(stage.epoch.link(), Link::Disconnected);
    stage.nodes.connection_is(Connection::Connected);
    settle().await;
    assert!(matches!(stage.epoch.link(), Link::Connected(_)));
    // The client sets existing watches again, so the nodes are only read.
    let (of_first, of_second) = (reading(&stage).await, reading(&stage).await);
    let is_suspended = |it: &Lease| matches!(it.state(), GuardState::Suspended { .. });
    assert!(is_suspended(&first) && is_suspended(&second));
    of_first.send(Ok(Some(node(1, b"")))).unwrap();
    settle().await;
    assert_eq!(first.state(), GuardState::Held);
    assert!(is_suspended(&second));
    of_second.send(Ok(None)).unwrap();
    settle().await;
    assert_eq!(is_lost(&second), Some(LostReason::NodeRemoved));
}

/// The store says it before it asks a server that may end the session earlier.
#[tokio::test(start_paused = true)]
async fn lease_ends_earlier_under_a_shorter_timeout_from_the_moment_at_which_it_is_said() {
    let stage = Stage::new().await;
    let (lease, _event) = watched(&stage, 1).await;
    stage.nodes.connection_is(Connection::Disconnected);
    let reliant = crate::sync::lock(&stage.nodes.reliant).clone();
    let reliant = reliant.and_then(|it| it.upgrade()).unwrap();
    assert!(reliant.is_held());
    reliant.shortened(T / 3);
    // At once, whatever the task of the epoch has to do.
    assert!(stage.epoch.deadline() <= tokio::time::Instant::now() + T / 6);
    tokio::time::advance(T / 6 + MILLI).await;
    assert!(matches!(lease.state(), GuardState::Lost(_)));
    settle().await;
    assert_eq!(is_lost(&lease), Some(LostReason::DeadlinePassed));
}

/// The look was sent before the connection broke, and is answered when there is another.
#[tokio::test(start_paused = true)]
async fn late_look_of_the_connection_before_is_no_verification() {
    let stage = Stage::new().await;
    let lease = stage.lease(1);
    settle().await;
    tokio::time::advance(OWN_WATCH_GRACE).await;
    let late = watching(&stage).await;
    stage.nodes.reconnect();
    settle().await;
    let (_event, watch) = node_watch();
    let (data, stat) = node(1, b"");
    assert!(late.send(Ok(Some((data, stat, watch)))).is_ok());
    settle().await;
    assert!(matches!(lease.state(), GuardState::Suspended { .. }));
    // The new connection has a look of its own.
    let asked = loop {
        match stage.asked().await {
            Asked::Watch(_, answer) => break answer.send(Ok(Some(with_watch(1)))).is_ok(),
            Asked::Read(_, answer) => break answer.send(Ok(Some(node(1, b"")))).is_ok(),
            _ => {}
        }
    };
    assert!(asked);
    settle().await;
    assert_eq!(lease.state(), GuardState::Held);
}

#[tokio::test(start_paused = true)]
async fn task_that_is_gone_ends_its_leases() {
    let stage = Stage::new().await;
    let lease = stage.lease(1);
    stage.session.close().await;
    let closed = LostReason::SessionClosed;
    assert_eq!(is_lost(&lease), Some(closed));
    assert_eq!(stage.epoch.link(), Link::Ended(closed));
    assert_eq!(lease.state(), GuardState::Lost(closed));
}

#[tokio::test(start_paused = true)]
async fn store_that_forgot_ends_the_session() {
    let stage = Stage::new().await;
    let lease = stage.lease(1);
    stage.epoch.note_forgot(Forgot { seen: 9, now: 5 });
    settle().await;
    assert!(is_lost(&lease).is_some());
    // A guard does not keep it open.
    assert!(stage.epoch.nodes().is_err());
    let ended = stage.session.core().open_epoch("/a").await.unwrap_err();
    let is_told = matches!(
        ended,
        crate::error::AcquireError::StoreForgot {
            seen: 9,
            now: 5,
            ..
        }
    );
    assert!(is_told, "{ended}");
}

#[test]
fn runtime_that_is_gone_ends_its_leases() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let (_stage, lease) = runtime.block_on(async {
        let stage = Stage::new().await;
        let lease = stage.lease(1);
        settle().await;
        (stage, lease)
    });
    assert_eq!(is_lost(&lease), None);
    drop(runtime);
    assert_eq!(is_lost(&lease), Some(LostReason::SessionClosed));
}

/// The timers that were set before are for a longer time.
#[tokio::test(start_paused = true)]
async fn holder_is_told_in_time_when_the_store_shortens_the_timeout() {
    use crate::store::nodes::Reliant as _;

    let stage = Stage::new().await;
    let lease = stage.lease(1);
    settle().await;
    tokio::time::advance(SECOND).await;
    settle().await;
    stage.epoch.shortened(200 * MILLI);
    settle().await;
    tokio::time::advance(101 * MILLI).await;
    settle().await;
    assert_eq!(is_lost(&lease), Some(LostReason::DeadlinePassed));
}
