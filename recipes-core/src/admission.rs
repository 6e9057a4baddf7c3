//! Who may hold: the rule that a listing of the lock directory is put to.

use crate::node_name::{self, LockKind};
use crate::wait_queue;

/// From here to 2^31 the counter may wrap while a contender waits, and newcomers would then sort
/// in front of it: a deletion alone proves nothing any more.
const SEQUENCE_NEAR_WRAP: i32 = i32::MAX - 1_000_000;

/// Where a contender's node goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// At the tail of the queue, where the rule decides.
    Tail,
    /// Beside the node of a writer that this session holds, with its sequence: the place of a
    /// reader whose owner writes. Admitted as soon as it exists, since the writer is.
    Beside {
        /// The session that holds the writer's node.
        session: i64,
    },
}

/// What a listing says about one contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict<'a> {
    /// It may hold.
    Granted,
    /// It waits.
    WaitFor(Blocker<'a>),
    /// Its node is not in the listing.
    Absent,
}

/// Whom a contender waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocker<'a> {
    /// The nearest node that keeps it from holding.
    pub(crate) name: &'a str,
    /// The one that keeps it from holding before that, if there is one.
    pub(crate) before: Option<&'a str>,
    /// Whether the deletion of `name` is the grant, with no listing in between.
    ///
    /// True where nothing else is ahead and nothing can get ahead, since sequences only grow.
    /// Never for a writer: a writer that downgrades puts a reader in its own place.
    pub(crate) deletion_grants: bool,
}

/// Puts the rule of `kind` to a listing for the contender named `own`.
///
/// Curator `StandardLockInternalsDriver.getsTheLock` and
/// `InterProcessReadWriteLock.readLockPredicate`; differs: a reader waits for the nearest earlier
/// writer, not for the first one. The verdicts are the same.
pub(crate) fn admit<'a>(kind: LockKind, children: &'a [String], own: &str) -> Verdict<'a> {
    let mut present = false;
    let mut ahead = 0_usize;
    let mut nearest: Option<&str> = None;
    let mut before: Option<&str> = None;
    for child in children {
        if child == own {
            present = true;
        } else if blocks(kind, child) && wait_queue::compare(kind, child, own).is_lt() {
            ahead += 1;
            let is_nearer = |than: &str| wait_queue::compare(kind, child, than).is_gt();
            if nearest.is_none_or(is_nearer) {
                before = nearest.replace(child);
            } else if before.is_none_or(is_nearer) {
                before = Some(child);
            }
        }
    }
    match nearest {
        _ if !present => Verdict::Absent,
        None => Verdict::Granted,
        Some(name) => {
            let may_wrap = node_name::sequence(own).is_none_or(|own| own >= SEQUENCE_NEAR_WRAP);
            let deletion_grants = kind != LockKind::Write && ahead == 1 && !may_wrap;
            Verdict::WaitFor(Blocker {
                name,
                before,
                deletion_grants,
            })
        }
    }
}

/// Whether a contender that joined now would be admitted at once.
pub(crate) fn would_admit(kind: LockKind, children: &[String]) -> bool {
    !children
        .iter()
        .any(|child| blocks(kind, child) && wait_queue::precedes_newcomers(kind, child))
}

fn blocks(kind: LockKind, child: &str) -> bool {
    match kind {
        LockKind::Mutex | LockKind::Write => true,
        LockKind::Read => wait_queue::is_writer(child),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<const N: usize>(names: [&str; N]) -> Vec<String> {
        names.map(String::from).to_vec()
    }

    fn wait_for<'a>(name: &'a str, before: Option<&'a str>, deletion_grants: bool) -> Verdict<'a> {
        Verdict::WaitFor(Blocker {
            name,
            before,
            deletion_grants,
        })
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
    fn the_third_contender_watches_two_and_is_granted_by_neither() {
        let children = names([
            "_c_c-lock-0000000002",
            "_c_a-lock-0000000000",
            "_c_b-lock-0000000001",
        ]);
        let verdict = admit(LockKind::Mutex, &children, "_c_c-lock-0000000002");
        assert_eq!(
            verdict,
            wait_for("_c_b-lock-0000000001", Some("_c_a-lock-0000000000"), false)
        );
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
                false
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
}
