//! The state machine alone: every event is made up, nothing is sent.

use super::*;

mod creates;
mod first_gone;
mod mixed;
mod permits;
mod reconnects;
mod sets;
mod two_ahead;

const SESSION: i64 = 77;

fn node(sequence: u32) -> Node {
    Node {
        name: name(sequence),
        czxid: Some(i64::from(sequence) + 100),
    }
}

fn granted_node(sequence: u32) -> GrantedNode {
    GrantedNode {
        name: name(sequence),
        czxid: i64::from(sequence) + 100,
    }
}

fn name(sequence: u32) -> String {
    format!("_c_00000000-0000-4000-8000-{sequence:012}-lock-{sequence:010}")
}

fn names(sequences: &[u32]) -> Vec<String> {
    sequences.iter().copied().map(name).collect()
}

fn entry(own: u32, children: &[u32]) -> Entry {
    Entry {
        node: node(own),
        children: Some(names(children)),
    }
}

/// An entry whose reply did not tell the number of its transaction.
fn unnumbered(own: u32, children: &[u32]) -> Entry {
    let mut entry = entry(own, children);
    entry.node.czxid = None;
    entry
}

fn found(sequence: u32, owner: i64) -> Found {
    Found {
        name: name(sequence),
        owner,
        czxid: i64::from(sequence) + 100,
    }
}

/// An attempt for this many mutexes that has sent its first request.
fn started(members: usize, patience: Patience) -> AcquireMachine {
    let mut acquire = AcquireMachine::new(vec![(LockKind::Mutex, Place::Tail); members], patience);
    let first = acquire.step(Event::SessionStarted(SESSION));
    let all = (0..members).collect();
    assert_eq!(
        first,
        [if patience == Patience::Try {
            Action::Probe
        } else {
            Action::Enter(all)
        }]
    );
    acquire
}

/// A contender with node 5 that waits for the given nodes.
fn waiting(ahead: &[u32]) -> AcquireMachine {
    let mut acquire = started(1, Patience::Wait);
    let actions = acquire.step(Event::Entered(vec![entry(5, &[ahead, &[5]].concat())]));
    let nearest_two = names(ahead.get(ahead.len().saturating_sub(2)..).unwrap_or(ahead));
    assert_eq!(
        actions,
        [Action::WatchOwn(0), Action::Watch(0, nearest_two)]
    );
    assert_eq!(acquire.step(Event::OwnWatched(0)), []);
    acquire
}

#[test]
fn an_empty_directory_grants_in_one_round_trip() {
    let mut acquire = started(1, Patience::Wait);
    let actions = acquire.step(Event::Entered(vec![entry(0, &[0])]));
    assert_eq!(actions, [Action::Grant(vec![granted_node(0)])]);
}

#[test]
fn a_listing_that_was_lost_is_asked_for_again() {
    let mut acquire = started(1, Patience::Wait);
    let entered = Event::Entered(vec![Entry {
        node: node(0),
        children: None,
    }]);
    assert_eq!(acquire.step(entered), [Action::List(0)]);
    assert_eq!(
        acquire.step(Event::Listed(0, names(&[0]))),
        [Action::Grant(vec![granted_node(0)])]
    );
}

#[test]
fn a_grant_needs_our_node_in_the_listing() {
    let mut acquire = started(1, Patience::Wait);
    let actions = acquire.step(Event::Entered(vec![entry(5, &[])]));
    assert_eq!(actions, [Action::Gone(0), Action::Enter(vec![0])]);
}

#[test]
fn the_deletion_of_the_only_node_ahead_is_the_grant() {
    let mut acquire = waiting(&[3]);
    assert_eq!(
        acquire.step(Event::BlockerGone(0, name(3))),
        [Action::Grant(vec![granted_node(5)])]
    );
}

#[test]
fn the_deletion_of_the_nearest_of_several_nodes_ahead_only_lists_again() {
    let mut acquire = waiting(&[1, 2, 3]);
    assert_eq!(
        acquire.step(Event::BlockerGone(0, name(3))),
        [Action::List(0)]
    );
    let actions = acquire.step(Event::Listed(0, names(&[2, 5])));
    assert_eq!(
        actions,
        [Action::WatchOwn(0), Action::Watch(0, names(&[2]))]
    );
}

