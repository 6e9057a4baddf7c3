//! Reads values of Jute, ZooKeeper's serialization, from untrusted bytes.
//!
//! Every read takes from the front of the bytes, or returns `None` if they do not contain the value.
//! Lengths are compared with the available bytes before they are used.
//!
//! A buffer of length -1 is null. The proxy has to understand whatever a client sends, so it reads
//! null as empty ([`Jute::buffer_or_empty`], [`Jute::string_lossy`]). The log of a server is
//! evidence, so a path in it must be there and be text ([`Jute::buffer`], [`Jute::string_strict`]).

/// What is left to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Jute<'a>(&'a [u8]);

impl<'a> Jute<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The number of bytes that are left.
    pub(crate) fn left(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn int(&mut self) -> Option<i32> {
        self.chunk().map(i32::from_be_bytes)
    }

    pub(crate) fn long(&mut self) -> Option<i64> {
        self.chunk().map(i64::from_be_bytes)
    }

    pub(crate) fn bool(&mut self) -> Option<bool> {
        self.chunk::<1>().map(|[byte]| byte != 0)
    }

    /// A buffer; `None` also for null, whose length is read.
    pub(crate) fn buffer(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.int()?).ok()?;
        self.take(length)
    }

    /// A buffer; null counts as empty.
    pub(crate) fn buffer_or_empty(&mut self) -> Option<&'a [u8]> {
        match self.int()? {
            -1 => Some(&[]),
            length => self.take(usize::try_from(length).ok()?),
        }
    }

    /// A string; `None` also for null, and for what is not UTF-8.
    pub(crate) fn string_strict(&mut self) -> Option<String> {
        String::from_utf8(self.buffer()?.to_vec()).ok()
    }

    /// A string; null counts as empty, and what is not UTF-8 is replaced.
    pub(crate) fn string_lossy(&mut self) -> Option<String> {
        let bytes = self.buffer_or_empty()?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    /// A list, each entry read with `entry`. `None` if one is missing.
    pub(crate) fn list<T>(
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

#[cfg(test)]
mod tests {
    use super::Jute;

    const NULL: [u8; 4] = (-1_i32).to_be_bytes();

    #[test]
    fn null_is_empty_or_nothing_as_the_reader_asks() {
        let mut lax = Jute::new(&NULL);
        assert_eq!(lax.buffer_or_empty(), Some(&[][..]));
        assert_eq!(Jute::new(&NULL).string_lossy(), Some(String::new()));
        let mut strict = Jute::new(&NULL);
        assert_eq!(strict.buffer(), None);
        assert_eq!(Jute::new(&NULL).string_strict(), None);
        assert_eq!((lax.left(), strict.left()), (0, 0));
    }

    #[test]
    fn text_that_is_not_utf_8_is_replaced_or_refused_as_the_reader_asks() {
        let bytes = [0, 0, 0, 2, b'a', 0xff];
        let lossy = Jute::new(&bytes).string_lossy();
        assert_eq!(lossy.as_deref(), Some("a\u{fffd}"));
        assert_eq!(Jute::new(&bytes).string_strict(), None);
    }

    #[test]
    fn other_negative_or_too_long_lengths_are_no_buffers() {
        for length in [-2, i32::MIN, 2, i32::MAX] {
            let bytes = [&length.to_be_bytes()[..], b"x"].concat();
            assert_eq!(Jute::new(&bytes).buffer(), None);
            assert_eq!(Jute::new(&bytes).buffer_or_empty(), None);
        }
    }
}
