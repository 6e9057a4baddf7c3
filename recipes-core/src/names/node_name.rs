//! Names of lock nodes: `_c_{uuid}-{marker}{sequence}`, as Curator writes them.

use uuid::Uuid;

pub(crate) use crate::kind::KINDS;
pub use crate::kind::LockKind;

/// The start of every name made with Curator's protection.
pub(crate) const PROTECTED: &str = "_c_";

/// The text between the uuid and the sequence in the names of kazoo's `Lock`.
const OF_KAZOO: &str = "__lock__";

/// How many digits the number of a transaction has, of a store that numbers nodes so.
pub const REVISION_DIGITS: usize = 19;

/// The end of the name of a reader next to its writer, in a store that numbers nodes by their transactions: it
/// has the writer's number in its name, which is not its own.
pub const BESIDE: char = '+';

/// How long the uuid of kazoo's names is: hexadecimal digits without dashes.
const KAZOO_UUID_LEN: usize = 32;

/// The start of every name made for one create, by which it is found again.
pub(crate) fn protection(uuid: Uuid) -> String {
    format!("{PROTECTED}{uuid}-")
}

/// The name to request; the server appends the sequence.
pub(crate) fn requested(uuid: Uuid, kind: LockKind) -> String {
    format!("{PROTECTED}{uuid}-{}", kind.marker())
}

/// The whole name of a node next to one with this sequence.
pub(crate) fn beside(uuid: Uuid, kind: LockKind, sequence: &str) -> String {
    format!("{PROTECTED}{uuid}-{}{sequence}", kind.marker())
}

/// Whether a name carries a uuid, and so belongs to one create and never comes back.
pub(crate) fn is_protected(name: &str) -> bool {
    uuid(name).is_some()
}

/// The uuid that a name carries.
pub(crate) fn uuid(name: &str) -> Option<Uuid> {
    let (uuid, rest) = name.strip_prefix(PROTECTED)?.split_at_checked(36)?;
    let uuid = rest.starts_with('-').then_some(uuid)?;
    Uuid::try_parse(uuid).ok()
}

/// The sequence that the store appended, `None` if the name has none. Those of one directory are compared.
///
/// Negative after the parent's counter has passed 2^31 - 1.
pub(crate) fn sequence(name: &str) -> Option<i64> {
    let text = sequence_text(name)?;
    let count = text.parse::<i32>().map(i64::from).ok();
    count.or_else(|| is_revision(text).then(|| text.parse().ok())?)
}

/// The sequence, if the parent has counted it. It is not one of a store that numbers its transactions.
pub(crate) fn count(name: &str) -> Option<i32> {
    let text = sequence_text(name).filter(|text| !is_revision(text));
    text?.parse().ok()
}

/// The sequence as it is written, with its leading zeros.
pub(crate) fn sequence_text(name: &str) -> Option<&str> {
    let name = name.strip_suffix(BESIDE).unwrap_or(name);
    let after_marker = KINDS
        .into_iter()
        .filter_map(|kind| name.rsplit_once(kind.marker()))
        .min_by_key(|(_, text)| text.len());
    after_marker
        .map(|(_, text)| text)
        .or_else(|| sequence_of_kazoo(name))
}

/// The sequence in a name that kazoo's `Lock` makes: `{uuid}__lock__{sequence}`.
///
/// Curator and kazoo order these nodes differently, but kazoo and this library agree: by the
/// sequence. The whole form is required, so that no name of another program is taken for it.
pub(crate) fn sequence_of_kazoo(name: &str) -> Option<&str> {
    let (uuid, sequence) = name.split_at_checked(KAZOO_UUID_LEN)?;
    let sequence = sequence.strip_prefix(OF_KAZOO)?;
    let is_digit = |it: u8| matches!(it, b'0'..=b'9' | b'a'..=b'f');
    (uuid.bytes().all(is_digit) && is_sequence(sequence)).then_some(sequence)
}

/// The kind of lock whose nodes have such names, `None` if none has.
///
/// Stricter than the sort order, which takes any text after a marker. Here the marker must be where
/// a recipe puts it, with a sequence as servers write it, so `block-0000000001` is no lock's node.
pub(crate) fn kind(name: &str) -> Option<LockKind> {
    let is_of = |kind: LockKind| {
        let Some((maker, sequence)) = name.rsplit_once(kind.marker()) else {
            return false;
        };
        let sequence = sequence.strip_suffix(BESIDE).unwrap_or(sequence);
        (maker.is_empty() || maker.ends_with('-')) && is_sequence(sequence)
    };
    KINDS
        .into_iter()
        .find(|kind| is_of(*kind))
        .or_else(|| sequence_of_kazoo(name).map(|_| LockKind::Mutex))
}

/// Whether a store appends this: a parent's count of at least ten places, a sign among them, or a revision.
fn is_sequence(text: &str) -> bool {
    let number = text.parse::<i32>();
    number.is_ok_and(|number| format!("{number:010}") == text) || is_revision(text)
}

/// Whether this is the number of a transaction, as a store appends it that counts nothing else.
pub(crate) fn is_revision(text: &str) -> bool {
    text.len() == REVISION_DIGITS && text.bytes().all(|it| it.is_ascii_digit())
}

