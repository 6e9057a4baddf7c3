//! The order of the children of a lock directory: Curator's, with the nodes of kazoo's lock at
//! their numbers.

use std::cmp::Ordering;

use crate::names::node_name::{self, LockKind};

/// How many digits a server appends to a name, as long as its counter is not negative.
const SEQUENCE_DIGITS: usize = 10;

/// The key that sorts last among all that a server numbers, 2^31 - 1.
const LAST_KEY: &str = "2147483647";

/// A child and its sort key, read from its name once.
///
/// Ordered as Curator's `LockInternalsSorter` does for this kind of lock: by key, as Java strings.
/// Equal keys are legitimate only for a writer and its own downgraded reader. Curator keeps the
/// server's order there; we put the writer first, then go by name. Only ranks of one kind of lock
/// may be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rank<'a> {
    /// The text after the last marker, or the whole name if there is none. In a mutex's queue, the
    /// sequence of a node of kazoo's.
    key: &'a str,
    pub(crate) name: &'a str,
}

impl<'a> Rank<'a> {
    pub(crate) fn new(kind: LockKind, name: &'a str) -> Self {
        let key = key(kind, name);
        Self { key, name }
    }
}

impl Ord for Rank<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_key = compare_as_java(self.key, other.key);
        by_key
            .then_with(|| is_writer(other.name).cmp(&is_writer(self.name)))
            .then_with(|| self.name.cmp(other.name))
    }
}

impl PartialOrd for Rank<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Whether a child makes readers wait.
pub(crate) fn is_writer(name: &str) -> bool {
    name.contains(LockKind::Write.marker())
}

/// Whether a child may sort ahead of a contender that joins from now on.
pub(crate) fn precedes_newcomers(kind: LockKind, name: &str) -> bool {
    // A tie is decided by the names, so it counts.
    compare_as_java(key(kind, name), LAST_KEY) != Ordering::Greater
}

/// Puts children in the order in which they are admitted.
pub(crate) fn sort(kind: LockKind, children: &mut [String]) {
    children.sort_by(|a, b| Rank::new(kind, a).cmp(&Rank::new(kind, b)));
}

fn key(kind: LockKind, name: &str) -> &str {
    if let Some(sequence) = sequence_of_ours(kind, name) {
        return sequence;
    }
    let behind = |name, kind: LockKind| behind_last(name, kind.marker());
    match kind {
        // Curator would compare the uuid, and pass by the node. kazoo counts on its number.
        LockKind::Mutex => {
            node_name::sequence_of_kazoo(name).unwrap_or_else(|| behind(name, LockKind::Mutex))
        }
        LockKind::Read | LockKind::Write => behind(behind(name, LockKind::Read), LockKind::Write),
        LockKind::Permit | LockKind::Latch => behind(name, kind),
    }
}

/// The key of a name as Curator and we make it, found without a search: ten digits, or those of a transaction,
/// after a dash and a marker of this kind of lock.
///
/// No marker ends in a digit, so that marker is the last one. The dash keeps a `__READ__` before it
/// from reaching into a `__WRIT__`.
pub(crate) fn sequence_of_ours(kind: LockKind, name: &str) -> Option<&str> {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    if digits != SEQUENCE_DIGITS && digits != node_name::REVISION_DIGITS {
        return None;
    }
    let (rest, sequence) = name.split_at_checked(name.len() - digits)?;
    let ends_in = |kind: LockKind| {
        let rest = rest.strip_suffix(kind.marker());
        rest.is_some_and(|rest| rest.ends_with('-'))
    };
    let is_ours = match kind {
        LockKind::Mutex | LockKind::Permit | LockKind::Latch => ends_in(kind),
        LockKind::Read | LockKind::Write => ends_in(LockKind::Read) || ends_in(LockKind::Write),
    };
    is_ours.then_some(sequence)
}

fn behind_last<'a>(name: &'a str, marker: &str) -> &'a str {
    name.rsplit_once(marker).map_or(name, |(_, text)| text)
}

