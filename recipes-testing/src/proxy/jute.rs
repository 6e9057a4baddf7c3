//! Reads values of ZooKeeper's serialization, Jute, from untrusted bytes.
//!
//! Every read takes from the front of the bytes, or fails if they do not contain the value. Lengths
//! are compared with the available bytes before they are used.

/// What is left to read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Jute<'a>(&'a [u8]);

impl<'a> Jute<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn int(&mut self) -> Option<i32> {
        self.chunk().map(i32::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> Option<i64> {
        self.chunk().map(i64::from_be_bytes)
    }

    pub(super) fn bool(&mut self) -> Option<bool> {
        self.chunk::<1>().map(|[byte]| byte != 0)
    }

    /// A buffer; a null one, of length -1, counts as empty.
    pub(super) fn buffer(&mut self) -> Option<&'a [u8]> {
        let length = self.int()?;
        if length == -1 {
            return Some(&[]);
        }
        let (buffer, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(buffer)
    }

    pub(super) fn string(&mut self) -> Option<String> {
        let bytes = self.buffer()?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    /// Skips a list, each entry with `entry`. Stops at the first that is missing.
    pub(super) fn list<T>(
        &mut self,
        mut entry: impl FnMut(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        // Every entry takes bytes, so a forged count costs no more than the bytes do.
        (0..self.int()?).map(|_| entry(self)).collect()
    }

    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*chunk)
    }
}
