use super::*;

fn reconnected(acquire: &mut AcquireMachine) -> Vec<Action> {
    acquire.step(Event::Reconnected { forgot: false })
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
    let mut acquire = waiting(&[1, 2, 3]);
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

/// A contender with node 5 that waits for the given nodes, and whose store has forgotten since.
fn waiting_on_one_that_forgot(ahead: &[u32]) -> AcquireMachine {
    let mut acquire = waiting(ahead);
    assert_eq!(
        acquire.step(Event::Reconnected { forgot: true }),
        [Action::WatchOwn(0), Action::Watch(0, names(ahead))]
    );
    assert_eq!(acquire.step(Event::OwnWatched(0)), []);
    acquire
}

#[test]
fn a_node_that_is_back_is_seen_when_it_would_be_our_turn() {
    let of_three = Event::BlockerGone(0, name(3));
    let first_of_three = Event::FirstGone(0, name(3));
    for (ahead, gone) in [
        (&[3][..], &of_three),
        (&[3], &first_of_three),
        (&[2, 3], &of_three),
    ] {
        let mut acquire = waiting_on_one_that_forgot(ahead);
        assert_eq!(acquire.step(gone.clone()), [Action::List(0)]);
        // Node 1 had been deleted.
        assert_eq!(
            acquire.step(Event::Listed(0, names(&[1, 5]))),
            [Action::WatchOwn(0), Action::Watch(0, names(&[1]))]
        );
        // This listing is of the present.
        let granted = acquire.step(Event::BlockerGone(0, name(1)));
        assert_eq!(granted, [Action::Grant(vec![granted_node(5)])]);
    }
}

#[test]
fn an_admitted_member_of_a_set_is_listed_for_again_if_the_store_forgot() {
    let mut acquire = started(2, Patience::Wait);
    acquire.step(Event::Entered(vec![entry(4, &[4]), entry(7, &[6, 7])]));
    acquire.step(Event::OwnWatched(0));
    acquire.step(Event::OwnWatched(1));
    let forgot = Event::Reconnected { forgot: true };
    assert_eq!(acquire.step(forgot), [Action::List(0)]);
    assert_eq!(
        acquire.step(Event::Listed(0, names(&[1, 4]))),
        [
            Action::Withdraw(vec![(1, name(7))]),
            Action::WatchOwn(0),
            Action::Watch(0, names(&[1])),
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
        [Action::Gone(0), Action::Enter(vec![0])]
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
    assert_eq!(
        acquire.step(Event::OwnGone(0)),
        [Action::Gone(0), Action::Enter(vec![0])]
    );
}

/// A contender that rejoined with node 6 and waits for node 3. Its old node was watched.
fn rejoined() -> AcquireMachine {
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
    let mut acquire = AcquireMachine::new([BESIDE], Patience::Wait);
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

/// Its request is of the connection before, and has no answer any more.
#[test]
fn a_node_whose_number_is_unknown_is_looked_at_again_over_a_new_connection() {
    let mut acquire = started(1, Patience::Wait);
    let actions = acquire.step(Event::Entered(vec![unnumbered(0, &[0])]));
    assert_eq!(actions, [Action::Stat(0)]);
    assert_eq!(reconnected(&mut acquire), [Action::List(0)]);
    let actions = acquire.step(Event::Listed(0, names(&[0])));
    assert_eq!(actions, [Action::Stat(0)]);
}

/// Where it is, the writer of its owner is ahead. It need only be there.
#[test]
fn a_reader_next_to_its_writer_is_looked_for_over_a_new_connection() {
    let writer = || name(0).replace("lock-", LockKind::Write.marker());
    for is_there in [true, false] {
        let beside = Place::Beside { session: SESSION };
        let mut acquire = AcquireMachine::new([(LockKind::Read, beside)], Patience::Wait);
        acquire.step(Event::SessionStarted(SESSION));
        let (node, children) = (node(0), None);
        let actions = acquire.step(Event::Entered(vec![Entry { node, children }]));
        assert_eq!(actions, [Action::Grant(vec![granted_node(0)])]);
        assert_eq!(reconnected(&mut acquire), [Action::List(0)]);
        let own = is_there.then(|| name(0));
        let children = [writer()].into_iter().chain(own).collect();
        let actions = acquire.step(Event::Listed(0, children));
        let granted = Action::Grant(vec![granted_node(0)]);
        assert_eq!(actions.contains(&granted), is_there, "{actions:?}");
        assert_eq!(actions.contains(&Action::Gone(0)), !is_there, "{actions:?}");
    }
}

#[test]
fn nothing_is_granted_on_a_node_that_changed_before_it_is_watched() {
    let mut acquire = started(1, Patience::Wait);
    let actions = acquire.step(Event::Entered(vec![entry(0, &[0])]));
    let granted = Action::Grant(vec![granted_node(0)]);
    assert_eq!(actions, [granted]);
    assert_eq!(acquire.step(Event::OwnChanged(0)), [Action::WatchOwn(0)]);
    assert_eq!(acquire.step(Event::BlockerChanged), [Action::List(0)]);
}
