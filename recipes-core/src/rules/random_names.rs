//! Names for random listings, in tests.

/// One sorts ahead of all sequences, the other after them.
pub(crate) const KAZOO_UUIDS: [&str; 2] = [
    "00000000000000000000000000000000",
    "ffffffffffffffffffffffffffffffff",
];

/// A server writes one digit less after a sign.
pub(crate) const NO_SEQUENCE: &str = "-0000000001";

/// `SplitMix64`.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).unwrap()
    }

    pub(crate) fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// A name as Curator makes it or nearly so, or one of parts that are easily mistaken.
    pub(crate) fn name(&mut self) -> String {
        let locks = ["lock-", "__READ__", "__WRIT__"];
        let markers = match self.below(4) {
            0 => [locks[0], "lease-", "latch-"],
            _ => locks,
        };
        let sequences = [
            "0000000000",
            "0000000001",
            "0000000002",
            "0000000003",
            "2147483646",
            "2147483647",
            "-2147483648",
            NO_SEQUENCE,
        ];
        if self.below(24) == 0 {
            return format!("{}__lock__{}", self.of(&KAZOO_UUIDS), self.of(&sequences));
        }
        if self.below(3) > 0 {
            let maker = self.of(&["a-", "b-", "c-", "d", "_", "", "__READ", "x-lock-"]);
            return format!("_c_{maker}{}{}", self.of(&markers), self.of(&sequences));
        }
        let parts = [
            &markers[..],
            &sequences,
            &[
                "_c_",
                "-",
                "_",
                "__",
                "READ__",
                "WRIT__",
                "__READ__WRIT__",
                "lock",
                "9",
                ":",
                "z",
            ],
            // In UTF-16 the third comes before the second, in UTF-8 after it.
            &["\u{e4}", "\u{ff5e}", "\u{1f600}"],
        ]
        .concat();
        (0..self.below(6)).map(|_| self.of(&parts)).collect()
    }
}
