//! SHA-256 (FIPS 180-4), for the weights by which keys choose their shards.
//!
//! The crates that have it bring seven more into every service. The weights guard no secret, so it
//! need not be fast or take the same time for all input.

/// The fractional parts of the square roots of the first 8 primes.
const START: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// The fractional parts of the cube roots of the first 64 primes.
#[rustfmt::skip]
const ROUNDS: [u32; 64] = [
    0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5,
    0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174,
    0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da,
    0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7, 0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967,
    0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85,
    0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070,
    0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
    0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2,
];

/// The first 8 bytes of the digest of a message, big-endian.
pub(crate) fn first_word_of_digest(message: &[u8]) -> u64 {
    let mut padded = message.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    let bits = (message.len() as u64) * 8;
    padded.extend(bits.to_be_bytes());
    let [high, low, ..] = padded.chunks_exact(64).fold(START, compressed);
    u64::from(high) << 32 | u64::from(low)
}

/// The state after another block of 64 bytes.
fn compressed(state: [u32; 8], block: &[u8]) -> [u32; 8] {
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
    for (round, word) in ROUNDS.into_iter().zip(schedule(block)) {
        let sum = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
        let choice = (e & f) ^ (!e & g);
        let first = h
            .wrapping_add(sum)
            .wrapping_add(choice)
            .wrapping_add(round)
            .wrapping_add(word);
        let sum = a.rotate_right(2) ^ a.rotate_right(13) ^ a.rotate_right(22);
        let majority = (a & b) ^ (a & c) ^ (b & c);
        let second = sum.wrapping_add(majority);
        (h, g, f, e) = (g, f, e, d.wrapping_add(first));
        (d, c, b, a) = (c, b, a, first.wrapping_add(second));
    }
    let mut after = [a, b, c, d, e, f, g, h];
    for (word, before) in after.iter_mut().zip(state) {
        *word = word.wrapping_add(before);
    }
    after
}

/// The words of a block, and 48 more that each follow from four earlier ones.
fn schedule(block: &[u8]) -> impl Iterator<Item = u32> {
    let word = |bytes: &[u8]| {
        bytes
            .iter()
            .fold(0, |word, byte| word << 8 | u32::from(*byte))
    };
    let mut window = [0; 16];
    for (place, bytes) in window.iter_mut().zip(block.chunks_exact(4)) {
        *place = word(bytes);
    }
    std::iter::repeat_with(move || {
        let [
            first,
            second,
            _,
            _,
            _,
            _,
            _,
            _,
            _,
            tenth,
            _,
            _,
            _,
            _,
            last_but_one,
            _,
        ] = window;
        let small = second.rotate_right(7) ^ second.rotate_right(18) ^ (second >> 3);
        let large =
            last_but_one.rotate_right(17) ^ last_but_one.rotate_right(19) ^ (last_but_one >> 10);
        let next = first
            .wrapping_add(small)
            .wrapping_add(tenth)
            .wrapping_add(large);
        window.rotate_left(1);
        let [.., last] = &mut window;
        *last = next;
        first
    })
}

#[cfg(test)]
mod tests {
    use super::first_word_of_digest;

    /// The first sixteen digits of `printf ... | sha256sum`, around the lengths at which the padding
    /// takes another block.
    #[test]
    fn digests_are_those_of_the_standard() {
        let of = |length: usize| first_word_of_digest(&b"abcdefghij".repeat(20)[..length]);
        assert_eq!(first_word_of_digest(b"abc"), 0xba78_16bf_8f01_cfea);
        for (length, want) in [
            (0, 0xe3b0_c442_98fc_1c14),
            (1, 0xca97_8112_ca1b_bdca),
            (55, 0x4406_b993_1051_072b),
            (56, 0xbfcf_8730_3421_96ae),
            (63, 0x4cdd_0f4b_4d35_6151),
            (64, 0x2a94_c28f_8bed_8b90),
            (65, 0x5517_2f2b_9cf2_db21),
            (119, 0x2cf6_d6bc_f35e_ba96),
            (120, 0xdbfe_de18_9a82_6c86),
            (128, 0x3f2f_521d_fa98_b748),
            (200, 0x5d21_f71a_6600_f375),
        ] {
            assert_eq!(of(length), want, "{length}");
        }
        let million = vec![b'a'; 1_000_000];
        assert_eq!(first_word_of_digest(&million), 0xcdc7_6e5c_9914_fb92);
    }
}
