//! The state machine alone: every event is made up, nothing is sent.

use super::*;

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
fn started(members: usize, patience: Patience) -> Acquire {
    let mut acquire = Acquire::new(vec![(LockKind::Mutex, Place::Tail); members], patience);
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
fn waiting(ahead: &[u32]) -> Acquire {
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
    assert_eq!(actions, [Action::Enter(vec![0])]);
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
    let mut acquire = waiting(&[2, 3]);
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
    let mut acquire = waiting(&[2, 3]);
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
    let mut acquire = waiting(&[2, 3]);
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
    assert_eq!(acquire.step(Event::OwnGone(0)), [Action::Enter(vec![0])]);
    let actions = acquire.step(Event::Entered(vec![entry(6, &[3, 6])]));
    assert_eq!(
        actions,
        [Action::WatchOwn(0), Action::Watch(0, names(&[3]))]
    );
}

#[test]
fn a_place_that_was_lost_is_not_taken_by_a_late_deletion() {
    let mut acquire = waiting(&[3]);
    assert_eq!(acquire.step(Event::OwnGone(0)), [Action::Enter(vec![0])]);
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
fn a_create_of_unknown_outcome_is_searched_for_before_another() {
    let mut acquire = started(1, Patience::Wait);
    assert_eq!(acquire.step(Event::EnterUnknown), [Action::Search(vec![0])]);
    let actions = acquire.step(Event::Searched(vec![vec![found(4, SESSION)]]));
    assert_eq!(actions, [Action::Adopt(0, name(4)), Action::List(0)]);
    assert_eq!(
        acquire.step(Event::Listed(0, names(&[4]))),
        [Action::Grant(vec![granted_node(4)])]
    );
}

#[test]
fn a_create_that_was_not_carried_out_is_sent_again() {
    let mut acquire = started(1, Patience::Wait);
    assert_eq!(acquire.step(Event::EnterUnknown), [Action::Search(vec![0])]);
    assert_eq!(
        acquire.step(Event::Searched(vec![vec![]])),
        [Action::Enter(vec![0])]
    );
}

#[test]
fn a_found_node_of_another_session_is_deleted_and_not_held() {
    let mut acquire = started(1, Patience::Wait);
    assert_eq!(acquire.step(Event::EnterUnknown), [Action::Search(vec![0])]);
    let actions = acquire.step(Event::Searched(vec![vec![found(4, 12)]]));
    assert_eq!(
        actions,
        [Action::Withdraw(vec![(0, name(4))]), Action::Enter(vec![0])]
    );
}

#[test]
fn missing_parents_are_made_a_bounded_number_of_times() {
    let mut acquire = started(1, Patience::Wait);
    for _ in 0..PARENTS_MADE_MAX {
        assert_eq!(
            acquire.step(Event::NoParent),
            [Action::MakeParents(vec![0])]
        );
        assert_eq!(acquire.step(Event::ParentsMade), [Action::Enter(vec![0])]);
    }
    let failure = Failure::ParentsVanish { member: 0 };
    assert_eq!(acquire.step(Event::NoParent), [Action::Fail(failure)]);
}

#[test]
fn a_negative_sequence_is_refused() {
    let mut acquire = started(1, Patience::Wait);
    let node = Node {
        name: "_c_x-lock--2147483648".to_owned(),
        czxid: Some(1),
    };
    let entered = Event::Entered(vec![Entry {
        node,
        children: Some(Vec::new()),
    }]);
    let failure = Failure::SequenceExhausted {
        member: 0,
        sequence: i32::MIN,
    };
    assert_eq!(acquire.step(entered), [Action::Fail(failure)]);
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

#[test]
fn a_set_is_granted_when_all_are_admitted() {
    let mut acquire = started(2, Patience::Wait);
    let actions = acquire.step(Event::Entered(vec![entry(0, &[0]), entry(7, &[7])]));
    assert_eq!(
        actions,
        [Action::Grant(vec![granted_node(0), granted_node(7)])]
    );
}

#[test]
fn a_set_waits_for_its_first_busy_member_and_holds_nothing_behind_it() {
    let mut acquire = started(3, Patience::Wait);
    let entries = vec![entry(0, &[0]), entry(7, &[6, 7]), entry(9, &[9])];
    let actions = acquire.step(Event::Entered(entries));
    assert_eq!(
        actions,
        [
            Action::Withdraw(vec![(2, name(9))]),
            Action::WatchOwn(0),
            Action::WatchOwn(1),
            Action::Watch(1, names(&[6])),
        ]
    );
    acquire.step(Event::OwnWatched(0));
    acquire.step(Event::OwnWatched(1));
    // Once member 1 is admitted, the rest enters again.
    assert_eq!(
        acquire.step(Event::BlockerGone(1, name(6))),
        [Action::Enter(vec![2])]
    );
    let actions = acquire.step(Event::Entered(vec![entry(10, &[10])]));
    assert_eq!(
        actions,
        [Action::Grant(vec![
            granted_node(0),
            granted_node(7),
            granted_node(10)
        ])]
    );
}

#[test]
fn a_held_member_that_is_removed_while_another_is_awaited_takes_the_later_ones_down() {
    let mut acquire = started(2, Patience::Wait);
    acquire.step(Event::Entered(vec![entry(0, &[0]), entry(7, &[6, 7])]));
    let actions = acquire.step(Event::OwnGone(0));
    assert_eq!(
        actions,
        [
            Action::Withdraw(vec![(1, name(7))]),
            Action::Enter(vec![0, 1])
        ]
    );
}

const BESIDE: (LockKind, Place) = (LockKind::Read, Place::Beside { session: SESSION });

#[test]
fn a_reader_beside_its_writer_is_admitted_without_a_listing() {
    for patience in [Patience::Wait, Patience::Try] {
        let mut acquire = Acquire::new([BESIDE], patience);
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
    let mut acquire = Acquire::new([BESIDE], Patience::Wait);
    acquire.step(Event::SessionStarted(SESSION));
    assert_eq!(acquire.step(Event::EnterUnknown), [Action::Search(vec![0])]);
    let actions = acquire.step(Event::Searched(vec![vec![found(5, SESSION)]]));
    let granted = Action::Grant(vec![granted_node(5)]);
    assert_eq!(actions, [Action::Adopt(0, name(5)), granted]);
}

#[test]
fn a_reader_whose_writer_is_gone_fails() {
    let gone = [Action::Fail(Failure::WriterGone { member: 0 })];
    let mut acquire = Acquire::new([BESIDE], Patience::Wait);
    acquire.step(Event::SessionStarted(SESSION));
    assert_eq!(acquire.step(Event::WriterGone(0)), gone);
    // In another session the writer's node is not ours any more.
    let mut acquire = Acquire::new([BESIDE], Patience::Wait);
    assert_eq!(acquire.step(Event::SessionStarted(SESSION + 1)), gone);
}

#[test]
fn all_nodes_that_were_made_together_are_read_for_their_tokens() {
    let mut acquire = started(2, Patience::Wait);
    let actions = acquire.step(Event::Entered(vec![
        unnumbered(0, &[0]),
        unnumbered(7, &[7]),
    ]));
    assert_eq!(actions, [Action::Stat(0), Action::Stat(1)]);
    assert_eq!(acquire.step(Event::Stated(0, Some(found(0, SESSION)))), []);
    let granted = acquire.step(Event::Stated(1, Some(found(7, SESSION))));
    assert_eq!(
        granted,
        [Action::Grant(vec![granted_node(0), granted_node(7)])]
    );
}

/// The answer about one node proves nothing about another that is not watched.
#[test]
fn a_node_that_went_while_the_others_were_read_is_no_grant() {
    let mut acquire = started(2, Patience::Wait);
    acquire.step(Event::Entered(vec![
        unnumbered(0, &[0]),
        unnumbered(7, &[7]),
    ]));
    assert_eq!(acquire.step(Event::Stated(0, Some(found(0, SESSION)))), []);
    let again = [Action::Enter(vec![1])];
    assert_eq!(acquire.step(Event::Stated(1, None)), again);
}

#[test]
fn what_is_not_watched_is_asked_for_together() {
    let mut acquire = started(2, Patience::Wait);
    let lost = Entry {
        node: node(7),
        children: None,
    };
    let entered = Event::Entered(vec![entry(0, &[0]), lost]);
    assert_eq!(acquire.step(entered), [Action::List(1)]);
    // The listing of the first is older by a round trip.
    let both = [Action::List(0), Action::List(1)];
    assert_eq!(acquire.step(Event::Listed(1, names(&[7]))), both);
    assert_eq!(acquire.step(Event::Listed(0, names(&[0]))), []);
    let granted = acquire.step(Event::Listed(1, names(&[7])));
    assert_eq!(
        granted,
        [Action::Grant(vec![granted_node(0), granted_node(7)])]
    );
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
        [Action::Enter(vec![0])]
    );
}

#[test]
fn a_deletion_grants_no_set_while_a_member_before_is_not_watched() {
    let mut acquire = started(2, Patience::Wait);
    acquire.step(Event::Entered(vec![entry(0, &[0]), entry(7, &[6, 7])]));
    acquire.step(Event::OwnWatched(1));
    assert_eq!(
        acquire.step(Event::BlockerGone(1, name(6))),
        [Action::List(0), Action::List(1)]
    );
    assert_eq!(acquire.step(Event::Listed(1, names(&[7]))), []);
    let actions = acquire.step(Event::Listed(0, names(&[1])));
    assert_eq!(
        actions,
        [
            Action::Withdraw(vec![(1, name(7))]),
            Action::Enter(vec![0, 1])
        ]
    );
}

#[test]
fn a_set_asks_once_for_all_where_a_watch_is_late() {
    let mut acquire = started(2, Patience::Wait);
    acquire.step(Event::Entered(vec![entry(7, &[6, 7]), entry(0, &[0])]));
    assert_eq!(
        acquire.step(Event::BlockerGone(0, name(6))),
        [Action::List(0)]
    );
    let entering = acquire.step(Event::Listed(0, names(&[7])));
    assert_eq!(entering, [Action::Enter(vec![1])]);
    // The listing is from before the second node existed.
    let asked = acquire.step(Event::Entered(vec![entry(1, &[1])]));
    assert_eq!(asked, [Action::List(0), Action::List(1)]);
    assert_eq!(acquire.step(Event::Listed(0, names(&[7]))), []);
    let granted = acquire.step(Event::Listed(1, names(&[1])));
    assert_eq!(
        granted,
        [Action::Grant(vec![granted_node(7), granted_node(1)])]
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

#[test]
fn a_negative_sequence_that_is_found_again_is_refused() {
    let mut acquire = started(1, Patience::Wait);
    acquire.step(Event::EnterUnknown);
    let wrapped = Found {
        name: "_c_x-lock--2147483648".to_owned(),
        owner: SESSION,
        czxid: 1,
    };
    let failure = Failure::SequenceExhausted {
        member: 0,
        sequence: i32::MIN,
    };
    let actions = acquire.step(Event::Searched(vec![vec![wrapped]]));
    assert_eq!(actions, [Action::Fail(failure)]);
}

fn reconnected(acquire: &mut Acquire) -> Vec<Action> {
    acquire.step(Event::Reconnected)
}

#[test]
fn a_new_connection_leaves_a_probe_a_create_and_a_search_alone() {
    let mut probing = started(1, Patience::Try);
    assert_eq!(reconnected(&mut probing), []);
    assert_eq!(
        probing.step(Event::Probed(vec![vec![]])),
        [Action::Enter(vec![0])]
    );
    let mut acquire = started(1, Patience::Wait);
    assert_eq!(reconnected(&mut acquire), []);
    assert_eq!(acquire.step(Event::EnterUnknown), [Action::Search(vec![0])]);
    assert_eq!(reconnected(&mut acquire), []);
    let actions = acquire.step(Event::Searched(vec![vec![found(4, SESSION)]]));
    assert_eq!(actions, [Action::Adopt(0, name(4)), Action::List(0)]);
}

#[test]
fn a_listing_of_the_connection_before_is_asked_for_again_and_what_was_gone_is_forgotten() {
    let mut acquire = waiting(&[2, 3]);
    acquire.step(Event::BlockerGone(0, name(2)));
    assert_eq!(acquire.step(Event::BlockerGone(0, name(3))), []);
    assert_eq!(reconnected(&mut acquire), [Action::List(0)]);
    // The server lags, and reports when node 3 is deleted.
    let actions = acquire.step(Event::Listed(0, names(&[3, 5])));
    assert_eq!(
        actions,
        [Action::WatchOwn(0), Action::Watch(0, names(&[3]))]
    );
}

#[test]
fn a_waiter_watches_its_own_nodes_before_the_ones_ahead_over_a_new_connection() {
    let mut acquire = started(2, Patience::Wait);
    acquire.step(Event::Entered(vec![entry(0, &[0]), entry(7, &[5, 6, 7])]));
    acquire.step(Event::OwnWatched(0));
    acquire.step(Event::OwnWatched(1));
    assert_eq!(
        reconnected(&mut acquire),
        [
            Action::WatchOwn(0),
            Action::WatchOwn(1),
            Action::Watch(1, names(&[5, 6])),
        ]
    );
}

#[test]
fn a_deletion_that_is_heard_before_the_own_node_is_watched_again_is_no_grant() {
    let mut acquire = waiting(&[3]);
    reconnected(&mut acquire);
    assert_eq!(
        acquire.step(Event::BlockerGone(0, name(3))),
        [Action::List(0)]
    );
    // An operator deleted our node while the connection was down.
    assert_eq!(
        acquire.step(Event::Listed(0, names(&[6]))),
        [Action::Enter(vec![0])]
    );
}

#[test]
fn a_grant_over_a_new_connection_is_listed_for_again() {
    let mut acquire = started(2, Patience::Wait);
    let actions = acquire.step(Event::Entered(vec![entry(0, &[0]), entry(7, &[7])]));
    assert_eq!(
        actions,
        [Action::Grant(vec![granted_node(0), granted_node(7)])]
    );
    assert_eq!(
        reconnected(&mut acquire),
        [Action::List(0), Action::List(1)]
    );
    assert_eq!(acquire.step(Event::Listed(1, names(&[7]))), []);
    let granted = acquire.step(Event::Listed(0, names(&[0])));
    assert_eq!(
        granted,
        [Action::Grant(vec![granted_node(0), granted_node(7)])]
    );
}

#[test]
fn a_grant_that_comes_too_late_is_made_once_the_session_is_known_to_live() {
    let mut acquire = started(1, Patience::Wait);
    acquire.step(Event::Entered(vec![entry(5, &[5])]));
    assert_eq!(acquire.step(Event::Lapsed), [Action::Commit]);
    // Our node is not watched, so it is listed after the commit.
    assert_eq!(acquire.step(Event::Committed), [Action::List(0)]);
    let granted = acquire.step(Event::Listed(0, names(&[5])));
    assert_eq!(granted, [Action::Grant(vec![granted_node(5)])]);

    let mut acquire = waiting(&[3]);
    acquire.step(Event::BlockerGone(0, name(3)));
    assert_eq!(acquire.step(Event::Lapsed), [Action::Commit]);
    let granted = acquire.step(Event::Committed);
    assert_eq!(granted, [Action::Grant(vec![granted_node(5)])]);
}

#[test]
fn the_own_node_that_goes_while_a_late_grant_is_proved_takes_the_grant_away() {
    let mut acquire = waiting(&[3]);
    acquire.step(Event::BlockerGone(0, name(3)));
    assert_eq!(acquire.step(Event::Lapsed), [Action::Commit]);
    assert_eq!(acquire.step(Event::OwnGone(0)), [Action::Enter(vec![0])]);
}

#[test]
fn of_several_nodes_of_ours_the_first_is_adopted_and_the_others_are_withdrawn() {
    let mut acquire = started(1, Patience::Wait);
    acquire.step(Event::EnterUnknown);
    let all = vec![
        found(6, SESSION),
        found(3, SESSION + 1),
        found(4, SESSION),
        found(7, SESSION),
    ];
    let actions = acquire.step(Event::Searched(vec![all]));
    assert_eq!(
        actions,
        [
            Action::Withdraw(vec![(0, name(3)), (0, name(6)), (0, name(7))]),
            Action::Adopt(0, name(4)),
            Action::List(0),
        ]
    );
    // Its own later nodes do not keep it waiting.
    let granted = acquire.step(Event::Listed(0, names(&[4, 6, 7])));
    assert_eq!(granted, [Action::Grant(vec![granted_node(4)])]);
}

#[test]
fn a_set_of_which_a_part_is_found_enters_the_rest() {
    let mut acquire = started(2, Patience::Wait);
    acquire.step(Event::EnterUnknown);
    let actions = acquire.step(Event::Searched(vec![vec![], vec![found(4, SESSION)]]));
    assert_eq!(
        actions,
        [
            Action::Adopt(1, name(4)),
            Action::List(1),
            Action::Enter(vec![0])
        ]
    );
}

/// A contender that rejoined with node 6 and waits for node 3. Its old node was watched.
fn rejoined() -> Acquire {
    let mut acquire = waiting(&[3]);
    acquire.step(Event::OwnGone(0));
    let actions = acquire.step(Event::Entered(vec![entry(6, &[3, 6])]));
    assert_eq!(
        actions,
        [Action::WatchOwn(0), Action::Watch(0, names(&[3]))]
    );
    acquire
}

#[test]
fn the_watch_of_an_old_node_does_not_count_for_the_new_one() {
    let mut acquire = rejoined();
    assert_eq!(
        acquire.step(Event::BlockerGone(0, name(3))),
        [Action::List(0)]
    );
    // The same for a new node that a search found.
    let mut acquire = waiting(&[3]);
    acquire.step(Event::OwnGone(0));
    acquire.step(Event::EnterUnknown);
    acquire.step(Event::Searched(vec![vec![found(6, SESSION)]]));
    acquire.step(Event::Listed(0, names(&[3, 6])));
    assert_eq!(
        acquire.step(Event::BlockerGone(0, name(3))),
        [Action::List(0)]
    );
}

#[test]
fn a_deletion_seen_during_a_stale_listing_grants_nothing_without_the_own_watch() {
    let mut acquire = rejoined();
    assert_eq!(
        acquire.step(Event::BlockerGone(0, name(3))),
        [Action::List(0)]
    );
    // The listing is older than the deletion. Our node may be deleted too, unreported.
    assert_eq!(
        acquire.step(Event::Listed(0, names(&[3, 6]))),
        [Action::List(0)]
    );
    acquire.step(Event::OwnWatched(0));
    let granted = acquire.step(Event::Listed(0, names(&[3, 6])));
    assert_eq!(granted, [Action::Grant(vec![granted_node(6)])]);
}

#[test]
fn nodes_of_two_creates_are_read_for_their_numbers() {
    let mut acquire = started(2, Patience::Wait);
    acquire.step(Event::Entered(vec![
        unnumbered(5, &[3, 5]),
        unnumbered(7, &[7]),
    ]));
    acquire.step(Event::OwnWatched(0));
    assert_eq!(
        acquire.step(Event::BlockerGone(0, name(3))),
        [Action::Enter(vec![1])]
    );
    let actions = acquire.step(Event::Entered(vec![unnumbered(8, &[8])]));
    assert_eq!(actions, [Action::Stat(0), Action::Stat(1)]);
    assert_eq!(acquire.step(Event::Stated(0, Some(found(5, SESSION)))), []);
    let granted = acquire.step(Event::Stated(1, Some(found(8, SESSION))));
    assert_eq!(
        granted,
        [Action::Grant(vec![granted_node(5), granted_node(8)])]
    );
}

#[test]
fn every_member_of_a_set_is_looked_at_for_a_writer_of_a_former_session() {
    let members = [(LockKind::Mutex, Place::Tail), BESIDE];
    for patience in [Patience::Wait, Patience::Try] {
        let mut acquire = Acquire::new(members, patience);
        assert_eq!(
            acquire.step(Event::SessionStarted(SESSION + 1)),
            [Action::Fail(Failure::WriterGone { member: 1 })]
        );
    }
}

#[test]
fn nothing_is_entered_while_a_search_is_under_way() {
    let mut acquire = started(2, Patience::Wait);
    acquire.step(Event::Entered(vec![entry(5, &[3, 5]), entry(7, &[7])]));
    acquire.step(Event::OwnWatched(0));
    assert_eq!(
        acquire.step(Event::BlockerGone(0, name(3))),
        [Action::Enter(vec![1])]
    );
    assert_eq!(acquire.step(Event::EnterUnknown), [Action::Search(vec![1])]);
    // The later node may exist.
    assert_eq!(acquire.step(Event::OwnGone(0)), []);
    let actions = acquire.step(Event::Searched(vec![vec![found(8, SESSION)]]));
    assert_eq!(actions, [Action::Adopt(1, name(8)), Action::List(1)]);
    let actions = acquire.step(Event::Listed(1, names(&[8])));
    assert_eq!(
        actions,
        [
            Action::Withdraw(vec![(1, name(8))]),
            Action::Enter(vec![0, 1])
        ]
    );
}

/// The driver looks at its own nodes once more before it makes a grant.
#[test]
fn a_grant_that_changed_data_took_back_is_made_once_the_node_is_watched_again() {
    let mut acquire = waiting(&[3]);
    let granted = [Action::Grant(vec![granted_node(5)])];
    assert_eq!(acquire.step(Event::BlockerGone(0, name(3))), granted);
    assert_eq!(acquire.step(Event::OwnChanged(0)), [Action::WatchOwn(0)]);
    assert_eq!(acquire.step(Event::OwnWatched(0)), granted);
}

#[test]
fn a_listing_that_left_with_the_create_of_the_connection_before_is_asked_for_again() {
    let mut acquire = started(2, Patience::Wait);
    assert_eq!(reconnected(&mut acquire), []);
    let alone = Event::Entered(vec![entry(5, &[5]), entry(6, &[6])]);
    assert_eq!(acquire.step(alone), [Action::List(0), Action::List(1)]);
    assert_eq!(acquire.step(Event::Listed(0, names(&[5]))), []);
    let waits = acquire.step(Event::Listed(1, names(&[3, 6])));
    let watched = [0, 1].map(Action::WatchOwn);
    assert_eq!(waits[..2], watched);
    assert_eq!(waits[2..], [Action::Watch(1, names(&[3]))]);
}

#[test]
fn a_reader_beside_its_writer_that_was_made_over_the_connection_before_is_listed() {
    let mut acquire = Acquire::new([BESIDE], Patience::Wait);
    acquire.step(Event::SessionStarted(SESSION));
    assert_eq!(reconnected(&mut acquire), []);
    let beside = Event::Entered(vec![Entry {
        node: node(5),
        children: None,
    }]);
    assert_eq!(acquire.step(beside), [Action::List(0)]);
    let granted = acquire.step(Event::Listed(0, names(&[5])));
    assert_eq!(granted, [Action::Grant(vec![granted_node(5)])]);
}
