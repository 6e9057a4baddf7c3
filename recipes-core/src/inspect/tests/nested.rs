//! Owners that are nested in owners of other processes.

use super::{WaitForGraph, cycles, mutex};

#[test]
fn runs_that_were_nested_in_opposite_order_are_a_deadlock() {
    let locks = [
        mutex("/a", &[(1, Some("x")), (4, Some("y/v"))]),
        mutex("/b", &[(2, Some("y")), (3, Some("x/u/t"))]),
    ];
    let graph = WaitForGraph::of(&locks);
    assert_eq!(
        cycles(&locks),
        [[
            "owner y/v waits for owner x at /a",
            "owner x/u/t waits for owner y at /b"
        ]]
    );
    let dot = graph.to_dot();
    assert_eq!(dot.matches("style=dotted").count(), 2, "{dot}");
    assert_eq!(dot.matches("color=red").count(), 2, "{dot}");
}

#[test]
fn run_that_waits_for_the_run_around_it_is_a_deadlock_by_itself() {
    let locks = [mutex("/a", &[(1, Some("x")), (2, Some("x/u"))])];
    assert_eq!(cycles(&locks), [["owner x/u waits for owner x at /a"]]);
}

/// The other one ends by itself, whatever its neighbour waits for.
#[test]
fn runs_side_by_side_and_the_run_around_one_do_not_wait_for_each_other() {
    for (holder, waiter) in [("x/u", "x/w"), ("x/u", "x"), ("x", "xy/u")] {
        let locks = [
            mutex("/a", &[(1, Some(holder)), (2, Some("z"))]),
            mutex("/b", &[(2, Some("z")), (3, Some(waiter))]),
        ];
        assert_eq!(cycles(&locks), [[""; 0]; 0], "{holder} {waiter}");
    }
}
