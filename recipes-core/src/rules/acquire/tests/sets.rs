use super::*;

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
            Action::Gone(0),
            Action::Withdraw(vec![(1, name(7))]),
            Action::Enter(vec![0, 1])
        ]
    );
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
    let again = [Action::Gone(1), Action::Enter(vec![1])];
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
            Action::Gone(0),
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
        let mut acquire = AcquireMachine::new(members, patience);
        assert_eq!(
            acquire.step(Event::SessionStarted(SESSION + 1)),
            [Action::Fail(Failure::WriterGone { member: 1 })]
        );
    }
}

/// Whoever waits for an earlier one must not keep a later one, not even until that is listed.
#[test]
fn a_member_that_loses_its_node_takes_those_behind_it_along() {
    let mut acquire = started(2, Patience::Wait);
    let (node, children) = (node(7), None);
    let unlisted = Entry { node, children };
    let actions = acquire.step(Event::Entered(vec![entry(0, &[0]), unlisted]));
    assert_eq!(actions, [Action::List(1)]);
    let actions = acquire.step(Event::OwnGone(0));
    assert_eq!(
        actions,
        [
            Action::Gone(0),
            Action::Withdraw(vec![(1, name(7))]),
            Action::Enter(vec![0, 1]),
        ]
    );
}

/// An answer about one proves nothing about the others.
#[test]
fn all_that_are_not_watched_are_read_if_one_is() {
    let mut acquire = started(2, Patience::Wait);
    let actions = acquire.step(Event::Entered(vec![unnumbered(0, &[0]), entry(7, &[7])]));
    assert_eq!(actions, [Action::Stat(0), Action::Stat(1)]);
    // As if it were of an earlier session.
    let actions = acquire.step(Event::Stated(0, Some(found(0, SESSION + 1))));
    assert!(actions.contains(&Action::Gone(0)), "{actions:?}");
}

#[test]
fn a_try_finds_its_own_writer_not_in_its_way() {
    let beside = Place::Beside { session: SESSION };
    let members = [(LockKind::Read, beside), (LockKind::Mutex, Place::Tail)];
    let mut acquire = AcquireMachine::new(members, Patience::Try);
    let actions = acquire.step(Event::SessionStarted(SESSION));
    assert_eq!(actions, [Action::Probe]);
    let writer = name(0).replace("lock-", LockKind::Write.marker());
    let actions = acquire.step(Event::Probed(vec![vec![writer], Vec::new()]));
    assert_eq!(actions, [Action::Enter(vec![0, 1])]);
}
