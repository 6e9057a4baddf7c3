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

/// The question that is sent in a while, and not just before.
async fn others_see(stage: &Stage, after: Duration) -> (Vec<String>, Answer<Vec<bool>>) {
    settle().await;
    tokio::time::advance(after - MILLI).await;
    let early = stage.log().await;
    assert!(
        !early.iter().any(|it| it.starts_with("others see")),
        "{early:?}"
    );
    tokio::time::advance(2 * MILLI).await;
    loop {
        if let Asked::OthersSee(paths, answer) = stage.asked().await {
            return (paths, answer);
        }
    }
}

/// The client of a store that has lost its data goes on trying until its session is over by its own
/// clock.
#[tokio::test(start_paused = true)]
async fn holder_is_told_while_disconnected_that_others_do_not_see_its_node() {
    let stage = Stage::new().await;
    let (gone, _event) = watched(&stage, 1).await;
    let (kept, _event) = watched(&stage, 2).await;
    stage.nodes.connection_is(Connection::Disconnected);
    let (paths, answer) = others_see(&stage, T / 24).await;
    assert_eq!(paths.len(), 2);
    answer.send(Ok(vec![false, true])).unwrap();
    settle().await;
    assert_eq!(is_lost(&gone), Some(LostReason::NodeRemoved));
    assert!(matches!(kept.state(), GuardState::Suspended { .. }));
    // The session itself may come back.
    assert_eq!(stage.epoch.link(), Link::Disconnected);
}

#[tokio::test(start_paused = true)]
async fn others_are_asked_again_soon_if_none_was_let_in_and_late_if_one_sees_the_node() {
    let stage = Stage::new().await;
    let (lease, _event) = watched(&stage, 1).await;
    stage.nodes.connection_is(Connection::Disconnected);
    let (_, answer) = others_see(&stage, T / 24).await;
    answer.send(Err(unknown())).unwrap();
    let (_, answer) = others_see(&stage, T / 24).await;
    answer.send(Ok(vec![true])).unwrap();
    let (_, answer) = others_see(&stage, T / 4).await;
    // A question that is under way says nothing of the connection that comes meanwhile.
    stage.nodes.connection_is(Connection::Connected);
    settle().await;
    assert!(answer.send(Ok(vec![false])).is_err());
    let read = reading(&stage).await;
    read.send(Ok(Some(node(1, b"")))).unwrap();
    settle().await;
    assert_eq!(lease.state(), GuardState::Held);
}

#[tokio::test(start_paused = true)]
async fn others_are_not_asked_while_nothing_is_held() {
    let stage = Stage::new().await;
    let _waits = contend(&stage);
    stage.nodes.connection_is(Connection::Disconnected);
    for _ in 0..20 {
        settle().await;
        tokio::time::advance(T / 24).await;
    }
    let asked = stage.log().await;
    assert!(
        !asked.iter().any(|it| it.starts_with("others see")),
        "{asked:?}"
    );
}

/// Every question opens a session on each server. Nothing depends on the answer any more: the locks
/// are lost, and their guards have not been dropped yet.
#[tokio::test(start_paused = true)]
async fn others_are_not_asked_about_locks_that_are_lost() {
    let stage = Stage::new().await;
    let (lease, _event) = watched(&stage, 1).await;
    stage.nodes.connection_is(Connection::Disconnected);
    let (_, answer) = others_see(&stage, T / 24).await;
    answer.send(Ok(vec![false])).unwrap();
    settle().await;
    assert_eq!(is_lost(&lease), Some(LostReason::NodeRemoved));
    let mut questions = 0;
    for _ in 0..24 {
        settle().await;
        tokio::time::advance(T / 24 + MILLI).await;
        settle().await;
        while let Some(asked) = stage.nodes.asked() {
            if let Asked::OthersSee(paths, answer) = asked {
                questions += 1;
                drop(answer.send(Ok(vec![false; paths.len()])));
            }
        }
    }
    assert_eq!(questions, 0, "about a lock that is lost");
}

/// A store that is slow to open sessions is not helped by more of them: each is a transaction.
#[tokio::test(start_paused = true)]
async fn others_are_asked_less_and_less_often_while_none_is_let_in() {
    let stage = Stage::new().await;
    let (_lease, _event) = watched(&stage, 1).await;
    stage.nodes.connection_is(Connection::Disconnected);
    let mut questions = 0;
    for _ in 0..120 {
        settle().await;
        tokio::time::advance(T / 120).await;
        settle().await;
        while let Some(asked) = stage.nodes.asked() {
            if let Asked::OthersSee(_, answer) = asked {
                questions += 1;
                drop(answer.send(Err(unknown())));
            }
        }
    }
    assert!(
        questions <= 12,
        "{questions} questions in one session timeout"
    );
}

/// The client has to repeat what it has set on the old connection, such as `TCP_NODELAY`.
#[tokio::test(start_paused = true)]
async fn client_is_told_of_each_new_connection() {
    let stage = Stage::new().await;
    settle().await;
    let told = || *crate::sync::lock(&stage.nodes.reconnections);
    assert_eq!(told(), 0);
    for times in 1..=2 {
        stage.nodes.connection_is(Connection::Disconnected);
        settle().await;
        assert_eq!(told(), times - 1);
        stage.nodes.connection_is(Connection::Connected);
        settle().await;
        assert_eq!(told(), times);
    }
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
