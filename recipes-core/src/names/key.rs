//! A key as one part of a path, which no lock takes for a contender.

use std::fmt::Write as _;

use crate::names::node_name::{LockKind, PROTECTED};
use crate::names::order;
use crate::names::path::is_refused;

/// The lock kinds, whose markers make a name look like a node.
const KINDS: [LockKind; 3] = [LockKind::Mutex, LockKind::Read, LockKind::Write];

/// The start of a part that would sort among the numbers of a queue. It sorts after all of them,
/// and no escaped text has it.
const AFTER_THE_QUEUE: char = '~';

/// Turns any string into one legal path part, and different strings into different parts.
///
/// ASCII letters, digits, `-`, `_` and characters beyond ASCII stay unchanged if a path may have
/// them. Everything else becomes `%` and two hex digits for each UTF-8 byte, as in URLs. The empty
/// string becomes `%`, which no other string does.
///
/// # Guarantees
/// No lock takes the part for one of its contenders, neither a lock of this library nor Curator's.
/// So if a program uses the directory above as a lock, keys do not block it. A lock orders *all*
/// children of its directory: by the text after the last `lock-` (a mutex), or after `__READ__` and
/// `__WRIT__` (a read/write lock), or else by the whole name. It waits for each child that sorts
/// ahead of its own node, whose text is a number of ten digits, up to 2147483647. A part that may
/// do so, or that begins with Curator's `_c_`, is escaped further:
/// - the last characters of `lock-`, `__READ__`, `__WRIT__` and that `_c_` are written with `%`;
/// - `~` is put in front of parts that begin with `%` or `-`, and of those that still sort ahead,
///   such as `0-lock%2D1`.
///
/// A key that begins with a digit and has none of these texts stays as it is, because services in
/// other languages use numbers as they are: another path for them would be another lock. If the
/// directory above is a lock all the same, its numbers can pass the key, and it then waits for the
/// key's directory: `0815` after 815 million acquires, `0000000007` after 7.
///
/// # Examples
/// ```
/// # use recipes_core as lock_recipes;
/// use lock_recipes::{escape_key, unescape_key};
///
/// assert_eq!(escape_key("orders/2024 Q1"), "orders%2F2024%20Q1");
/// assert_eq!(unescape_key("orders%2F2024%20Q1").as_deref(), Some("orders/2024 Q1"));
/// assert_eq!(escape_key("lock-0000000000"), "lock%2D0000000000");
/// assert_eq!(escape_key("4711"), "4711");
/// assert_eq!(escape_key("-4711"), "~-4711");
/// ```
#[must_use]
pub fn escape_key(key: &str) -> String {
    let mut part = escape(key);
    if is_number(&part) || !part.starts_with(PROTECTED) && !may_precede_contenders(&part) {
        return part;
    }
    if let Some(rest) = part.strip_prefix(PROTECTED) {
        part = format!("{}{rest}", broken(PROTECTED));
    }
    for marker in KINDS.map(LockKind::marker) {
        part = part.replace(marker, &broken(marker));
    }
    if may_precede_contenders(&part) {
        part.insert(0, AFTER_THE_QUEUE);
    }
    part
}

/// Returns the key that [`escape_key`] turns into `part`, `None` if there is none.
#[must_use]
pub fn unescape_key(part: &str) -> Option<String> {
    let text = part.strip_prefix(AFTER_THE_QUEUE).unwrap_or(part);
    let key = decode(text)?;
    (escape_key(&key) == part).then_some(key)
}

/// Whether a part begins as a number and has no marker. Services in other languages use it as it
/// is.
fn is_number(part: &str) -> bool {
    let has_marker = KINDS.iter().any(|kind| part.contains(kind.marker()));
    !has_marker && part.starts_with(|first: char| first.is_ascii_digit())
}

/// Whether a lock of some kind would wait for a child of this name.
fn may_precede_contenders(name: &str) -> bool {
    KINDS
        .into_iter()
        .any(|kind| order::precedes_newcomers(kind, name))
}

/// The text with its last character escaped, so that it is no marker any more.
fn broken(marker: &str) -> String {
    let mut chars = marker.chars();
    let last = chars.next_back().map(percent).unwrap_or_default();
    chars.as_str().to_owned() + &last
}

/// Turns any text into one word. Records have such words; as a part of a path it may look like a
/// contender.
pub(crate) fn escape(text: &str) -> String {
    if text.is_empty() {
        return "%".to_owned();
    }
    let mut part = String::with_capacity(text.len());
    for c in text.chars() {
        let plain = c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if plain || (!c.is_ascii() && !is_refused(c)) {
            part.push(c);
        } else {
            part.push_str(&percent(c));
        }
    }
    part
}

/// Returns the text that [`escape`] turns into `part`, `None` if there is none.
pub(crate) fn unescape(part: &str) -> Option<String> {
    let text = decode(part)?;
    (escape(&text) == part).then_some(text)
}

/// `%` and two hex digits for each byte.
fn percent(c: char) -> String {
    let mut digits = String::new();
    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
        // Writing to a string does not fail.
        let _ = write!(digits, "%{byte:02X}");
    }
    digits
}