#[test]
fn the_deletion_before_the_nearest_prepares_the_hand_off() {
    let mut acquire = waiting(&[1, 2, 3]);
    assert_eq!(
        acquire.step(Event::BlockerGone(0, name(2))),
        [Action::List(0)]
    );
    let actions = acquire.step(Event::Listed(0, names(&[3, 5])));
    assert_eq!(
        actions,
        [Action::WatchOwn(0), Action::Watch(0, names(&[3]))]
    );
    assert_eq!(
        acquire.step(Event::BlockerGone(0, name(3))),
        [Action::Grant(vec![granted_node(5)])]
    );
}

#[test]
fn a_deletion_seen_while_a_listing_is_under_way_counts_for_it() {
    let mut acquire = waiting(&[1, 2, 3]);
    assert_eq!(
        acquire.step(Event::BlockerGone(0, name(2))),
        [Action::List(0)]
    );
    assert_eq!(acquire.step(Event::BlockerGone(0, name(3))), []);
    // The listing is older than the second deletion.
    let actions = acquire.step(Event::Listed(0, names(&[3, 5])));
    assert_eq!(actions, [Action::Grant(vec![granted_node(5)])]);
}

#[test]
fn an_old_listing_that_shows_more_ahead_than_is_gone_does_not_grant() {
    let mut acquire = waiting(&[1, 2, 3]);
    assert_eq!(
        acquire.step(Event::BlockerGone(0, name(3))),
        [Action::List(0)]
    );
    // A replica that has not applied the deletion of 3 answers.
    assert_eq!(
        acquire.step(Event::Listed(0, names(&[1, 2, 3, 5]))),
        [Action::List(0)]
    );
    let actions = acquire.step(Event::Listed(0, names(&[1, 2, 5])));
    assert_eq!(
        actions,
        [Action::WatchOwn(0), Action::Watch(0, names(&[1, 2]))]
    );
}

#[test]
fn changed_data_of_the_node_ahead_is_no_deletion() {
    let mut acquire = waiting(&[3]);
    let actions = acquire.step(Event::BlockerChanged);
    assert_eq!(
        actions,
        [Action::WatchOwn(0), Action::Watch(0, names(&[3]))]
    );
}

#[test]
fn events_about_nodes_that_nobody_waits_for_change_nothing() {
    let mut acquire = waiting(&[3]);
    let before = acquire.clone();
    assert_eq!(acquire.step(Event::BlockerGone(0, name(4))), []);
    assert_eq!(acquire.step(Event::BlockerGone(9, name(3))), []);
    assert_eq!(acquire.step(Event::Listed(0, names(&[5]))), []);
    assert_eq!(acquire, before);
}

#[test]
fn a_waiter_whose_node_is_removed_joins_again_at_the_tail() {
    let mut acquire = waiting(&[3]);
    assert_eq!(
        acquire.step(Event::OwnGone(0)),
        [Action::Gone(0), Action::Enter(vec![0])]
    );
    let actions = acquire.step(Event::Entered(vec![entry(6, &[3, 6])]));
    assert_eq!(
        actions,
        [Action::WatchOwn(0), Action::Watch(0, names(&[3]))]
    );
}

#[test]
fn a_place_that_was_lost_is_not_taken_by_a_late_deletion() {
    let mut acquire = waiting(&[3]);
    assert_eq!(
        acquire.step(Event::OwnGone(0)),
        [Action::Gone(0), Action::Enter(vec![0])]
    );
    assert_eq!(acquire.step(Event::BlockerGone(0, name(3))), []);
}

#[test]
fn a_new_session_starts_over_and_forgets_the_old_node() {
    let mut acquire = waiting(&[3]);
    assert_eq!(
        acquire.step(Event::SessionStarted(78)),
        [Action::Enter(vec![0])]
    );
    assert_eq!(acquire.step(Event::BlockerGone(0, name(3))), []);
}

#[test]
fn a_grant_without_a_token_asks_for_it_first() {
    let mut acquire = started(1, Patience::Wait);
    let entered = Event::Entered(vec![unnumbered(0, &[0])]);
    assert_eq!(acquire.step(entered), [Action::Stat(0)]);
    let stated = Event::Stated(0, Some(found(0, SESSION)));
    assert_eq!(acquire.step(stated), [Action::Grant(vec![granted_node(0)])]);
}

#[test]
fn a_try_that_finds_the_lock_busy_creates_nothing() {
    let mut acquire = started(1, Patience::Try);
    assert_eq!(
        acquire.step(Event::Probed(vec![names(&[3])])),
        [Action::Busy]
    );
}

