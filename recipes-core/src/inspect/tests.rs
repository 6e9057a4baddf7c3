//! Graphs and cycles of invented locks.

mod nested;

use std::time::UNIX_EPOCH;

use super::*;
use crate::names::key::escape;
use crate::names::printable::is_text;
use crate::names::record::REVOKE;

/// A contender: its name, its session, and the owner in its record.
type Made<'a> = (&'a str, i64, Option<&'a str>);

fn lock(path: &str, contenders: &[Made<'_>]) -> Inspection {
    let node = |(name, session_id, owner): &Made<'_>| {
        let record = |owner: &&str| {
            let owner = escape(owner);
            format!("recipes/1 host=a pid=1 app=b since=0 owner={owner}")
        };
        let data = owner
            .as_ref()
            .map_or_else(Vec::new, |it| record(it).into_bytes());
        ReadNode {
            participant: Participant {
                path: format!("{path}/{name}"),
                sequence: None,
                data,
                session_id: *session_id,
                created_at: UNIX_EPOCH,
                is_described: true,
            },
            is_readable: true,
        }
    };
    let directory = Directory {
        nodes: contenders.iter().map(node).collect(),
        ..Directory::default()
    };
    lock_in(path, directory, Shown::Contenders).unwrap()
}

fn mutex(path: &str, contenders: &[(i64, Option<&str>)]) -> Inspection {
    let names: Vec<_> = (0..contenders.len())
        .map(|it| format!("_c_a-lock-{it:010}"))
        .collect();
    let made: Vec<_> = names
        .iter()
        .zip(contenders)
        .map(|(name, (session, owner))| (name.as_str(), *session, *owner))
        .collect();
    lock(path, &made)
}

fn cycles(locks: &[Inspection]) -> Vec<Vec<String>> {
    let text = |cycle: Vec<Edge>| cycle.iter().map(ToString::to_string).collect();
    let cycles = WaitForGraph::of(locks).cycles();
    cycles.into_iter().map(text).collect()
}

#[test]
fn owners_that_took_two_locks_in_opposite_order_are_named() {
    let locks = [
        mutex("/b", &[(2, Some("y")), (1, Some("x"))]),
        mutex("/a", &[(1, Some("x")), (2, Some("y"))]),
    ];
    let graph = WaitForGraph::of(&locks);
    assert_eq!(graph.edges.len(), 2);
    assert!(graph.edges.iter().all(|it| it.basis == Basis::Owner));
    assert_eq!(
        cycles(&locks),
        [[
            "owner y waits for owner x at /a",
            "owner x waits for owner y at /b"
        ]]
    );
    let cycle = &graph.cycles()[0];
    assert_eq!(cycle[0].waiting_node, "/a/_c_a-lock-0000000001");
    assert_eq!(cycle[0].holding_node, "/a/_c_a-lock-0000000000");
}

#[test]
fn owners_and_sessions_close_cycles_together_and_each_edge_says_what_it_rests_on() {
    let locks = [
        mutex("/a", &[(1, Some("x")), (3, None)]),
        mutex("/b", &[(2, Some("y")), (1, Some("x"))]),
        mutex("/c", &[(3, None), (2, Some("y"))]),
    ];
    let found = WaitForGraph::of(&locks).cycles();
    let basis: Vec<_> = found[0].iter().map(|it| it.basis).collect();
    assert_eq!(basis, [Basis::Session, Basis::Owner, Basis::Session]);
    assert_eq!(
        cycles(&locks),
        [[
            "session 0x3 waits for owner x at /a",
            "owner x waits for owner y at /b",
            "owner y waits for session 0x3 at /c"
        ]]
    );
}

#[test]
fn owners_of_one_session_are_not_taken_for_one() {
    let locks = [
        mutex("/a", &[(1, Some("x")), (2, Some("y"))]),
        mutex("/b", &[(2, Some("y")), (1, Some("other"))]),
    ];
    assert_eq!(cycles(&locks), [[""; 0]; 0]);
}

#[test]
fn an_owner_is_the_same_in_all_sessions() {
    let locks = [
        mutex("/a", &[(1, Some("x")), (2, Some("y"))]),
        mutex("/b", &[(4, Some("y")), (3, Some("x"))]),
    ];
    assert_eq!(cycles(&locks).len(), 1);
}

#[test]
fn threads_that_take_turns_in_one_queue_are_no_cycle() {
    let locks = [mutex(
        "/a",
        &[(1, None), (2, None), (1, None), (2, None), (1, None)],
    )];
    assert_eq!(WaitForGraph::of(&locks).edges.len(), 4);
    assert_eq!(cycles(&locks), [[""; 0]; 0]);
}

#[test]
fn threads_of_one_session_that_contend_for_two_locks_are_no_cycle() {
    let locks = [
        mutex("/a", &[(1, None), (1, None)]),
        mutex("/b", &[(1, None), (2, None), (1, None)]),
    ];
    assert_eq!(cycles(&locks), [[""; 0]; 0]);
}

