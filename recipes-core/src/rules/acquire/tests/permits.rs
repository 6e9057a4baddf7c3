//! The leases of a semaphore, behind its mutex.

use super::*;
use crate::rules::delay::Awaited;

fn lease_name(sequence: u32) -> String {
    name(sequence).replace("-lock-", "-lease-")
}

fn lease_names(sequences: &[u32]) -> Vec<String> {
    sequences.iter().copied().map(lease_name).collect()
}

fn lease(own: u32, children: &[u32]) -> Entry {
    Entry {
        node: Node {
            name: lease_name(own),
            ..node(own)
        },
        children: Some(lease_names(children)),
    }
}

/// A grant of the mutex, which has node 1, and of these leases.
fn granted(leases: &[u32]) -> Action {
    let leases = leases.iter().map(|it| GrantedNode {
        name: lease_name(*it),
        ..granted_node(*it)
    });
    Action::Grant([granted_node(1)].into_iter().chain(leases).collect())
}

/// Watches the nodes of a contender with the mutex and so many leases, and these leases of others,
/// the nearest last.
fn watches(leases: usize, ahead: &[u32]) -> Vec<Action> {
    let own = (0..=leases).map(Action::WatchOwn);
    own.chain([Action::Watch(1, lease_names(ahead))]).collect()
}

fn gone(sequence: u32) -> Event {
    Event::BlockerGone(1, lease_name(sequence))
}

/// An attempt for the mutex and so many leases of a semaphore.
fn attempt(leases: usize, permits: usize, patience: Patience) -> AcquireMachine {
    let mutex = (LockKind::Mutex, Place::Tail);
    let leases = std::iter::repeat_n((LockKind::Permit, Place::Tail), leases);
    AcquireMachine::new([mutex].into_iter().chain(leases), patience).with_permits(permits)
}

/// One that has sent its first request.
fn begun(leases: usize, permits: usize) -> AcquireMachine {
    let mut acquire = attempt(leases, permits, Patience::Wait);
    assert_eq!(
        acquire.step(Event::SessionStarted(SESSION)),
        [
            Action::HeedPermits(permits),
            Action::Enter((0..=leases).collect())
        ]
    );
    acquire
}

/// A contender with the mutex and these leases, which waits for leases of others.
fn awaits(own: &[u32], permits: usize, ahead: &[u32]) -> AcquireMachine {
    let mut acquire = begun(own.len(), permits);
    let children = [ahead, own].concat();
    let leases = own.iter().map(|it| lease(*it, &children));
    let entries = [entry(1, &[1])].into_iter().chain(leases).collect();
    assert_eq!(
        acquire.step(Event::Entered(entries)),
        watches(own.len(), ahead)
    );
    for member in 0..=own.len() {
        assert_eq!(acquire.step(Event::OwnWatched(member)), []);
    }
    acquire
}

#[test]
fn a_free_permit_is_granted_with_its_creation() {
    let mut acquire = begun(1, 3);
    let entries = vec![entry(1, &[1]), lease(7, &[5, 6, 7])];
    assert_eq!(acquire.step(Event::Entered(entries)), [granted(&[7])]);
}

#[test]
fn a_contender_without_the_mutex_takes_its_leases_back() {
    let mut acquire = begun(2, 3);
    let entries = vec![entry(1, &[0, 1]), lease(7, &[7, 8]), lease(8, &[7, 8])];
    assert_eq!(
        acquire.step(Event::Entered(entries)),
        [
            Action::Withdraw(vec![(1, lease_name(7)), (2, lease_name(8))]),
            Action::WatchOwn(0),
            Action::Watch(0, names(&[0])),
        ]
    );
    acquire.step(Event::OwnWatched(0));
    // Once it has the mutex, it makes them anew.
    assert_eq!(
        acquire.step(Event::BlockerGone(0, name(0))),
        [Action::Enter(vec![1, 2])]
    );
    let entries = vec![lease(9, &[9, 10]), lease(10, &[9, 10])];
    assert_eq!(acquire.step(Event::Entered(entries)), [granted(&[9, 10])]);
}

