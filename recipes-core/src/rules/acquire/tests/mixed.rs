//! Nodes of another recipe in the listings of an attempt.

use super::*;

const LATCH: &str = "_c_a-latch-0000000004";

fn refused(member: usize) -> Vec<Action> {
    vec![Action::Fail(Failure::OtherRecipe {
        member,
        node: LATCH.to_owned(),
        found: LockKind::Latch,
    })]
}

fn with_latch(sequences: &[u32]) -> Vec<String> {
    [names(sequences), vec![LATCH.to_owned()]].concat()
}

fn entered(own: u32, children: Vec<String>) -> Event {
    Event::Entered(vec![Entry {
        node: node(own),
        children: Some(children),
    }])
}

#[test]
fn an_earlier_node_of_another_recipe_ends_an_attempt_whatever_shows_it() {
    let mut acquire = started(1, Patience::Wait);
    assert_eq!(acquire.step(entered(5, with_latch(&[5]))), refused(0));
    let mut acquire = started(1, Patience::Wait);
    acquire.step(Event::Entered(vec![Entry {
        node: node(5),
        children: None,
    }]));
    let listed = Event::Listed(0, with_latch(&[3, 5]));
    assert_eq!(acquire.step(listed), refused(0));
    let mut acquire = AcquireMachine::new([(LockKind::Mutex, Place::Tail)], Patience::Try);
    acquire.step(Event::SessionStarted(SESSION));
    assert_eq!(
        acquire.step(Event::Probed(vec![with_latch(&[])])),
        refused(0)
    );
}

#[test]
fn nothing_is_granted_beside_a_later_node_of_another_recipe() {
    let mut acquire = started(1, Patience::Wait);
    let waits = [
        Action::WatchOwn(0),
        Action::Watch(0, vec![LATCH.to_owned()]),
    ];
    assert_eq!(acquire.step(entered(3, with_latch(&[3]))), waits);
    acquire.step(Event::OwnWatched(0));
    let gone = Event::BlockerGone(0, LATCH.to_owned());
    assert_eq!(acquire.step(gone), [Action::List(0)]);
    let listed = Event::Listed(0, names(&[3]));
    assert!(matches!(acquire.step(listed)[..], [Action::Grant(_)]));

    // Nor when all that was ahead is gone.
    let mut acquire = started(1, Patience::Wait);
    let waits = [Action::WatchOwn(0), Action::Watch(0, names(&[2]))];
    assert_eq!(acquire.step(entered(3, with_latch(&[2, 3]))), waits);
    acquire.step(Event::OwnWatched(0));
    let gone = Event::BlockerGone(0, name(2));
    assert_eq!(acquire.step(gone), [Action::List(0)]);
}

#[test]
fn a_reader_beside_its_writer_is_admitted_as_the_writer_was() {
    let beside = Place::Beside { session: SESSION };
    let mut acquire = AcquireMachine::new([(LockKind::Read, beside)], Patience::Wait);
    acquire.step(Event::SessionStarted(SESSION));
    let actions = acquire.step(entered(5, with_latch(&[5])));
    assert!(matches!(actions[..], [Action::Grant(_)]), "{actions:?}");
}
