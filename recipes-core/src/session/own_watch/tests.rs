use super::*;
use crate::scripted::node_watch;
use crate::session::connections::tests::exhaust;

#[tokio::test]
async fn node_is_vouched_for_by_a_watch_and_on_one_connection_only() {
    let (_event, watch) = node_watch();
    let care = Care::new(1, None);
    assert!(care.is_verified(1));
    assert!(!care.vouches(1), "nobody watches");
    care.watch(Some(OwnWatch::new(watch)));
    assert!(care.vouches(1));
    assert!(!care.vouches(2), "not known there");
    care.verified(2);
    assert!(care.vouches(2));
    assert!(!care.vouches(1));
    // An answer that was in flight when that connection broke.
    care.verified(1);
    assert!(care.is_verified(2));
    assert!(!care.is_verified(1));
    care.watch(None);
    assert!(!care.vouches(2));
}

#[tokio::test]
async fn watch_that_has_heard_anything_does_not_vouch() {
    for event in [
        NodeEvent::Deleted,
        NodeEvent::Changed,
        NodeEvent::SessionEnded,
    ] {
        let (tell, watch) = node_watch();
        let care = Care::new(1, Some(OwnWatch::new(watch)));
        assert!(care.vouches(1));
        tell.send(event).unwrap();
        exhaust().await;
        assert!(!care.vouches(1), "{event:?}");
    }
}

#[tokio::test]
async fn all_who_ask_hear_of_it() {
    let (tell, watch) = node_watch();
    let own = OwnWatch::new(watch);
    let (one, other) = (own.event(), own.clone().event());
    tell.send(NodeEvent::Deleted).unwrap();
    assert_eq!(one.await, NodeEvent::Deleted);
    assert_eq!(other.await, NodeEvent::Deleted);
    assert_eq!(own.happened(), Some(NodeEvent::Deleted));
}