#[test]
fn any_release_lets_in_who_waits_for_one_permit() {
    for released in [3, 4, 5, 6] {
        let mut acquire = awaits(&[7], 4, &[3, 4, 5, 6]);
        assert_eq!(acquire.step(gone(released)), [granted(&[7])]);
    }
}

#[test]
fn releases_that_leave_too_many_ahead_let_nobody_in() {
    // The number of permits was lowered while four were held.
    let mut acquire = awaits(&[7], 2, &[3, 4, 5, 6]);
    assert_eq!(acquire.step(gone(4)), watches(1, &[3, 5, 6]));
    assert_eq!(acquire.step(gone(6)), watches(1, &[3, 5]));
    assert_eq!(acquire.step(gone(3)), [granted(&[7])]);
}

#[test]
fn many_permits_are_granted_with_the_last_release_that_they_need() {
    // One of three is free, and all three are wanted.
    let mut acquire = awaits(&[7, 8, 9], 3, &[5, 6]);
    assert_eq!(acquire.step(gone(6)), watches(3, &[5]));
    assert_eq!(acquire.step(gone(5)), [granted(&[7, 8, 9])]);
}

#[test]
fn a_release_counts_for_the_listing_that_is_under_way() {
    let mut acquire = awaits(&[7], 3, &[3, 4, 5]);
    assert_eq!(
        acquire.step(Event::Permits(2)),
        [Action::HeedPermits(2), Action::List(1)]
    );
    assert_eq!(acquire.step(gone(4)), []);
    assert_eq!(acquire.step(gone(3)), []);
    // The listing is older than both.
    let listed = Event::Listed(1, lease_names(&[3, 4, 5, 7]));
    assert_eq!(acquire.step(listed), [granted(&[7])]);
}

#[test]
fn a_higher_number_lets_in_at_once() {
    let mut acquire = awaits(&[7], 2, &[5, 6]);
    assert_eq!(
        acquire.step(Event::Permits(3)),
        [Action::HeedPermits(3), Action::List(1)]
    );
    let listed = Event::Listed(1, lease_names(&[5, 6, 7]));
    assert_eq!(acquire.step(listed), [granted(&[7])]);
}

#[test]
fn a_lower_number_counts_for_the_leases_that_have_room_already() {
    let mut acquire = awaits(&[7, 8], 3, &[5, 6]);
    assert_eq!(
        acquire.step(Event::Permits(2)),
        [Action::HeedPermits(2), Action::List(1)]
    );
    let children = lease_names(&[5, 6, 7, 8]);
    assert_eq!(
        acquire.step(Event::Listed(1, children)),
        watches(2, &[5, 6])
    );
    assert_eq!(acquire.step(gone(5)), watches(2, &[6]));
    assert_eq!(acquire.step(gone(6)), [granted(&[7, 8])]);
}

/// The withdrawal of the mutex and of two leases.
fn withdrawn() -> Action {
    Action::Withdraw(vec![(0, name(1)), (1, lease_name(7)), (2, lease_name(8))])
}

#[test]
fn who_wants_more_than_there_are_leaves_the_queue_until_there_are_enough() {
    let mut acquire = awaits(&[7, 8], 3, &[5, 6]);
    assert_eq!(
        acquire.step(Event::Permits(1)),
        [Action::HeedPermits(1), withdrawn()]
    );
    assert_eq!(acquire.awaited(), Awaited::Permits);
    // Nothing that is still under way brings it back.
    for late in [
        gone(5),
        Event::OwnGone(1),
        Event::Listed(1, lease_names(&[5, 6])),
        Event::Reconnected { forgot: false },
        Event::Permits(0),
    ] {
        let actions = acquire.step(late);
        assert!(
            actions
                .iter()
                .all(|it| matches!(it, Action::HeedPermits(_)))
        );
    }
    assert_eq!(
        acquire.step(Event::Permits(2)),
        [Action::HeedPermits(2), Action::Enter(vec![0, 1, 2])]
    );
    let entries = vec![entry(1, &[1]), lease(9, &[9, 10]), lease(10, &[9, 10])];
    assert_eq!(acquire.step(Event::Entered(entries)), [granted(&[9, 10])]);
}

