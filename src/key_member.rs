//! The members of a set of locks by key.

use recipes_core::LockKind;
use recipes_multilock::Member;

/// One lock of a set that a [`LockFactory`](crate::LockFactory) makes: a key and how it is held.
///
/// Any string becomes the [mutex](Self::mutex) of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a member does nothing outside a set"]
pub struct KeyMember {
    pub(crate) key: String,
    kind: LockKind,
}

impl KeyMember {
    /// Returns the mutex of a key.
    pub fn mutex(key: impl Into<String>) -> Self {
        let kind = LockKind::Mutex;
        Self {
            key: key.into(),
            kind,
        }
    }

    /// Returns the read/write lock of a key, held for reading.
    pub fn read(key: impl Into<String>) -> Self {
        let kind = LockKind::Read;
        Self {
            key: key.into(),
            kind,
        }
    }

    /// Returns the read/write lock of a key, held for writing.
    pub fn write(key: impl Into<String>) -> Self {
        let kind = LockKind::Write;
        Self {
            key: key.into(),
            kind,
        }
    }

    /// The member at this path, which is that of the key.
    pub(crate) fn at(&self, path: String) -> Member {
        Member::new(path, self.kind)
    }
}

impl<K: AsRef<str>> From<K> for KeyMember {
    fn from(key: K) -> Self {
        Self::mutex(key.as_ref())
    }
}
