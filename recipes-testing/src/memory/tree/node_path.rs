//! Paths, split so that the children of a node are neighbours in a sorted map.

use std::fmt;

use crate::memory::error::MemoryError;

/// An absolute path; the root has neither parent nor name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodePath {
    parent: String,
    name: String,
}

impl NodePath {
    pub(crate) fn root() -> Self {
        Self {
            parent: String::new(),
            name: String::new(),
        }
    }

    pub(crate) fn parse(path: &str) -> Result<Self, MemoryError> {
        if path == "/" {
            return Ok(Self::root());
        }
        let invalid = || MemoryError::InvalidPath(path.to_owned());
        let parts = path.strip_prefix('/').ok_or_else(invalid)?;
        if parts
            .split('/')
            .any(|part| matches!(part, "" | "." | "..") || part.contains(is_forbidden))
        {
            return Err(invalid());
        }
        let (parent, name) = path.rsplit_once('/').ok_or_else(invalid)?;
        let parent = if parent.is_empty() { "/" } else { parent };
        Ok(Self {
            parent: parent.to_owned(),
            name: name.to_owned(),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The parent; `None` for the root.
    pub(crate) fn parent(&self) -> Option<Self> {
        match self.parent.rsplit_once('/') {
            None => None,
            Some(("", "")) => Some(Self::root()),
            Some(("", name)) => Some(Self {
                parent: "/".to_owned(),
                name: name.to_owned(),
            }),
            Some((parent, name)) => Some(Self {
                parent: parent.to_owned(),
                name: name.to_owned(),
            }),
        }
    }

    /// Where the children of this node start in a sorted map.
    pub(crate) fn first_child(&self) -> Self {
        Self {
            parent: self.to_string(),
            name: String::new(),
        }
    }

    /// The child of this name.
    pub(crate) fn child(&self, name: &str) -> Self {
        Self {
            parent: self.to_string(),
            name: name.to_owned(),
        }
    }

    pub(crate) fn is_sibling(&self, other: &Self) -> bool {
        self.parent == other.parent
    }
}

impl fmt::Display for NodePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.parent.is_empty() {
            return f.write_str("/");
        }
        let parent = if self.parent == "/" { "" } else { &self.parent };
        write!(f, "{parent}/{}", self.name)
    }
}

/// Control characters, surrogates and private ones, and specials, as in the server's `PathUtils`.
fn is_forbidden(c: char) -> bool {
    matches!(u32::from(c), 0..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..=0xffff)
}

/// Whether `path` is `prefix` or below it.
pub(crate) fn is_within(path: &str, prefix: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    path.strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_lead_to_the_root() {
        let path = NodePath::parse("/a/b").unwrap();
        let parent = path.parent().unwrap();
        assert_eq!(parent, NodePath::parse("/a").unwrap());
        assert_eq!(parent.parent(), Some(NodePath::root()));
        assert_eq!(NodePath::root().parent(), None);
        assert_eq!(path.to_string(), "/a/b");
    }

    #[test]
    fn malformed_paths_are_refused() {
        for path in ["", "a", "/a/", "//a", "/a/../b", "/./a", "/a\0"] {
            assert!(NodePath::parse(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn a_prefix_ends_at_a_part() {
        assert!(is_within("/a/b", "/a"));
        assert!(is_within("/a", "/a"));
        assert!(is_within("/a", "/"));
        assert!(!is_within("/ab", "/a"));
    }
}
