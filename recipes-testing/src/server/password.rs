//! The password of a session, which the server derives from the session's id.

/// The constant that ZooKeeper mixes into the id (`ZooKeeperServer.superSecret`).
const SUPER_SECRET: u64 = 0xB341_5C00;

/// Returns the password with which a client may take the session over.
///
/// The server keeps no passwords: `ZooKeeperServer.generatePasswd` computes them again from the id,
/// so that every server of an ensemble can check them.
pub(super) fn of_session(session_id: i64) -> [u8; 16] {
    let session_id = u64::from_be_bytes(session_id.to_be_bytes());
    let mut random = JavaRandom::new(session_id ^ SUPER_SECRET);
    let mut password = [0; 16];
    for chunk in password.chunks_mut(4) {
        chunk.copy_from_slice(&random.next_word());
    }
    password
}

/// `java.util.Random`: a linear congruential generator of 48 bits.
struct JavaRandom(u64);

impl JavaRandom {
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    const MASK: u64 = (1 << 48) - 1;

    fn new(seed: u64) -> Self {
        Self((seed ^ Self::MULTIPLIER) & Self::MASK)
    }

    /// Four bytes of `nextBytes`: the upper 32 bits of the state, lowest byte first.
    fn next_word(&mut self) -> [u8; 4] {
        self.0 = self.0.wrapping_mul(Self::MULTIPLIER).wrapping_add(0xB) & Self::MASK;
        let [_, _, a, b, c, d, _, _] = self.0.to_le_bytes();
        [a, b, c, d]
    }
}

#[cfg(test)]
mod tests {
    use super::of_session;

    /// Expected values printed by OpenJDK 17: `new Random(id ^ 0XB3415C00L).nextBytes(new byte[16])`.
    #[test]
    fn passwords_are_those_of_java() {
        for (id, password) in [
            (0, 0xf22a_cd4a_97e6_9d6d_20a4_9bb6_38ea_db38_u128),
            (1, 0x054c_c74a_3732_7db2_15e7_02e2_0c73_f005),
            (
                0x1000_1234_5678_abcd,
                0x0ee7_8c40_428d_13b7_b293_9c34_f5e5_6169,
            ),
            (-1, 0x20f6_2cb5_648d_c2d7_7147_1c8a_2486_a9ee),
        ] {
            assert_eq!(of_session(id), password.to_be_bytes(), "session {id:#x}");
        }
    }
}
