//! The rule that decides on which ensemble the lock of a key is.

use std::sync::Arc;

use recipes_core::{ConfigError, Session};

use crate::sha256::first_word_of_digest;

/// One of several ensembles, with its name.
#[derive(Clone, Debug)]
pub(crate) struct Shard {
    pub(crate) name: String,
    pub(crate) session: Session,
}

/// Several ensembles, and the rule that spreads keys over them.
#[derive(Clone, Debug)]
pub(crate) struct Shards {
    first: Shard,
    others: Arc<[Shard]>,
}

impl Shards {
    pub(crate) fn new(shards: impl IntoIterator<Item = Shard>) -> Result<Self, ConfigError> {
        let mut all: Vec<Shard> = Vec::new();
        for shard in shards {
            if all.iter().any(|it| it.name == shard.name) {
                return Err(ConfigError::DuplicateShard { name: shard.name });
            }
            all.push(shard);
        }
        let mut all = all.into_iter();
        let first = all.next().ok_or(ConfigError::NoShards)?;
        let others = all.collect();
        Ok(Self { first, others })
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Shard> {
        std::iter::once(&self.first).chain(self.others.iter())
    }

    /// The shard of a key: rendezvous hashing, the highest weight wins.
    pub(crate) fn of(&self, key: &str) -> &Shard {
        let weight = |shard: &Shard| weight(&shard.name, key);
        let mut winner = (weight(&self.first), &self.first);
        for shard in self.others.iter() {
            let weight = weight(shard);
            // Names differ, so all processes decide a tie in the same way.
            if (weight, &shard.name) > (winner.0, &winner.1.name) {
                winner = (weight, shard);
            }
        }
        winner.1
    }
}

/// The weight of a key on a shard: the first 8 bytes, big-endian, of the SHA-256 of the shard's
/// name, a zero byte, and the key, both in UTF-8.
///
/// Fixed for ever: processes with different rules would take different locks for one key.
fn weight(shard: &str, key: &str) -> u64 {
    first_word_of_digest(&[shard.as_bytes(), &[0], key.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first sixteen digits of `printf 'a\0orders' | sha256sum` and so on.
    #[test]
    fn weights_are_the_same_for_ever_and_everywhere() {
        for (shard, key, want) in [
            ("a", "orders", 0x3fdc_0e44_ea2e_daf6),
            ("b", "orders", 0x49ff_d3b3_694c_c5c8),
            ("", "", 0x6e34_0b9c_ffb3_7a98),
            ("zk-größe", "日本語/🚲", 0xff65_f366_cbaf_5d3d),
        ] {
            assert_eq!(weight(shard, key), want, "{shard:?} {key:?}");
        }
    }
}