/// Reads every `%` with its digits, however the text was escaped.
fn decode(part: &str) -> Option<String> {
    if part == "%" {
        return Some(String::new());
    }
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.as_bytes();
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        if *byte == b'%' {
            let (digits, tail) = rest.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = tail;
        } else {
            bytes.push(*byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::names::node_name;
    use crate::names::order::Rank;
    use crate::names::path::validate;

    /// Texts of which keys are made that are easily taken for something else.
    const PIECES: [&str; 20] = [
        "",
        "lock-",
        "__READ__",
        "__WRIT__",
        "_c_",
        "lock",
        "__",
        "-",
        "%",
        "~",
        "2D",
        "5F",
        "0",
        "0000000000",
        "2147483647",
        "2147483648",
        "4711",
        "/",
        "a",
        "Größe",
    ];

    /// Every key of up to four pieces.
    fn keys() -> impl Iterator<Item = String> {
        let pieces = || PIECES.into_iter();
        let pairs = move || pieces().flat_map(move |a| pieces().map(move |b| format!("{a}{b}")));
        pairs().flat_map(move |front| pairs().map(move |back| format!("{front}{back}")))
    }

    #[test]
    fn keys_come_back_from_their_parts() {
        for key in [
            "",
            "%",
            "a",
            "a/b",
            ".",
            "..",
            "orders 2024",
            "ä",
            "日本",
            "😀",
            "\0",
            "\u{ffff}",
            "%2F",
            "zookeeper",
            "a-b_c",
            "line\nbreak",
            "\u{e000}",
        ] {
            let part = escape_key(key);
            assert!(
                validate(&format!("/locks/{part}")).is_ok(),
                "{key:?} -> {part:?}"
            );
            assert!(!part.contains('/'));
            assert_eq!(unescape_key(&part).as_deref(), Some(key), "{part:?}");
        }
    }

    #[test]
    fn keys_that_look_like_something_else_come_back_too() {
        for key in keys() {
            let part = escape_key(&key);
            let path = format!("/locks/{part}");
            assert!(validate(&path).is_ok() && !part.contains('/'), "{key:?}");
            assert_eq!(unescape_key(&part).as_deref(), Some(&*key), "{part:?}");
            assert_eq!(unescape(&escape(&key)).as_deref(), Some(&*key));
        }
    }

    #[test]
    fn no_key_sorts_into_the_queue_of_a_lock() {
        let numbers = ["-2147483648", "-000000001", "0000000000", "2147483647"];
        let contenders = KINDS.map(|kind| {
            let name = node_name::requested(Uuid::nil(), kind);
            (kind, numbers.map(|number| format!("{name}{number}")))
        });
        for key in keys() {
            let part = escape_key(&key);
            if is_number(&escape(&key)) {
                assert_eq!(part, escape(&key), "services in other languages have it so");
                continue;
            }
            for (kind, names) in &contenders {
                let is_after = |name: &String| Rank::new(*kind, &part) > Rank::new(*kind, name);
                assert!(names.iter().all(is_after), "{kind:?}: {key:?} -> {part:?}");
            }
            assert_eq!(node_name::kind(&part), None, "{key:?} -> {part:?}");
            assert!(!part.starts_with(PROTECTED), "{key:?} -> {part:?}");
        }
    }

    #[test]
    fn keys_that_no_lock_takes_for_a_contender_stay_as_they_are() {
        for key in [
            "4711",
            "0815",
            "0000000007",
            "2147483647",
            "order-4711",
            "3",
            "clock-tower",
            "block-x",
            "_",
            "__READ",
            "Größe",
            "lock-9",
        ] {
            assert_eq!(escape_key(key), key);
        }
        let mut changed = 0;
        for key in keys().filter(|key| escape_key(key) != escape(key)) {
            let part = escape(&key);
            let looks = part.starts_with(PROTECTED) || may_precede_contenders(&part);
            assert!(looks, "{part:?}");
            changed += 1;
        }
        assert!(changed > 10_000, "{changed}");
    }

    #[test]
    fn keys_that_look_like_nodes_are_escaped_where_they_do() {
        for (key, part) in [
            ("lock-0000000000", "lock%2D0000000000"),
            ("block-", "block%2D"),
            ("__READ__0000000007", "__READ_%5F0000000007"),
            ("__WRIT__", "__WRIT_%5F"),
            ("_c_x", "_c%5Fx"),
            ("_c_a-lock-0000000000", "_c%5Fa-lock%2D0000000000"),
            ("-x", "~-x"),
            ("7-lock-1", "7-lock%2D1"),
            ("0-lock-1", "~0-lock%2D1"),
            ("/", "~%2F"),
            ("", "~%"),
            ("~", "~%7E"),
        ] {
            assert_eq!(escape_key(key), part);
        }
    }

    #[test]
    fn parts_that_no_key_makes_are_refused() {
        for part in ["", "a b", "%2", "%2f", "%41", "%zz", "%FF", "a/b", "%%"] {
            assert_eq!(unescape_key(part), None, "{part:?}");
        }
        for part in [
            "%",
            "-x",
            "~4711",
            "~0815",
            "~~-x",
            "lock-0000000000",
            "lock%2D9",
            "~",
        ] {
            assert_eq!(unescape_key(part), None, "{part:?}");
        }
    }
}
