//! The encoding of ZooKeeper's records.

/// Reads from the front. Returns `None` if there are too few bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn left(&self) -> usize {
        self.0.len()
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn int(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(super) fn long(&mut self) -> Option<i64> {
        Some(i64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    /// `None` also for null, which is -1 bytes long.
    pub(super) fn buffer(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.int()?).ok()?;
        self.take(length)
    }

    pub(super) fn string(&mut self) -> Option<String> {
        String::from_utf8(self.buffer()?.to_vec()).ok()
    }
}