/// The last part of an absolute path.
pub(crate) fn last_part(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requested_name_is_curators_prefix_uuid_and_marker() {
        let uuid = Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        let name = requested(uuid, LockKind::Mutex);
        assert_eq!(name, "_c_01234567-89ab-cdef-0123-456789abcdef-lock-");
        assert!(name.starts_with(&protection(uuid)));
        assert_eq!(super::uuid(&name), Some(uuid));
    }

    #[test]
    fn sequences_are_read_behind_the_last_marker() {
        for (name, want) in [
            (
                "_c_01234567-89ab-cdef-0123-456789abcdef-lock-0000000007",
                Some(7),
            ),
            (
                "_c_01234567-89ab-cdef-0123-456789abcdef-__READ__0000000012",
                Some(12),
            ),
            (
                "_c_01234567-89ab-cdef-0123-456789abcdef-__WRIT__2147483647",
                Some(i32::MAX.into()),
            ),
            (
                "_c_01234567-89ab-cdef-0123-456789abcdef-lock--2147483648",
                Some(i32::MIN.into()),
            ),
            ("lock-x-lock-0000000003", Some(3)),
            ("lock-", None),
            ("foreign", None),
            ("lock-99999999999999", None),
            ("_c_a-lock-0000000000000000057", Some(57)),
            ("_c_a-__READ__0000000000000000057+", Some(57)),
            ("_c_a-lock-9223372036854775807", Some(i64::MAX)),
            ("lock-9999999999999999999", None),
            (
                "0123456789abcdef0123456789abcdef__lock__0000000004",
                Some(4),
            ),
            ("0123456789abcdef0123456789abcdef__rlock__0000000004", None),
            ("", None),
        ] {
            assert_eq!(sequence(name), want, "{name}");
        }
    }

    #[test]
    fn number_of_a_transaction_is_no_count() {
        assert_eq!(count("_c_a-lock-0000000057"), Some(57));
        assert_eq!(count("_c_a-lock-0000000000000000057"), None);
        assert_eq!(count("lock-"), None);
    }

    #[test]
    fn a_kind_is_known_by_a_marker_in_its_place_and_a_whole_sequence() {
        for (name, want) in [
            ("_c_a-lock-0000000007", Some(LockKind::Mutex)),
            ("_c_a-__READ__0000000012", Some(LockKind::Read)),
            ("_c_a-__WRIT__2147483647", Some(LockKind::Write)),
            ("lock-0000000000", Some(LockKind::Mutex)),
            ("__READ__0000000000", Some(LockKind::Read)),
            ("_c_a-lock--2147483648", Some(LockKind::Mutex)),
            ("_c_a-lock--000000001", Some(LockKind::Mutex)),
            (
                "x-lock-0000000001-__WRIT__0000000002",
                Some(LockKind::Write),
            ),
            ("block-0000000001", None),
            ("lock-7", None),
            ("694d8a-lock-0000000000000000057", Some(LockKind::Mutex)),
            ("_c_a-__READ__0000000000000000057+", Some(LockKind::Read)),
            ("lock-000000000000000057", None),
            ("lock-+000000001", None),
            ("lock-9999999999", None),
            ("lock--0000000001", None),
            ("_c_a-lease-0000000001", Some(LockKind::Permit)),
            ("lease-0000000002", Some(LockKind::Permit)),
            ("release-0000000002", None),
            ("_c_a-latch-0000000001", Some(LockKind::Latch)),
            ("latch-7", None),
            (
                "0123456789abcdef0123456789abcdef-lock-0000000001",
                Some(LockKind::Mutex),
            ),
            (
                "_c_0123456789abcdef0123456789abcdef-lock-0000000001",
                Some(LockKind::Mutex),
            ),
            (
                "0123456789abcdef0123456789abcdef__lock__0000000001",
                Some(LockKind::Mutex),
            ),
            ("0d1f__lock__0000000001", None),
            ("lock-", None),
            ("", None),
        ] {
            assert_eq!(kind(name), want, "{name}");
        }
    }

    #[test]
    fn kazoos_names_are_known_by_their_whole_form() {
        const UUID: &str = "0123456789abcdef0123456789abcdef";
        for (name, want) in [
            (format!("{UUID}__lock__0000000007"), Some("0000000007")),
            (format!("{UUID}__lock__-2147483648"), Some("-2147483648")),
            (format!("{UUID}__lock__7"), None),
            (format!("{UUID}__lock__"), None),
            (format!("{UUID}__rlock__0000000007"), None),
            (format!("0{UUID}__lock__0000000007"), None),
            (format!("{}__lock__0000000007", UUID.to_uppercase()), None),
            (format!("{}__lock__0000000007", "z".repeat(32)), None),
            (format!("{}ä__lock__0000000007", "0".repeat(31)), None),
            (format!("_c_{UUID}__lock__0000000007"), None),
            (format!("{UUID}__lock__0000000007__lock__0000000008"), None),
            ("__lock__0000000007".to_owned(), None),
        ] {
            assert_eq!(sequence_of_kazoo(&name), want, "{name}");
        }
    }

    #[test]
    fn names_without_a_uuid_are_not_protected() {
        for name in [
            "",
            "_c_",
            "_c_x",
            "foreign",
            "_c_01234567-89ab-cdef-0123-456789abcdef",
            "ä",
        ] {
            assert!(!is_protected(name), "{name}");
        }
        let cut_in_a_character = format!("_c_{}ä-lock-0000000000", "0".repeat(35));
        assert!(!is_protected(&cut_in_a_character));
    }
}
