use super::*;

fn wanted(name: &str, number: u64, read_at: i64) -> Wanted {
    Wanted {
        key: format!("/a/{name}"),
        path: format!("/a/{name}-lock-1"),
        number,
        made_at: 10,
        read_at,
        is_own: name != "ahead",
    }
}

fn node(name: &str, made_at: i64) -> NodeKey {
    NodeKey {
        key: format!("/a/{name}"),
        made_at: Some(made_at),
    }
}

fn deleted(id: i64, revision: i64) -> Event {
    Event {
        id,
        revision,
        is_deletion: true,
    }
}

fn tell(name: &str, number: u64, event: NodeEvent) -> Do {
    Do::Tell(format!("/a/{name}-lock-1"), number, event)
}

/// Two watches that the server has, as of the revision at which their keys were read.
fn two() -> Watching {
    let mut watching = Watching::after(1);
    watching.watch(wanted("own", 1, 20));
    watching.watch(wanted("ahead", 2, 20));
    let asked = [(2, "own"), (3, "ahead")].map(|(id, name)| Do::Watch(id, format!("/a/{name}")));
    assert_eq!(watching.take(), asked);
    watching.created(2, 20);
    watching.created(3, 20);
    assert!(watching.take().is_empty() && watching.look().is_empty());
    watching
}

/// As [`two`], both on nodes of the session.
fn two_own() -> Watching {
    let mut watching = Watching::default();
    watching.watch(wanted("first", 1, 20));
    watching.watch(wanted("own", 2, 20));
    watching.take();
    watching.created(1, 20);
    watching.created(2, 20);
    watching
}

#[test]
fn deletion_is_told_once_and_up_to_the_last_number() {
    let mut watching = two();
    watching.watch(wanted("ahead", 7, 22));
    watching.happened([deleted(3, 23), deleted(3, 24)]);
    let told = [Do::Cancel(3), tell("ahead", 7, NodeEvent::Deleted)];
    assert_eq!(watching.take(), told);
}

#[test]
fn what_was_known_when_the_key_was_read_is_not_told() {
    let mut watching = two();
    let changed = Event {
        is_deletion: false,
        ..deleted(3, 20)
    };
    watching.happened([changed]);
    assert!(watching.take().is_empty());
    watching.happened([Event {
        revision: 21,
        ..changed
    }]);
    let told = [Do::Cancel(3), tell("ahead", 2, NodeEvent::Changed)];
    assert_eq!(watching.take(), told);
}

#[test]
fn what_happened_before_the_watch_is_looked_for() {
    for (found, told) in [
        (None, Some(NodeEvent::Deleted)),
        (Some((11, 24)), Some(NodeEvent::Deleted)),
        (Some((10, 24)), Some(NodeEvent::Changed)),
        (Some((10, 20)), None),
        (Some((10, 10)), None),
    ] {
        let mut watching = Watching::default();
        watching.watch(wanted("ahead", 2, 20));
        watching.created(1, 25);
        watching.take();
        assert_eq!(watching.look(), [(1, "/a/ahead".to_owned())]);
        assert!(watching.look().is_empty(), "once");
        watching.looked(30, vec![(1, found)]);
        let expected: Vec<_> = told
            .into_iter()
            .flat_map(|it| [Do::Cancel(1), tell("ahead", 2, it)])
            .collect();
        assert_eq!(watching.take(), expected);
    }
}

#[test]
fn end_of_a_node_ahead_is_not_told_while_ones_own_may_have_ended_before() {
    let mut watching = Watching::default();
    watching.watch(wanted("own", 1, 20));
    watching.watch(wanted("ahead", 2, 20));
    watching.take();
    watching.created(2, 20);
    watching.happened([deleted(2, 26)]);
    watching.created(1, 25);
    assert!(watching.take().is_empty(), "own is not known");
    let own = watching.look();
    watching.looked(26, vec![(own[0].0, None)]);
    let told = [
        Do::Cancel(1),
        tell("own", 1, NodeEvent::Deleted),
        Do::Cancel(2),
        tell("ahead", 2, NodeEvent::Deleted),
    ];
    assert_eq!(watching.take(), told);
}

