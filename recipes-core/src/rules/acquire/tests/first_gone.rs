//! A store may report that a deleted node was the first. Then what is left ahead is between the two.

use super::*;

fn watches(ahead: &[u32]) -> [Action; 2] {
    [Action::WatchOwn(0), Action::Watch(0, names(ahead))]
}

#[test]
fn who_hears_that_the_one_before_the_nearest_was_first_waits_for_the_nearest_only() {
    let mut acquire = waiting(&[1, 2, 3]);
    assert_eq!(acquire.step(Event::FirstGone(0, name(2))), watches(&[3]));
    assert_eq!(
        acquire.step(Event::BlockerGone(0, name(3))),
        [Action::Grant(vec![granted_node(5)])]
    );
}

#[test]
fn who_hears_that_the_nearest_was_first_has_nobody_ahead() {
    // The deletion of the other one has not arrived yet.
    let mut acquire = waiting(&[1, 2, 3]);
    assert_eq!(
        acquire.step(Event::FirstGone(0, name(3))),
        [Action::Grant(vec![granted_node(5)])]
    );
    assert_eq!(acquire.step(Event::BlockerGone(0, name(2))), []);
}

#[test]
fn first_that_is_gone_is_no_grant_while_our_own_node_is_not_watched() {
    let mut acquire = waiting(&[1, 2, 3]);
    acquire.step(Event::FirstGone(0, name(2)));
    assert_eq!(acquire.step(Event::OwnChanged(0)), [Action::WatchOwn(0)]);
    assert_eq!(
        acquire.step(Event::FirstGone(0, name(3))),
        [Action::List(0)]
    );
}

#[test]
fn first_that_had_no_uuid_may_have_been_another() {
    let stranger = "x-lock-0000000002".to_owned();
    let children = [names(&[1]), vec![stranger.clone()], names(&[3, 5])].concat();
    let mut acquire = started(1, Patience::Wait);
    acquire.step(Event::Entered(vec![Entry {
        node: node(5),
        children: Some(children),
    }]));
    acquire.step(Event::OwnWatched(0));
    assert_eq!(
        acquire.step(Event::FirstGone(0, stranger)),
        [Action::List(0)]
    );
}

#[test]
fn writer_lists_whoever_was_first() {
    let writer = |sequence: u32| {
        let mutex = name(sequence);
        mutex.replace("-lock-", "-__WRIT__")
    };
    let all = [1, 2, 3, 5].map(writer).to_vec();
    let mut acquire = AcquireMachine::new([(LockKind::Write, Place::Tail)], Patience::Wait);
    acquire.step(Event::SessionStarted(1));
    acquire.step(Event::Entered(vec![Entry {
        node: Node {
            name: writer(5),
            czxid: Some(5),
        },
        children: Some(all),
    }]));
    acquire.step(Event::OwnWatched(0));
    // It may have put a reader in its own place.
    assert_eq!(
        acquire.step(Event::FirstGone(0, writer(2))),
        [Action::List(0)]
    );
}