#[test]
fn owners_and_others_of_one_session_that_take_turns_are_no_cycle() {
    let locks = [
        mutex("/a", &[(1, None), (1, None), (1, None)]),
        mutex("/b", &[(1, Some("x")), (1, Some("y")), (1, Some("z"))]),
    ];
    assert_eq!(cycles(&locks), [[""; 0]; 0]);
}

#[test]
fn sessions_whose_threads_may_wait_for_each_other_are_told_of() {
    let locks = [
        mutex("/a", &[(1, None), (1, None), (2, None)]),
        mutex("/b", &[(2, None), (2, None), (1, None)]),
    ];
    assert_eq!(
        cycles(&locks),
        [[
            "session 0x2 waits for session 0x1 at /a",
            "session 0x1 waits for session 0x2 at /b"
        ]]
    );
}

/// All wait for the third session, which lets them in one after the other.
#[test]
fn wait_of_a_waiter_elsewhere_keeps_nobody_behind_it_waiting() {
    for owners in [[None, None], [Some("x"), Some("y")]] {
        let [one, other] = [(1, owners[0]), (2, owners[1])];
        let locks = [
            mutex("/a", &[(3, None), one, other]),
            mutex("/b", &[(3, None), other, one]),
        ];
        assert_eq!(WaitForGraph::of(&locks).edges.len(), 4);
        assert_eq!(cycles(&locks), [[""; 0]; 0]);
    }
}

#[test]
fn wait_of_a_candidate_is_no_edge() {
    let latch = lock(
        "/a",
        &[
            ("_c_a-latch-0000000000", 1, None),
            ("_c_b-latch-0000000001", 2, None),
        ],
    );
    let locks = [latch, mutex("/b", &[(2, None), (1, None)])];
    assert_eq!(WaitForGraph::of(&locks).edges.len(), 1);
    assert_eq!(cycles(&locks), [[""; 0]; 0]);
}

/// Who has the semaphore's mutex waits for permits.
#[test]
fn who_waits_for_permits_holds_nothing() {
    let leases = lock("/s/leases", &[("_c_a-lease-0000000000", 1, None)]);
    let queue = mutex("/s/locks", &[(1, None), (2, None)]);
    let other = mutex("/t", &[(2, None), (1, None)]);
    let locks = [leases, queue, other];
    let graph = WaitForGraph::of(&locks);
    let held: Vec<_> = graph.edges.iter().map(|it| it.is_held).collect();
    assert_eq!(held, [false, true]);
    assert_eq!(cycles(&locks), [[""; 0]; 0]);
    // Without leases beside it, it is a mutex like any other.
    let [_, queue, other] = locks;
    assert_eq!(cycles(&[queue, other]).len(), 1);
}

#[test]
fn task_that_waits_for_itself_is_a_cycle_of_one() {
    let locks = [mutex(
        "/a",
        &[(1, Some("x-task7")), (2, Some("y")), (1, Some("x-task7"))],
    )];
    assert_eq!(
        cycles(&locks),
        [["owner x-task7 waits for owner x-task7 at /a"]]
    );
}

#[test]
fn who_stands_between_without_need_is_left_out() {
    let locks = [
        mutex("/a", &[(1, Some("x")), (9, Some("victim")), (2, Some("y"))]),
        mutex("/b", &[(2, Some("y")), (1, Some("x"))]),
    ];
    assert_eq!(
        cycles(&locks),
        [[
            "owner y waits for owner x at /a",
            "owner x waits for owner y at /b"
        ]]
    );
}

#[test]
fn writer_between_two_readers_is_needed_for_their_cycle() {
    let locks = [
        lock(
            "/a",
            &[
                ("_c_a-__READ__0000000000", 1, Some("x")),
                ("_c_b-__WRIT__0000000001", 9, Some("writer")),
                ("_c_c-__READ__0000000002", 2, Some("y")),
            ],
        ),
        mutex("/b", &[(2, Some("y")), (1, Some("x"))]),
    ];
    assert_eq!(
        cycles(&locks),
        [[
            "owner writer waits for owner x at /a",
            "owner x waits for owner y at /b",
            "owner y waits for owner writer at /a"
        ]]
    );
}

#[test]
fn owner_whose_record_was_replaced_by_a_request_is_still_found_by_the_session() {
    let mut locks = [
        mutex("/a", &[(1, Some("x")), (2, Some("y"))]),
        mutex("/b", &[(2, Some("y")), (1, Some("x"))]),
    ];
    let revoked = &mut locks[0].contenders[0].participant;
    revoked.data = REVOKE.to_vec();
    assert!(revoked.revocation_requested());
    assert_eq!(
        cycles(&locks),
        [[
            "owner y waits for session 0x1 at /a",
            "owner x waits for owner y at /b"
        ]]
    );
}

#[test]
fn every_deadlock_is_told_and_a_longer_one_beside_a_shorter_too() {
    let locks = [
        mutex("/a", &[(1, Some("x")), (2, Some("y"))]),
        mutex("/b", &[(2, Some("y")), (1, Some("x"))]),
        mutex("/c", &[(3, Some("z")), (2, Some("y"))]),
        mutex("/d", &[(1, Some("x")), (3, Some("z"))]),
    ];
    let found = cycles(&locks);
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!((found[0].len(), found[1].len()), (2, 3));
}

