//! The rule on listings written by hand, and on random ones beside the plain rule.

use super::*;
use crate::names::node_name::KINDS;
use crate::rules::random_names::{KAZOO_UUIDS, NO_SEQUENCE, Random};

fn names<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(String::from).to_vec()
}

fn wait_for<'a>(name: &'a str, before: Option<&'a str>, deletions_grant: bool) -> Verdict<'a> {
    Verdict::WaitFor(Blockers {
        nearest_first: [Some(name), before].into_iter().flatten().collect(),
        deletions_grant,
    })
}

/// Whether a contender that joined now would be admitted at once.
fn would_admit(kind: LockKind, children: &[String]) -> bool {
    ahead_of_newcomers(kind, children).is_none()
}

#[test]
fn the_first_contender_holds() {
    let children = names(["_c_b-lock-0000000001", "_c_a-lock-0000000000"]);
    assert_eq!(
        admit(LockKind::Mutex, &children, "_c_a-lock-0000000000"),
        Verdict::Granted
    );
}

#[test]
fn the_second_contender_is_granted_by_the_deletion_of_the_first() {
    let children = names(["_c_b-lock-0000000001", "_c_a-lock-0000000000"]);
    let verdict = admit(LockKind::Mutex, &children, "_c_b-lock-0000000001");
    assert_eq!(verdict, wait_for("_c_a-lock-0000000000", None, true));
}

#[test]
fn the_third_contender_watches_two_and_is_granted_by_the_deletion_of_both() {
    let children = names([
        "_c_c-lock-0000000002",
        "_c_a-lock-0000000000",
        "_c_b-lock-0000000001",
    ]);
    let verdict = admit(LockKind::Mutex, &children, "_c_c-lock-0000000002");
    assert_eq!(
        verdict,
        wait_for("_c_b-lock-0000000001", Some("_c_a-lock-0000000000"), true)
    );
}

#[test]
fn the_fourth_contender_watches_two_and_is_granted_by_neither() {
    let children: Vec<_> = (0..4).map(|n| format!("_c_x-lock-{n:010}")).collect();
    assert_eq!(
        admit(LockKind::Mutex, &children, "_c_x-lock-0000000003"),
        wait_for("_c_x-lock-0000000002", Some("_c_x-lock-0000000001"), false)
    );
}

#[test]
fn a_lease_holds_while_fewer_than_all_permits_are_ahead() {
    let children: Vec<_> = (0..4).map(|n| format!("_c_x-lease-{n:010}")).collect();
    let own = "_c_x-lease-0000000002";
    assert_eq!(admit_permit(3, &children, own), Verdict::Granted);
    let both = wait_for("_c_x-lease-0000000001", Some("_c_x-lease-0000000000"), true);
    assert_eq!(admit_permit(2, &children, own), both);
    assert_eq!(admit_permit(1, &children, own), both);
    assert_eq!(
        admit_permit(9, &children, "_c_x-lease-0000000009"),
        Verdict::Absent
    );
}

#[test]
fn a_child_that_is_no_lease_takes_a_permit() {
    let children = names(["zforeign", "_c_x-lease-0000000000"]);
    let own = "_c_x-lease-0000000000";
    assert_eq!(admit_permit(2, &children, own), Verdict::Granted);
    assert_eq!(
        admit_permit(1, &children, own),
        wait_for("zforeign", None, true)
    );
}

#[test]
fn near_the_wrap_deletions_give_no_permit() {
    let children = names(["_c_x-lease-2147483640", "_c_x-lease-2147483641"]);
    let own = "_c_x-lease-2147483641";
    let verdict = admit_permit(1, &children, own);
    assert_eq!(verdict, wait_for("_c_x-lease-2147483640", None, false));
}

#[test]
fn the_nearest_two_are_found_in_any_order_of_the_listing() {
    let mut children: Vec<_> = (0..5).map(|n| format!("_c_x-lock-{n:010}")).collect();
    for _ in 0..5 {
        children.rotate_left(1);
        assert_eq!(
            admit(LockKind::Mutex, &children, "_c_x-lock-0000000004"),
            wait_for("_c_x-lock-0000000003", Some("_c_x-lock-0000000002"), false)
        );
    }
}

#[test]
fn a_contender_whose_node_is_not_listed_is_absent_even_if_nobody_is_ahead() {
    assert_eq!(
        admit(LockKind::Mutex, &[], "_c_a-lock-0000000000"),
        Verdict::Absent
    );
}