#[test]
fn end_of_ones_own_node_is_told_first_of_one_revision() {
    let mut watching = two();
    watching.happened([deleted(3, 26), deleted(2, 26)]);
    let told = [
        Do::Cancel(2),
        tell("own", 1, NodeEvent::Deleted),
        Do::Cancel(3),
        tell("ahead", 2, NodeEvent::Deleted),
    ];
    assert_eq!(watching.take(), told);
}

#[test]
fn end_of_a_node_of_the_session_is_told_once_the_others_are_known_to_be_there() {
    let mut watching = two_own();
    watching.happened([deleted(1, 26)]);
    assert!(watching.take().is_empty(), "the other may be gone with it");
    assert_eq!(watching.look(), [(2, "/a/own".to_owned())]);
    watching.looked(26, vec![(2, Some((10, 10)))]);
    assert_eq!(
        watching.take(),
        [Do::Cancel(1), tell("first", 1, NodeEvent::Deleted)]
    );
}

#[test]
fn node_that_the_session_deletes_itself_takes_no_other_with_it() {
    let mut watching = two_own();
    let first = ["/a/first".to_owned()];
    watching.leaving(&first);
    watching.happened([deleted(1, 26)]);
    assert!(watching.take().is_empty() && watching.look().is_empty());
    watching.left(&first, Some(26));
    let told = [Do::Cancel(1), tell("first", 1, NodeEvent::Deleted)];
    assert_eq!(watching.take(), told);
    assert!(watching.look().is_empty());
}

#[test]
fn node_that_others_delete_as_the_session_wants_to_may_not_be_the_only_one() {
    for revision in [None, Some(27)] {
        let mut watching = two_own();
        let first = ["/a/first".to_owned()];
        watching.leaving(&first);
        watching.happened([deleted(1, 26)]);
        watching.left(&first, revision);
        assert!(watching.take().is_empty());
        assert_eq!(watching.look(), [(2, "/a/own".to_owned())]);
    }
}

#[test]
fn key_that_is_made_again_is_another_node() {
    let mut watching = two();
    let again = Wanted {
        path: "/a/ahead-lock-2".to_owned(),
        made_at: 22,
        ..wanted("ahead", 7, 22)
    };
    watching.watch(again);
    assert_eq!(watching.take(), [Do::Watch(4, "/a/ahead".to_owned())]);
    watching.created(4, 22);
    watching.happened([deleted(3, 21), deleted(3, 24), deleted(4, 24)]);
    let second = Do::Tell("/a/ahead-lock-2".to_owned(), 7, NodeEvent::Deleted);
    let told = [
        Do::Cancel(3),
        tell("ahead", 2, NodeEvent::Deleted),
        Do::Cancel(4),
        second,
    ];
    assert_eq!(watching.take(), told);
}

#[test]
fn who_watches_no_more_holds_nobody_up() {
    let mut watching = two();
    watching.watch(wanted("other", 3, 20));
    watching.happened([deleted(3, 26)]);
    watching.take();
    watching.unwatch(&node("other", 10));
    let told = [
        Do::Cancel(4),
        Do::Cancel(3),
        tell("ahead", 2, NodeEvent::Deleted),
    ];
    assert_eq!(watching.take(), told);
    watching.happened([deleted(4, 27)]);
    assert!(watching.take().is_empty());
}

/// A session uses its keys again.
#[test]
fn who_watches_no_more_does_not_end_the_watch_on_the_next_node_with_the_key() {
    let mut watching = two();
    let next = Wanted {
        made_at: 30,
        ..wanted("ahead", 3, 30)
    };
    watching.watch(next);
    assert_eq!(watching.take(), [Do::Watch(4, "/a/ahead".to_owned())]);
    watching.created(4, 30);
    watching.unwatch(&node("ahead", 10));
    assert!(watching.take().is_empty());
    watching.happened([deleted(4, 31)]);
    let told = [Do::Cancel(4), tell("ahead", 3, NodeEvent::Deleted)];
    assert_eq!(watching.take(), told);
    watching.watch(wanted("ahead", 5, 40));
    watching.take();
    watching.unwatch(&node("ahead", 10));
    assert_eq!(watching.take(), [Do::Cancel(5)]);
}
