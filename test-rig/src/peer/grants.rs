//! What contenders saw while they held the lock, and whether one queue explains it.

use super::PeerError;
use super::wire::Values;

/// Whether a grant excludes all others or only the exclusive ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GrantKind {
    /// A mutex or a write lock.
    Exclusive,
    /// A read lock.
    Shared,
}

/// What one contender saw while it held the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Grant {
    /// Whether the contender held the lock exclusively, and raised the counter.
    pub kind: GrantKind,
    /// The unguarded counter as it was read under the lock, before any write.
    pub value: u64,
    /// Sequence number of the contender's lock node.
    pub sequence: u32,
}

/// What the contenders on a read-write lock saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadWriteGrants {
    /// The most readers of this process that held the lock at the same time.
    pub readers_max: u32,
    /// Every grant, in no order.
    pub grants: Vec<Grant>,
}

/// A grant that first-come, first-served exclusion does not explain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Disorder {
    /// Two contenders held the lock at once: both read the counter before either wrote it.
    #[error("sequences {first} and {second} were both exclusive and both read {value}")]
    Together {
        /// What both read.
        value: u64,
        /// Sequence of one contender.
        first: u32,
        /// Sequence of the other contender.
        second: u32,
    },
    /// A contender was granted before one that is ahead of it, or after one that follows it.
    #[error("sequence {sequence} read {value}, but {expected} is its place in the queue")]
    Overtaken {
        /// Sequence of the contender.
        sequence: u32,
        /// What it read.
        value: u64,
        /// The counter's first value plus the number of exclusive contenders ahead.
        expected: u64,
    },
}

/// Checks that one first-come, first-served queue explains all grants, whichever process reported
/// them.
///
/// `grants` must be those of *all* processes that used the lock while the counter went up from
/// `first_value`, in any order. Do not use it for a lock whose parent was deleted meanwhile,
/// because sequences start again. Nor for reads under a write lock: they share or follow the
/// writer's place.
///
/// # Errors
///
/// [`Disorder::Together`] when exclusion is broken, else [`Disorder::Overtaken`] when order is.
pub fn check_grants(first_value: u64, grants: &[Grant]) -> Result<(), Disorder> {
    let mut exclusive: Vec<Grant> = grants
        .iter()
        .filter(|grant| grant.kind == GrantKind::Exclusive)
        .copied()
        .collect();
    exclusive.sort_unstable_by_key(|grant| (grant.value, grant.sequence));
    for (one, other) in exclusive.iter().zip(exclusive.iter().skip(1)) {
        if one.value == other.value {
            let (first, second) = (one.sequence, other.sequence);
            return Err(Disorder::Together {
                value: one.value,
                first,
                second,
            });
        }
    }
    let mut queue = grants.to_vec();
    queue.sort_unstable_by_key(|grant| grant.sequence);
    let mut expected = first_value;
    for Grant {
        kind,
        value,
        sequence,
    } in queue
    {
        if value != expected {
            return Err(Disorder::Overtaken {
                sequence,
                value,
                expected,
            });
        }
        expected += u64::from(kind == GrantKind::Exclusive);
    }
    Ok(())
}

/// Reads `VALUE:SEQUENCE`, or `KIND:VALUE:SEQUENCE`, from each value that is left.
pub(super) fn parse(values: &mut Values) -> Result<Vec<Grant>, PeerError> {
    let items = values.texts()?;
    items
        .iter()
        .map(|item| parse_item(item).ok_or_else(|| values.malformed()))
        .collect()
}

fn parse_item(item: &str) -> Option<Grant> {
    let mut parts = item.rsplit(':');
    let sequence = parts.next()?.parse().ok()?;
    let value = parts.next()?.parse().ok()?;
    let kind = match parts.next() {
        None | Some("write") => GrantKind::Exclusive,
        Some("read") => GrantKind::Shared,
        Some(_) => return None,
    };
    Some(Grant {
        kind,
        value,
        sequence,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(items: &[&str]) -> Vec<Grant> {
        items.iter().map(|item| parse_item(item).unwrap()).collect()
    }

    #[test]
    fn one_queue_over_readers_and_writers_is_in_order() {
        let seen = grants(&[
            "read:7:0",
            "write:7:1",
            "read:8:4",
            "read:8:2",
            "8:5",
            "write:9:9",
        ]);
        assert_eq!(check_grants(7, &seen), Ok(()));
        assert_eq!(check_grants(0, &[]), Ok(()));
    }

    #[test]
    fn two_inside_at_once_are_found() {
        let seen = grants(&["0:0", "1:2", "1:1"]);
        let together = Disorder::Together {
            value: 1,
            first: 1,
            second: 2,
        };
        assert_eq!(check_grants(0, &seen), Err(together));
    }

    #[test]
    fn overtaking_is_found_for_both_kinds() {
        let writers = check_grants(0, &grants(&["0:1", "1:0"]));
        assert_eq!(
            writers,
            Err(Disorder::Overtaken {
                sequence: 0,
                value: 1,
                expected: 0
            })
        );
        let reader = check_grants(0, &grants(&["write:0:0", "write:1:1", "read:1:2"]));
        assert_eq!(
            reader,
            Err(Disorder::Overtaken {
                sequence: 2,
                value: 1,
                expected: 2
            })
        );
    }

    #[test]
    fn items_of_another_form_are_refused() {
        for item in ["", "1", "x:1", "1:x", "-1:1", "delete:1:1"] {
            assert_eq!(parse_item(item), None, "{item:?}");
        }
    }
}