/// `String.compareTo`: by UTF-16 code unit, which differs from UTF-8 order beyond U+FFFF.
fn compare_as_java(a: &str, b: &str) -> Ordering {
    if a.is_ascii() && b.is_ascii() {
        a.cmp(b)
    } else {
        a.encode_utf16().cmp(b.encode_utf16())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted<const N: usize>(kind: LockKind, names: [&str; N]) -> Vec<String> {
        let mut names = names.map(String::from).to_vec();
        sort(kind, &mut names);
        names
    }

    #[test]
    fn contenders_are_ordered_by_sequence_not_by_uuid() {
        assert_eq!(
            sorted(
                LockKind::Mutex,
                ["_c_a-lock-0000000002", "_c_b-lock-0000000000"]
            ),
            ["_c_b-lock-0000000000", "_c_a-lock-0000000002"]
        );
    }

    #[test]
    fn foreign_children_take_part_with_their_whole_name() {
        assert_eq!(
            sorted(
                LockKind::Mutex,
                ["zforeign", "_c_a-lock-0000000002", "-foreign"]
            ),
            ["-foreign", "_c_a-lock-0000000002", "zforeign"]
        );
    }

    #[test]
    fn contenders_of_other_languages_stand_at_their_numbers() {
        let curator = "_c_01234567-89ab-cdef-0123-456789abcdef-lock-0000000001";
        let go = "_c_fedcba9876543210fedcba9876543210-lock-0000000002";
        let kazoo = "ffffffffffffffffffffffffffffffff__lock__0000000003";
        let kazoo_as_curator = "00000000000000000000000000000000-lock-0000000004";
        let wanted = [curator, go, kazoo, kazoo_as_curator];
        for turns in 0..4 {
            let mut names = wanted;
            names.rotate_left(turns);
            assert_eq!(sorted(LockKind::Mutex, names), wanted);
        }
        // So a try finds the lock busy.
        assert!(precedes_newcomers(LockKind::Mutex, kazoo));
    }

    #[test]
    fn kazoos_nodes_have_no_place_among_readers_and_writers() {
        // kazoo's own readers and writers are not told apart from its mutex by their names.
        let kazoo = "ffffffffffffffffffffffffffffffff__lock__0000000000";
        for kind in [LockKind::Read, LockKind::Write] {
            assert_eq!(
                sorted(kind, [kazoo, "_c_a-__WRIT__0000000001"]),
                ["_c_a-__WRIT__0000000001", kazoo]
            );
            assert!(!precedes_newcomers(kind, kazoo));
        }
    }

    #[test]
    fn wrapped_sequences_come_first_as_in_curator() {
        assert_eq!(
            sorted(
                LockKind::Mutex,
                ["_c_a-lock-2147483647", "_c_b-lock--2147483648"]
            ),
            ["_c_b-lock--2147483648", "_c_a-lock-2147483647"]
        );
    }

    #[test]
    fn readers_and_writers_share_one_order_and_a_tie_puts_the_writer_first() {
        assert_eq!(
            sorted(
                LockKind::Read,
                [
                    "_c_c-__READ__0000000001",
                    "_c_a-__READ__0000000000",
                    "_c_b-__WRIT__0000000000"
                ]
            ),
            [
                "_c_b-__WRIT__0000000000",
                "_c_a-__READ__0000000000",
                "_c_c-__READ__0000000001"
            ]
        );
    }

    #[test]
    fn nodes_are_ordered_by_their_transactions_and_a_downgraded_reader_is_next_to_its_writer() {
        let names = [
            "_c_c-__WRIT__0000000000000000057",
            "_c_b-__READ__0000000000000000057+",
            "_c_a-__READ__0000000000000000058",
            "_c_a-__WRIT__0000000010000000000",
        ];
        let mut turned = names;
        turned.reverse();
        assert_eq!(sorted(LockKind::Write, turned), names);
        let found = sequence_of_ours(LockKind::Write, names[2]);
        assert_eq!(found, Some("0000000000000000058"));
        assert_eq!(sequence_of_ours(LockKind::Mutex, names[2]), None);
    }

    #[test]
    fn a_mutex_orders_read_write_nodes_behind_its_own() {
        assert_eq!(
            sorted(
                LockKind::Mutex,
                ["_c_a-__READ__0000000000", "_c_b-lock-0000000009"]
            ),
            ["_c_b-lock-0000000009", "_c_a-__READ__0000000000"]
        );
    }

    #[test]
    fn names_beyond_the_basic_plane_are_compared_as_java_does() {
        // U+1F600 is D83D DE00 in UTF-16, which sorts before U+FF5E. In UTF-8 it sorts after it.
        assert_eq!(
            sorted(LockKind::Mutex, ["\u{ff5e}", "\u{1f600}"]),
            ["\u{1f600}", "\u{ff5e}"]
        );
    }

    #[test]
    fn what_sorts_behind_the_digits_does_not_precede_newcomers() {
        for (name, want) in [
            ("_c_a-lock-0000000000", true),
            ("-foreign", true),
            ("zforeign", false),
            ("", true),
            ("0", true),
            ("1234", true),
            ("2147483647", true),
            ("2147483648", false),
            ("4711", false),
        ] {
            assert_eq!(precedes_newcomers(LockKind::Mutex, name), want, "{name}");
        }
    }
}
