use super::*;

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
    assert_eq!(acquire.step(Event::OwnGone(0)), [Action::Gone(0)]);
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
