//! What answers mean to an attempt.

use super::*;
use crate::scripted::unknown;
use crate::store::nodes::{Created, NewNode};

/// The create and the listing that are sent for a single node.
async fn entering(stage: &Stage) -> (NewNode, Answer<Created>, Answer<Vec<String>>) {
    let (create, list) = (stage.asked().await, stage.asked().await);
    match (create, list) {
        (Asked::Create(new, created), Asked::List(_, listed)) => (new, created, listed),
        other => panic!("{other:?}"),
    }
}

/// A server that only reads counts as no connection, and it does answer.
#[tokio::test(start_paused = true)]
async fn answer_to_a_create_is_heard_without_a_connection() {
    flight!(flight, stage);
    flight.carry_out(Action::Enter(vec![0]));
    assert!(poll!(Box::pin(flight.next_event())).is_pending());
    let (_, created, listed) = entering(&stage).await;
    stage.nodes.connection_is(Connection::Disconnected);
    settle().await;
    created.send(Err(unknown())).unwrap();
    listed.send(Ok(Vec::new())).unwrap();
    let event = tokio::time::timeout(SECOND, flight.next_event()).await;
    assert_eq!(event.unwrap().unwrap(), Event::EnterUnknown);
}

/// The node that stays would be in the way of its own attempt.
#[tokio::test(start_paused = true)]
async fn withdrawal_that_is_refused_ends_the_attempt() {
    flight!(flight, stage);
    let name = "n".to_owned();
    flight.cleanup_guard.set(0, Made::Node(name.clone()));
    flight.carry_out(Action::Withdraw(vec![(0, name)]));
    let Asked::Delete(_, deleted) = stage.asked().await else {
        panic!("no delete");
    };
    deleted.send(Err(NodesError::NoAuth)).unwrap();
    let event = tokio::time::timeout(SECOND, flight.next_event()).await;
    let refused = event.unwrap();
    assert!(
        matches!(refused, Err(AcquireError::NotAuthorized { .. })),
        "{refused:?}"
    );
}

/// Whoever follows a node that was alone may be granted without a listing.
#[tokio::test(start_paused = true)]
async fn node_was_alone_if_its_listing_had_no_other() {
    for others in [vec![], vec!["m".to_owned()]] {
        flight!(flight, stage);
        flight.carry_out(Action::Enter(vec![0]));
        assert!(poll!(Box::pin(flight.next_event())).is_pending());
        let (new, created, listed) = entering(&stage).await;
        let path = format!("{}0000000001", new.path);
        let name = path.rsplit_once('/').unwrap().1.to_owned();
        let was_alone = others.is_empty();
        listed.send(Ok([others, vec![name]].concat())).unwrap();
        let czxid = Some(5);
        created.send(Ok(Created { path, czxid })).unwrap();
        let event = flight.next_event().await.unwrap();
        assert!(matches!(event, Event::Entered(_)), "{event:?}");
        assert_eq!(flight.own_nodes[0].was_alone, was_alone);
    }
}

#[tokio::test(start_paused = true)]
async fn permit_beyond_a_number_that_was_lowered_is_in_doubt() {
    let stage = Stage::new().await;
    let nodes = stage.epoch.nodes().unwrap();
    let (set, permits) = tokio::sync::watch::channel(3);
    let targets = targets(&stage, &["/a"]);
    let targets = targets.into_iter().map(|it| Target {
        permits: Some(permits.clone()),
        ..it
    });
    let targets: Vec<_> = targets.collect();
    let leftovers = Arc::new(Leftovers::new([Arc::from("/a")]));
    let mut flight = InFlight::new(&stage.session, &stage.epoch, &nodes, &targets, leftovers);
    flight.carry_out(Action::HeedPermits(3));
    for (permits, doubt) in [
        (3, None),
        (4, None),
        (2, Some(Event::Permits(2))),
        (3, None),
    ] {
        set.send(permits).unwrap();
        assert_eq!(flight.doubt(&granted(5)), doubt);
    }
}
