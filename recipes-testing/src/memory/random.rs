//! The only source of randomness.

/// `splitmix64`: small, seedable, and good enough for the faults and identifiers of tests.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The same numbers for the same seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    #[expect(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, or 0 if `bound` is 0. The bias of the remainder does not matter to a
    /// test.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    /// True `rate` times in a thousand. Draws nothing at rate 0, so that a fault that is off does
    /// not change the rest of the run.
    pub fn per_mille(&mut self, rate: u16) -> bool {
        rate > 0 && self.below(1000) < u64::from(rate)
    }

    /// Shuffles items. Draws nothing for fewer than two.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for index in (1..items.len()).rev() {
            let other = self.below(index as u64 + 1);
            items.swap(index, usize::try_from(other).unwrap_or(index));
        }
    }

    /// The next two numbers.
    pub fn bytes(&mut self) -> [u8; 16] {
        (u128::from(self.next()) << 64 | u128::from(self.next())).to_be_bytes()
    }
}
