//! A contender that joins with exactly two ahead knows all that is ahead, so only their deletions
//! matter.

use super::*;
use crate::rules::delay::Awaited;

fn watches(ahead: &[u32]) -> [Action; 2] {
    [Action::WatchOwn(0), Action::Watch(0, names(ahead))]
}

#[test]
fn the_earlier_of_two_goes_without_another_listing() {
    let mut acquire = waiting(&[2, 3]);
    assert_eq!(acquire.step(Event::BlockerGone(0, name(2))), watches(&[3]));
    assert_eq!(
        acquire.step(Event::BlockerGone(0, name(3))),
        [Action::Grant(vec![granted_node(5)])]
    );
}

#[test]
fn the_later_of_two_gives_up_without_another_listing() {
    let mut acquire = waiting(&[2, 3]);
    assert_eq!(acquire.step(Event::BlockerGone(0, name(3))), watches(&[2]));
    assert_eq!(
        acquire.step(Event::BlockerGone(0, name(2))),
        [Action::Grant(vec![granted_node(5)])]
    );
}

#[test]
fn the_same_deletion_twice_counts_once() {
    let mut acquire = waiting(&[2, 3]);
    acquire.step(Event::BlockerGone(0, name(2)));
    assert_eq!(acquire.step(Event::BlockerGone(0, name(2))), []);
}

#[test]
fn the_contender_that_stays_ahead_is_the_one_that_is_reported() {
    let mut acquire = waiting(&[2, 3]);
    acquire.step(Event::BlockerGone(0, name(3)));
    let ahead = Ahead {
        member: 0,
        node: name(2),
    };
    assert_eq!(acquire.awaited(), Awaited::Contender(ahead));
}

#[test]
fn the_last_deletion_grants_nothing_while_our_own_node_is_not_watched() {
    let mut acquire = waiting(&[2, 3]);
    assert_eq!(acquire.step(Event::OwnChanged(0)), [Action::WatchOwn(0)]);
    // This is no grant, so it counts.
    assert_eq!(acquire.step(Event::BlockerGone(0, name(2))), watches(&[3]));
    assert_eq!(
        acquire.step(Event::BlockerGone(0, name(3))),
        [Action::List(0)]
    );
}

#[test]
fn a_deletion_that_is_heard_over_a_new_connection_counts_but_grants_nothing() {
    let mut acquire = waiting(&[2, 3]);
    assert_eq!(
        acquire.step(Event::Reconnected { forgot: false }),
        watches(&[2, 3])
    );
    assert_eq!(acquire.step(Event::BlockerGone(0, name(2))), watches(&[3]));
    // Our own node has not been verified.
    let mut unverified = acquire.clone();
    assert_eq!(
        unverified.step(Event::BlockerGone(0, name(3))),
        [Action::List(0)]
    );
    acquire.step(Event::OwnWatched(0));
    assert_eq!(
        acquire.step(Event::BlockerGone(0, name(3))),
        [Action::Grant(vec![granted_node(5)])]
    );
}

#[test]
fn an_old_listing_that_shows_two_counts_without_those_that_are_gone() {
    let listing = |gone: &[u32]| {
        let mut acquire = waiting(&[1, 2, 3]);
        for gone in gone {
            acquire.step(Event::BlockerGone(0, name(*gone)));
        }
        acquire.step(Event::Listed(0, names(&[2, 3, 5])))
    };
    assert_eq!(listing(&[2]), watches(&[3]));
    assert_eq!(listing(&[3]), watches(&[2]));
    let granted = Action::Grant(vec![granted_node(5)]);
    assert_eq!(listing(&[2, 3]), [granted]);
}

#[test]
fn a_writer_behind_two_lists_after_each() {
    let tail = (LockKind::Write, Place::Tail);
    let mut acquire = AcquireMachine::new([tail], Patience::Wait);
    acquire.step(Event::SessionStarted(SESSION));
    let writer = |sequence| {
        let Node { name, czxid } = node(sequence);
        let name = name.replace("-lock-", "-__WRIT__");
        Node { name, czxid }
    };
    let [first, second, own] = [2, 3, 5].map(writer);
    let children = [&first, &second, &own].map(|it| it.name.clone()).to_vec();
    let entry = Entry {
        node: own,
        children: Some(children),
    };
    acquire.step(Event::Entered(vec![entry]));
    acquire.step(Event::OwnWatched(0));
    // The first may have downgraded, which puts a reader in its place.
    let gone = Event::BlockerGone(0, first.name);
    assert_eq!(acquire.step(gone), [Action::List(0)]);
}

/// A stranger may come back, so only a listing shows that it is gone.
#[test]
fn a_stranger_among_two_is_listed_for_when_it_goes() {
    let stranger = "-stranger".to_owned();
    let mut acquire = started(1, Patience::Wait);
    let entered = Entry {
        node: node(5),
        children: Some([vec![stranger.clone()], names(&[3, 5])].concat()),
    };
    acquire.step(Event::Entered(vec![entered]));
    acquire.step(Event::OwnWatched(0));
    let watches = [
        Action::WatchOwn(0),
        Action::Watch(0, vec![stranger.clone()]),
    ];
    assert_eq!(acquire.step(Event::BlockerGone(0, name(3))), watches);
    let gone = Event::BlockerGone(0, stranger);
    assert_eq!(acquire.step(gone), [Action::List(0)]);
}

#[test]
fn a_set_hears_of_two_ahead_of_one_member_without_another_listing() {
    let mut acquire = started(2, Patience::Wait);
    acquire.step(Event::Entered(vec![entry(0, &[0]), entry(7, &[5, 6, 7])]));
    acquire.step(Event::OwnWatched(0));
    acquire.step(Event::OwnWatched(1));
    let watches = [
        Action::WatchOwn(0),
        Action::WatchOwn(1),
        Action::Watch(1, names(&[6])),
    ];
    assert_eq!(acquire.step(Event::BlockerGone(1, name(5))), watches);
    let granted = [Action::Grant(vec![granted_node(0), granted_node(7)])];
    assert_eq!(acquire.step(Event::BlockerGone(1, name(6))), granted);
}

/// A name without a uuid may come back.
#[test]
fn a_node_that_is_back_is_waited_for_again() {
    let others = || [2, 3].map(|it| format!("lock-000000000{it}"));
    let listing = |others: &[String]| [others, &[name(5)]].concat();
    let mut acquire = started(1, Patience::Wait);
    let (node, children) = (node(5), Some(listing(&others())));
    acquire.step(Event::Entered(vec![Entry { node, children }]));
    acquire.step(Event::OwnWatched(0));
    let [first, second] = others();
    // The listing that is asked for may be of before.
    for gone in [&second, &first] {
        let actions = acquire.step(Event::BlockerGone(0, gone.clone()));
        assert_eq!(actions, [Action::List(0)]);
    }
    let actions = acquire.step(Event::Listed(0, listing(&others()[..1])));
    assert!(
        actions.contains(&Action::Watch(0, vec![first])),
        "{actions:?}"
    );
}
