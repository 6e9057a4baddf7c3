//! Lock paths: which are refused before any I/O, and how a key becomes one path part.

use std::fmt::Write as _;

use crate::error::ConfigError;

/// Checks the path of a lock directory. The rules are the same for every store, so that a lock can
/// move to another: those of ZooKeeper, which are the strictest, and two of our own.
///
/// `/` is no lock (Curator accepts it and fails on every acquire), and `/zookeeper` is the store's
/// own.
///
/// # Errors
/// [`ConfigError::InvalidPath`] with the reason.
pub fn validate(path: &str) -> Result<(), ConfigError> {
    match flaw(path) {
        Some(reason) => Err(ConfigError::InvalidPath {
            path: path.to_owned(),
            reason,
        }),
        None => Ok(()),
    }
}

fn flaw(path: &str) -> Option<&'static str> {
    if path.is_empty() {
        return Some("it is empty");
    }
    let Some(parts) = path.strip_prefix('/') else {
        return Some("it does not start with '/'");
    };
    if parts.is_empty() {
        return Some("the root cannot be a lock");
    }
    if parts.ends_with('/') {
        return Some("it ends with '/'");
    }
    for part in parts.split('/') {
        if part.is_empty() {
            return Some("it has an empty part ('//')");
        }
        if part == "." || part == ".." {
            return Some("'.' and '..' are not resolved");
        }
    }
    if path.chars().any(is_refused) {
        return Some(
            "it has a character that no path may have (control, private use, or beyond U+FFEF)",
        );
    }
    if parts == "zookeeper" || parts.starts_with("zookeeper/") {
        return Some("'/zookeeper' belongs to the store");
    }
    None
}

/// The characters that ZooKeeper's `PathUtils.validatePath` and the client refuse.
///
/// The server looks at UTF-16 code units and refuses surrogates, so nothing beyond U+FFFF passes.
fn is_refused(c: char) -> bool {
    matches!(
        c,
        '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..=char::MAX
    )
}

/// Turns any string into one legal path part, and different strings into different parts.
///
/// ASCII letters, digits, `-`, `_` and characters beyond ASCII stay unchanged if a path may have
/// them. Everything else becomes `%` and two hex digits for each UTF-8 byte, as in URLs. The empty
/// string becomes `%`, which no other string does.
///
/// # Examples
/// ```
/// use recipes_core::{escape_key, unescape_key};
///
/// assert_eq!(escape_key("orders/2024 Q1"), "orders%2F2024%20Q1");
/// assert_eq!(unescape_key("orders%2F2024%20Q1").as_deref(), Some("orders/2024 Q1"));
/// ```
#[must_use]
pub fn escape_key(key: &str) -> String {
    if key.is_empty() {
        return "%".to_owned();
    }
    let mut part = String::with_capacity(key.len());
    for c in key.chars() {
        let plain = c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if plain || (!c.is_ascii() && !is_refused(c)) {
            part.push(c);
        } else {
            let mut bytes = [0; 4];
            for byte in c.encode_utf8(&mut bytes).bytes() {
                // Writing to a string does not fail.
                let _ = write!(part, "%{byte:02X}");
            }
        }
    }
    part
}

/// Returns the key that [`escape_key`] turns into `part`, `None` if there is none.
#[must_use]
pub fn unescape_key(part: &str) -> Option<String> {
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
    let key = String::from_utf8(bytes).ok()?;
    (escape_key(&key) == part).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_paths_pass() {
        for path in [
            "/a",
            "/locks/orders",
            "/a/zookeeper",
            "/zookeeper2",
            "/ä/日本",
            "/a/...",
        ] {
            assert!(validate(path).is_ok(), "{path}");
        }
    }

    #[test]
    fn bad_paths_are_refused_with_path_and_reason() {
        for path in [
            "",
            "a",
            "locks/a",
            "/",
            "/a/",
            "//a",
            "/a//b",
            "/.",
            "/a/..",
            "/a/./b",
            "/a\0b",
            "/a\n",
            "/\u{7f}",
            "/\u{9f}",
            "/\u{e000}",
            "/\u{fff0}",
            "/\u{ffff}",
            "/😀",
            "/zookeeper",
            "/zookeeper/quota",
        ] {
            let error = validate(path).unwrap_err().to_string();
            assert!(error.contains(&format!("{path:?}")), "{error}");
        }
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
    fn parts_that_no_key_makes_are_refused() {
        for part in ["", "a b", "%2", "%2f", "%41", "%zz", "%FF", "a/b", "%%"] {
            assert_eq!(unescape_key(part), None, "{part:?}");
        }
    }
}