#[test]
fn who_wants_more_than_there_are_leaves_the_queue_once_its_nodes_are_known() {
    let mut acquire = begun(2, 2);
    assert_eq!(acquire.step(Event::Permits(1)), [Action::HeedPermits(1)]);
    let entries = vec![entry(1, &[1]), lease(7, &[7, 8]), lease(8, &[7, 8])];
    assert_eq!(acquire.step(Event::Entered(entries)), [withdrawn()]);
    // Also in a session that begins when there are too few.
    assert_eq!(
        acquire.step(Event::SessionStarted(SESSION + 1)),
        [Action::HeedPermits(1)]
    );
}

#[test]
fn who_was_granted_more_than_there_are_left_takes_them_back() {
    let mut acquire = begun(2, 2);
    let entries = vec![entry(1, &[1]), lease(7, &[7, 8]), lease(8, &[7, 8])];
    assert_eq!(acquire.step(Event::Entered(entries)), [granted(&[7, 8])]);
    // The last look before the grant finds it.
    assert_eq!(
        acquire.step(Event::Permits(1)),
        [Action::HeedPermits(1), withdrawn()]
    );
}

#[test]
fn a_try_for_more_than_there_are_is_busy() {
    let mut acquire = attempt(2, 1, Patience::Try);
    assert_eq!(
        acquire.step(Event::SessionStarted(SESSION)),
        [Action::HeedPermits(1), Action::Busy]
    );
}

#[test]
fn who_loses_the_mutex_while_it_waits_takes_its_leases_back() {
    let mut acquire = awaits(&[7, 8], 2, &[5, 6]);
    assert_eq!(
        acquire.step(Event::OwnGone(0)),
        [
            Action::Gone(0),
            Action::Withdraw(vec![(1, lease_name(7)), (2, lease_name(8))]),
            Action::Enter(vec![0, 1, 2]),
        ]
    );
}

#[test]
fn who_loses_a_lease_while_it_waits_makes_the_later_ones_anew() {
    let mut acquire = awaits(&[7, 8], 2, &[5, 6]);
    assert_eq!(
        acquire.step(Event::OwnGone(1)),
        [
            Action::Gone(1),
            Action::Withdraw(vec![(2, lease_name(8))]),
            Action::Enter(vec![1, 2]),
        ]
    );
}

#[test]
fn a_release_is_no_grant_while_our_own_nodes_are_not_watched() {
    let mut acquire = awaits(&[7], 1, &[6]);
    // Somebody wrote to the mutex's node, which used up its watch.
    assert_eq!(acquire.step(Event::OwnChanged(0)), [Action::WatchOwn(0)]);
    assert_eq!(acquire.step(gone(6)), [Action::List(0), Action::List(1)]);
    assert_eq!(acquire.step(Event::Listed(0, names(&[1]))), []);
    let listed = Event::Listed(1, lease_names(&[7]));
    assert_eq!(acquire.step(listed), [granted(&[7])]);
}

#[test]
fn a_try_makes_nodes_only_if_as_many_permits_are_free_as_it_wants() {
    for (held, next) in [
        (&[5][..], Action::Enter(vec![0, 1, 2])),
        (&[5, 6], Action::Busy),
    ] {
        let mut acquire = attempt(2, 3, Patience::Try);
        assert_eq!(
            acquire.step(Event::SessionStarted(SESSION)),
            [Action::HeedPermits(3), Action::Probe]
        );
        let listings = vec![vec![], lease_names(held), vec![]];
        assert_eq!(acquire.step(Event::Probed(listings)), [next]);
    }
}

#[test]
fn a_try_beside_who_waits_for_permits_is_busy() {
    let mut acquire = attempt(1, 3, Patience::Try);
    acquire.step(Event::SessionStarted(SESSION));
    let listings = vec![names(&[0]), lease_names(&[5])];
    assert_eq!(acquire.step(Event::Probed(listings)), [Action::Busy]);
}

#[test]
fn a_try_that_finds_too_many_ahead_takes_all_its_nodes_back() {
    let mut acquire = attempt(1, 1, Patience::Try);
    acquire.step(Event::SessionStarted(SESSION));
    acquire.step(Event::Probed(vec![vec![], vec![]]));
    let entries = vec![entry(1, &[1]), lease(7, &[6, 7])];
    assert_eq!(
        acquire.step(Event::Entered(entries)),
        [
            Action::Withdraw(vec![(0, name(1)), (1, lease_name(7))]),
            Action::Busy,
        ]
    );
}

