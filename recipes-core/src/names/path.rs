//! Lock paths: which are refused before any I/O.

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
pub(crate) fn is_refused(c: char) -> bool {
    matches!(
        c,
        '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..=char::MAX
    )
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
}
