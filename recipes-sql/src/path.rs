//! A path, in two parts.

/// Splits a path into that of its parent and the name. Those of the root are empty.
pub(crate) fn split(path: &str) -> (&str, &str) {
    match path {
        "/" => ("", ""),
        path => split_new(path),
    }
}

/// As [`split`], for a node that gets a sequence, to which a name may consist of that alone.
pub(crate) fn split_new(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some(parts) => parts,
        None => ("", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parent_of_the_root_is_none() {
        assert_eq!(split("/"), ("", ""));
        assert_eq!(split(""), ("", ""));
        assert_eq!(split_new("/"), ("/", ""));
    }

    #[test]
    fn path_is_split_at_its_last_slash() {
        assert_eq!(split("/a"), ("/", "a"));
        assert_eq!(split("/a/b/c-"), ("/a/b", "c-"));
        assert_eq!(split_new("/a/"), ("/a", ""));
    }
}