#[test]
fn a_try_that_loses_the_race_deletes_its_node() {
    let mut acquire = started(1, Patience::Try);
    assert_eq!(
        acquire.step(Event::Probed(vec![vec![]])),
        [Action::Enter(vec![0])]
    );
    let actions = acquire.step(Event::Entered(vec![entry(5, &[4, 5])]));
    assert_eq!(
        actions,
        [Action::Withdraw(vec![(0, name(5))]), Action::Busy]
    );
}

const BESIDE: (LockKind, Place) = (LockKind::Read, Place::Beside { session: SESSION });

#[test]
fn a_reader_beside_its_writer_is_admitted_without_a_listing() {
    for patience in [Patience::Wait, Patience::Try] {
        let mut acquire = AcquireMachine::new([BESIDE], patience);
        let entered = acquire.step(Event::SessionStarted(SESSION));
        assert_eq!(entered, [Action::Enter(vec![0])]);
        let beside = Event::Entered(vec![Entry {
            node: node(5),
            children: None,
        }]);
        assert_eq!(acquire.step(beside), [Action::Grant(vec![granted_node(5)])]);
    }
}

#[test]
fn a_reader_beside_its_writer_that_is_found_again_is_admitted() {
    let mut acquire = AcquireMachine::new([BESIDE], Patience::Wait);
    acquire.step(Event::SessionStarted(SESSION));
    assert_eq!(acquire.step(Event::EnterUnknown), [Action::Search(vec![0])]);
    let actions = acquire.step(Event::Searched(vec![vec![found(5, SESSION)]]));
    let granted = Action::Grant(vec![granted_node(5)]);
    assert_eq!(actions, [Action::Adopt(0, name(5)), granted]);
}

#[test]
fn a_reader_whose_writer_is_gone_fails() {
    let gone = [Action::Fail(Failure::WriterGone { member: 0 })];
    let mut acquire = AcquireMachine::new([BESIDE], Patience::Wait);
    acquire.step(Event::SessionStarted(SESSION));
    assert_eq!(acquire.step(Event::WriterGone(0)), gone);
    // In another session the writer's node is not ours any more.
    let mut acquire = AcquireMachine::new([BESIDE], Patience::Wait);
    assert_eq!(acquire.step(Event::SessionStarted(SESSION + 1)), gone);
}

#[test]
fn a_deletion_grants_nothing_while_our_own_node_is_not_watched() {
    let mut acquire = waiting(&[3]);
    // A revocation request has used up the watch.
    assert_eq!(acquire.step(Event::OwnChanged(0)), [Action::WatchOwn(0)]);
    assert_eq!(
        acquire.step(Event::BlockerGone(0, name(3))),
        [Action::List(0)]
    );
    // Our node was deleted too, unnoticed.
    assert_eq!(
        acquire.step(Event::Listed(0, names(&[6]))),
        [Action::Gone(0), Action::Enter(vec![0])]
    );
}

#[test]
fn a_stranger_that_is_made_again_still_blocks() {
    let stranger = "-stranger".to_owned();
    let mut acquire = started(1, Patience::Wait);
    let children = [vec![stranger.clone()], names(&[3, 5])].concat();
    let entered = Entry {
        node: node(5),
        children: Some(children.clone()),
    };
    acquire.step(Event::Entered(vec![entered]));
    acquire.step(Event::OwnWatched(0));
    let gone = Event::BlockerGone(0, stranger.clone());
    assert_eq!(acquire.step(gone), [Action::List(0)]);
    let actions = acquire.step(Event::Listed(
        0,
        [vec![stranger.clone()], names(&[5])].concat(),
    ));
    let watch = Action::Watch(0, vec![stranger]);
    assert_eq!(actions, [Action::WatchOwn(0), watch]);
}

/// The stranger's deletion may be older than the listing that shows it again.
#[test]
fn the_deletion_of_a_stranger_only_lists_again() {
    let stranger = "-stranger".to_owned();
    let mut acquire = started(1, Patience::Wait);
    let entered = Entry {
        node: node(5),
        children: Some([vec![stranger.clone()], names(&[5])].concat()),
    };
    acquire.step(Event::Entered(vec![entered]));
    acquire.step(Event::OwnWatched(0));
    let gone = Event::BlockerGone(0, stranger);
    assert_eq!(acquire.step(gone), [Action::List(0)]);
    assert_eq!(
        acquire.step(Event::Listed(0, names(&[5]))),
        [Action::Grant(vec![granted_node(5)])]
    );
}