#[test]
fn cycles_do_not_depend_on_the_order_of_the_locks() {
    let mut locks: Vec<_> = (0..20)
        .map(|it| {
            let (one, next) = (format!("o{it}"), format!("o{}", (it + 1) % 20));
            let other = format!("o{}", (it + 7) % 20);
            mutex(
                &format!("/{it:02}"),
                &[
                    (1, Some(one.as_str())),
                    (2, Some(next.as_str())),
                    (3, Some(other.as_str())),
                ],
            )
        })
        .collect();
    let (wanted, dot) = (cycles(&locks), WaitForGraph::of(&locks).to_dot());
    assert!(!wanted.is_empty());
    for _ in 0..20 {
        locks.rotate_left(7);
        assert_eq!(cycles(&locks), wanted);
        assert_eq!(WaitForGraph::of(&locks).to_dot(), dot);
    }
}

#[test]
fn no_more_than_a_thousand_cycles_are_told() {
    let pairs = (0..1_200).flat_map(|it| {
        let (one, other) = (format!("x{it}"), format!("y{it}"));
        let (one, other) = ((1, Some(one.as_str())), (2, Some(other.as_str())));
        [
            mutex(&format!("/{it}/a"), &[one, other]),
            mutex(&format!("/{it}/b"), &[other, one]),
        ]
    });
    let locks: Vec<_> = pairs.collect();
    assert_eq!(cycles(&locks).len(), 1_000);
}

/// One relation for each pair of nodes would take minutes.
#[test]
fn long_queues_have_one_relation_for_each_that_waits() {
    let contenders = vec![(1, None); 10_000];
    let others = vec![(2, None); 10_000];
    let locks = [
        mutex("/a", &contenders),
        mutex("/b", &contenders),
        mutex("/c", &others),
    ];
    assert_eq!(WaitForGraph::of(&locks).edges.len(), 3 * 9_999);
    assert_eq!(cycles(&locks), [[""; 0]; 0]);
}

#[test]
fn a_stranger_in_front_is_waited_for_by_no_party_that_waits() {
    let lock = lock(
        "/a",
        &[("-stranger", 0, None), ("_c_a-lock-0000000000", 1, None)],
    );
    let [edge] = &WaitForGraph::of(&[lock]).edges[..] else {
        panic!("one edge")
    };
    assert_eq!(edge.to_string(), "session 0x1 waits for no session at /a");
}

#[test]
fn graphviz_gets_parties_locks_and_marks() {
    let locks = [
        mutex("/a\"\\", &[(1, Some("x")), (2, Some("y"))]),
        mutex("/b", &[(2, Some("y")), (1, Some("x")), (3, None)]),
    ];
    assert_eq!(
        WaitForGraph::of(&locks).to_dot(),
        r#"digraph waits {
  node [shape=box];
  p1 [label="owner x\nsession 0x1"];
  p0 [label="owner y\nsession 0x2"];
  p2 [label="session 0x3"];
  p0 -> p1 [label="/a\"\\", color=red];
  p1 -> p0 [label="/b", color=red];
  p2 -> p1 [label="/b", style=dashed];
}
"#
    );
}

/// Otherwise a client that may write nodes could write to the operator's terminal.
#[test]
fn graphviz_gets_no_orders_from_owners_and_paths() {
    let owner = "x\u{1b}]0;y\u{9b}2J\u{202e}z\nsession 0x9";
    let locks = [mutex("/a\u{2066}", &[(1, Some(owner)), (2, Some("y"))])];
    let dot = WaitForGraph::of(&locks).to_dot();
    assert!(dot.chars().all(|c| c == '\n' || is_text(c)), "{dot:?}");
    let label = r#"[label="owner x ]0;y 2J z session 0x9\nsession 0x1"]"#;
    assert!(
        dot.contains(label) && dot.contains(r#"[label="/a "]"#),
        "{dot}"
    );
    assert_eq!(dot.lines().count(), 6, "{dot}");
}

#[test]
fn directory_that_only_strangers_block_is_shown_where_it_is_asked_for() {
    let directory = |name: &str| {
        let shown = lock("/a", &[(name, 0, None), ("_c_a-lock-0000000009", 1, None)]);
        let stranger = shown.contenders.into_iter().find(|it| it.mode.is_none());
        let Contender {
            participant,
            is_readable,
            ..
        } = stranger.unwrap();
        Directory {
            nodes: vec![ReadNode {
                participant,
                is_readable,
            }],
            ..Directory::default()
        }
    };
    for (name, recipe) in [
        ("lock-0000000001", Recipe::Mutex),
        ("x-__WRIT__0000000001", Recipe::ReadWrite),
    ] {
        assert!(lock_in("/a", directory(name), Shown::Contenders).is_none());
        let shown = lock_in("/a", directory(name), Shown::Strangers).unwrap();
        assert_eq!((shown.recipe, shown.contenders.len()), (recipe, 1));
        assert_eq!(shown.contenders[0].standing, Standing::Stranger);
    }
    let other = lock_in("/a", directory("block-0000000001"), Shown::Strangers);
    assert_eq!(other, None);
}