#[test]
fn a_foreign_child_in_front_blocks() {
    let children = names(["-foreign", "_c_a-lock-0000000000"]);
    let verdict = admit(LockKind::Mutex, &children, "_c_a-lock-0000000000");
    assert_eq!(verdict, wait_for("-foreign", None, true));
}

#[test]
fn contenders_of_go_and_of_kazoo_ahead_block_by_their_numbers() {
    let go = "_c_fedcba9876543210fedcba9876543210-lock-0000000000";
    let kazoo = "ffffffffffffffffffffffffffffffff__lock__0000000001";
    let later = "00000000000000000000000000000000__lock__0000000003";
    let own = "_c_a-lock-0000000002";
    let children = names([kazoo, own, later, go]);
    let verdict = admit(LockKind::Mutex, &children, own);
    assert_eq!(verdict, wait_for(kazoo, Some(go), true));
    let children = names([own, later]);
    assert_eq!(admit(LockKind::Mutex, &children, own), Verdict::Granted);
}

#[test]
fn near_the_wrap_of_the_counter_a_deletion_does_not_grant() {
    let children = names(["_c_a-lock-2147483646", "_c_b-lock-2147483647"]);
    let verdict = admit(LockKind::Mutex, &children, "_c_b-lock-2147483647");
    assert_eq!(verdict, wait_for("_c_a-lock-2147483646", None, false));
}

#[test]
fn a_reader_waits_only_for_earlier_writers_and_for_the_nearest() {
    let children = names([
        "_c_a-__WRIT__0000000000",
        "_c_b-__READ__0000000001",
        "_c_c-__WRIT__0000000002",
        "_c_d-__READ__0000000003",
        "_c_e-__READ__0000000004",
        "_c_f-__WRIT__0000000005",
    ]);
    assert_eq!(
        admit(LockKind::Read, &children, "_c_e-__READ__0000000004"),
        wait_for(
            "_c_c-__WRIT__0000000002",
            Some("_c_a-__WRIT__0000000000"),
            true
        )
    );
    assert_eq!(
        admit(LockKind::Read, &children, "_c_b-__READ__0000000001"),
        wait_for("_c_a-__WRIT__0000000000", None, true)
    );
}

#[test]
fn readers_hold_together() {
    let children = names(["_c_a-__READ__0000000000", "_c_b-__READ__0000000001"]);
    assert_eq!(
        admit(LockKind::Read, &children, "_c_b-__READ__0000000001"),
        Verdict::Granted
    );
}

#[test]
fn a_writer_waits_for_readers_and_lists_again_behind_a_writer() {
    let children = names(["_c_a-__WRIT__0000000000", "_c_b-__WRIT__0000000001"]);
    assert_eq!(
        admit(LockKind::Write, &children, "_c_b-__WRIT__0000000001"),
        wait_for("_c_a-__WRIT__0000000000", None, false)
    );
}

#[test]
fn a_downgraded_reader_keeps_the_next_writer_out() {
    let children = names(["_c_a-__READ__0000000000", "_c_b-__WRIT__0000000001"]);
    assert_eq!(
        admit(LockKind::Write, &children, "_c_b-__WRIT__0000000001"),
        wait_for("_c_a-__READ__0000000000", None, false)
    );
}

#[test]
fn a_newcomer_would_be_admitted_where_nothing_blocks_it() {
    let mutex = names(["zforeign"]);
    assert!(would_admit(LockKind::Mutex, &mutex));
    assert!(!would_admit(LockKind::Mutex, &names(["-foreign"])));
    let reader = names(["_c_a-__READ__0000000000"]);
    assert!(would_admit(LockKind::Read, &reader));
    assert!(!would_admit(LockKind::Write, &reader));
    assert!(!would_admit(
        LockKind::Read,
        &names(["_c_a-__WRIT__0000000000"])
    ));
}

/// The rule as Curator words it, regardless of cost: fix the names for sorting
/// (`LockInternals.standardFixForSorting`, in `SortingLockInternalsDriver` once for each half),
/// sort, and look at the nodes in front.
fn admit_plainly<'a>(kind: LockKind, children: &'a [String], own: &str) -> Verdict<'a> {
    let mut sorted: Vec<&str> = children.iter().map(String::as_str).collect();
    sorted.sort_by_key(|name| {
        let is_writer = name.contains("__WRIT__");
        (fixed_for_sorting(kind, name), !is_writer, *name)
    });
    let Some(place) = sorted.iter().position(|name| *name == own) else {
        return Verdict::Absent;
    };
    let mut ahead = sorted[..place].to_vec();
    ahead.retain(|name| kind != LockKind::Read || name.contains("__WRIT__"));
    let in_sequence = node_name::count(own).is_some_and(|it| it < SEQUENCE_NEAR_WRAP);
    match ahead.as_slice() {
        [] => Verdict::Granted,
        [name] => wait_for(name, None, kind != LockKind::Write && in_sequence),
        [before, name] => wait_for(name, Some(before), kind != LockKind::Write && in_sequence),
        [.., before, name] => wait_for(name, Some(before), false),
    }
}