#[test]
fn a_lower_number_counts_for_leases_whose_tokens_are_still_read() {
    let mut acquire = begun(1, 3);
    let mut unnumbered_lease = lease(7, &[5, 6, 7]);
    unnumbered_lease.node.czxid = None;
    let entries = vec![unnumbered(1, &[1]), unnumbered_lease];
    assert_eq!(
        acquire.step(Event::Entered(entries)),
        [Action::Stat(0), Action::Stat(1)]
    );
    assert_eq!(
        acquire.step(Event::Permits(2)),
        [Action::HeedPermits(2), Action::List(1)]
    );
    acquire.step(Event::Stated(0, Some(found(1, SESSION))));
    let lease = Found {
        name: lease_name(7),
        ..found(7, SESSION)
    };
    assert_eq!(acquire.step(Event::Stated(1, Some(lease))), []);
    let listed = Event::Listed(1, lease_names(&[5, 6, 7]));
    assert_eq!(acquire.step(listed), watches(1, &[5, 6]));
}

#[test]
fn leases_are_listed_once_for_all() {
    let mut acquire = begun(3, 3);
    let leases = [7, 8, 9].map(|own| Entry {
        children: None,
        ..lease(own, &[])
    });
    let entries = [entry(1, &[1])].into_iter().chain(leases).collect();
    assert_eq!(acquire.step(Event::Entered(entries)), [Action::List(1)]);
    let listed = Event::Listed(1, lease_names(&[7, 8, 9]));
    // The mutex was listed earlier, and is not watched.
    assert_eq!(acquire.step(listed), [Action::List(0), Action::List(1)]);
    acquire.step(Event::Listed(0, names(&[1])));
    let listed = Event::Listed(1, lease_names(&[7, 8, 9]));
    assert_eq!(acquire.step(listed), [granted(&[7, 8, 9])]);
}

#[test]
fn the_last_lease_decides_for_all() {
    let mut acquire = begun(2, 3);
    let mut leases = [lease(7, &[5, 6, 7, 8]), lease(8, &[])];
    // Of several listings, only the first one is sent.
    leases[1].children = None;
    let entries = [entry(1, &[1])].into_iter().chain(leases).collect();
    assert_eq!(acquire.step(Event::Entered(entries)), watches(2, &[5, 6]));
    // One that is not there is made again, whatever the last one finds.
    acquire.step(Event::OwnWatched(0));
    acquire.step(Event::Permits(2));
    assert_eq!(
        acquire.step(Event::Listed(1, lease_names(&[5, 6, 8]))),
        [
            Action::Gone(1),
            Action::Withdraw(vec![(2, lease_name(8))]),
            Action::Enter(vec![1, 2]),
        ]
    );
}

#[test]
fn who_wants_many_waits_for_others_and_not_for_its_own_leases() {
    let acquire = awaits(&[7, 8, 9], 3, &[5, 6]);
    let node = lease_name(6);
    let ahead = Ahead { member: 3, node };
    assert_eq!(acquire.awaited(), Awaited::Contender(ahead));
}

/// The number behind a node does not follow from the place of its member: an operator may have
/// deleted nodes before a search found the others.
#[test]
fn the_lease_with_the_highest_number_decides_wherever_it_stands() {
    let mut acquire = begun(2, 2);
    let entries = vec![entry(1, &[1]), lease(9, &[3, 8, 9]), lease(3, &[3, 8, 9])];
    assert_eq!(acquire.step(Event::Entered(entries)), watches(2, &[8]));
}

#[test]
fn a_lease_that_is_gone_is_made_again_though_a_later_one_is_there() {
    let mut acquire = begun(2, 5);
    let entries = vec![entry(1, &[1]), lease(4, &[5]), lease(5, &[5])];
    let actions = acquire.step(Event::Entered(entries));
    assert!(actions.contains(&Action::Gone(1)), "{actions:?}");
    let is_grant = |it: &Action| matches!(it, Action::Grant(_));
    assert!(!actions.iter().any(is_grant), "{actions:?}");
}