fn fixed_for_sorting(kind: LockKind, name: &str) -> Vec<u16> {
    // The nodes of kazoo's lock, which Curator leaves at their whole names.
    let of_kazoo = KAZOO_UUIDS.iter().find_map(|uuid| name.strip_prefix(uuid));
    let of_kazoo = of_kazoo.and_then(|rest| rest.strip_prefix("__lock__"));
    if let (LockKind::Mutex, Some(sequence)) = (kind, of_kazoo) {
        if sequence != NO_SEQUENCE {
            return sequence.encode_utf16().collect();
        }
    }
    let markers: &[&str] = match kind {
        LockKind::Mutex => &["lock-"],
        LockKind::Read | LockKind::Write => &["__READ__", "__WRIT__"],
        LockKind::Permit => &["lease-"],
        LockKind::Latch => &["latch-"],
    };
    let fixed = markers.iter().fold(name, |name, marker| {
        name.rfind(marker)
            .map_or(name, |at| name.split_at(at + marker.len()).1)
    });
    fixed.encode_utf16().collect()
}

#[test]
fn verdicts_on_random_listings_are_those_of_the_plain_rule() {
    let (mut granted, mut next, mut behind, mut absent) = (0, 0, 0, 0);
    for seed in 0..100_000 {
        let mut random = Random(seed);
        let kind = random.of(&KINDS);
        let mut children: Vec<_> = (0..random.below(8)).map(|_| random.name()).collect();
        let own = match children.len() {
            0 => random.name(),
            length if random.below(10) > 0 => children[random.below(length)].clone(),
            _ => random.name(),
        };
        // A directory has each name only once.
        let mut known = std::collections::BTreeSet::new();
        children.retain(|name| known.insert(name.clone()));
        let verdict = admit(kind, &children, &own);
        let plainly = admit_plainly(kind, &children, &own);
        assert_eq!(
            verdict, plainly,
            "seed {seed}: {kind:?} {own:?} in {children:?}"
        );
        let plainly_free = !children.iter().any(|child| {
            let fixed = fixed_for_sorting(kind, child);
            let last: Vec<u16> = "2147483647".encode_utf16().collect();
            let is_lease = child.rsplit_once("-lease-").is_some_and(|(_, number)| {
                number.len() == 10 && number.bytes().all(|it| it.is_ascii_digit())
            });
            let is_ahead = fixed <= last || (kind == LockKind::Permit && !is_lease);
            (kind != LockKind::Read || child.contains("__WRIT__")) && is_ahead
        });
        let is_free = would_admit(kind, &children);
        assert_eq!(
            is_free, plainly_free,
            "seed {seed}: {kind:?} in {children:?}"
        );
        *match verdict {
            Verdict::Granted => &mut granted,
            Verdict::WaitFor(it) if it.nearest_first.len() == 1 => &mut next,
            Verdict::WaitFor(_) => &mut behind,
            Verdict::Absent => &mut absent,
        } += 1;
    }
    let seen = [granted, next, behind, absent];
    assert!(seen.iter().all(|seen| *seen > 5_000), "{seen:?}");
}

#[test]
fn a_newcomer_to_a_semaphore_counts_what_is_no_lease_wherever_it_sorts() {
    for stranger in ["-stranger", "zstranger", "_c_a-lock-0000000001"] {
        let children = [stranger.to_owned()];
        let ahead = ahead_of_newcomers(LockKind::Permit, &children);
        assert_eq!(ahead, Some(stranger));
    }
    let mutex = ["zstranger".to_owned()];
    assert_eq!(ahead_of_newcomers(LockKind::Mutex, &mutex), None);
}

#[test]
fn transactions_are_numbered_for_ever() {
    assert!(queues_behind(
        LockKind::Mutex,
        "_c_a-lock-9000000000000000000"
    ));
    assert!(queues_behind(LockKind::Mutex, "_c_a-lock-0000000007"));
    assert!(!queues_behind(LockKind::Mutex, "_c_a-lock-2147483646"));
    assert!(!queues_behind(LockKind::Mutex, "stranger"));
}
