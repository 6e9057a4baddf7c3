//! Uuids of nodes that are gone, for the next nodes in the same directories.
//!
//! Some stores remember every name that was ever in a directory, and each makes the directory slower
//! ([`Traits::remembers_names`](crate::store::Traits)). There a directory should have no more names than nodes at a time. A name
//! with a uuid that is used again is still a new one: it ends with another number.
//!
//! A uuid is free once a node that is known by its name is known to be gone. One of a create without an answer never is.
//! Whoever has a node deletes it once, so its uuid is not freed while the next node has it. Only a session that is being closed
//! deletes nodes that others delete, too, and there nobody takes one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use crate::names::node_name;
use crate::sync::{Mutex, lock};

/// So many of the last are kept, at least.
const KEPT_MIN: usize = 4_096;

/// The free uuids of an epoch. A store may still list the nodes of an earlier one.
#[derive(Clone, Default)]
pub(crate) struct FreeUuids(Option<Arc<Mutex<Free>>>);

#[derive(Default)]
struct Free {
    young: BTreeMap<String, BTreeSet<Uuid>>,
    /// How many have come since the older ones did.
    count: usize,
    old: BTreeMap<String, BTreeSet<Uuid>>,
}

impl FreeUuids {
    /// Keeps none if the store forgets names anyway.
    pub(crate) fn new(remembers_names: bool) -> Self {
        Self(remembers_names.then(Arc::default))
    }

    /// The node with this path is gone.
    pub(crate) fn is_gone(&self, path: &str) {
        let Some(all) = &self.0 else {
            return;
        };
        let parts = path.rsplit_once('/');
        let named = parts.and_then(|(directory, name)| Some((directory, node_name::uuid(name)?)));
        if let Some((directory, uuid)) = named {
            lock(all).add(directory, uuid);
        }
    }

    /// Takes one of a node that was in this directory.
    pub(crate) fn take(&self, directory: &str) -> Option<Uuid> {
        lock(self.0.as_ref()?).take(directory)
    }
}

impl Free {
    fn add(&mut self, directory: &str, uuid: Uuid) {
        if self.count == KEPT_MIN {
            self.old = std::mem::take(&mut self.young);
            self.count = 0;
        }
        if let Some(of_directory) = self.old.get_mut(directory) {
            of_directory.remove(&uuid);
        }
        let of_directory = self.young.entry(directory.to_owned()).or_default();
        self.count += usize::from(of_directory.insert(uuid));
    }

    fn take(&mut self, directory: &str) -> Option<Uuid> {
        for generation in [&mut self.young, &mut self.old] {
            let Some(of_directory) = generation.get_mut(directory) else {
                continue;
            };
            // The same ones again and again.
            let uuid = of_directory.pop_first();
            if of_directory.is_empty() {
                generation.remove(directory);
            }
            if uuid.is_some() {
                return uuid;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(directory: &str, uuid: u128) -> String {
        let protection = node_name::protection(Uuid::from_u128(uuid));
        format!("{directory}/{protection}lock-0000000000000000057")
    }

    fn take(free: &FreeUuids, directory: &str) -> Option<u128> {
        free.take(directory).map(|uuid| uuid.as_u128())
    }

    #[test]
    fn uuid_of_a_node_that_is_gone_is_taken_once_and_in_its_directory() {
        let free = FreeUuids::new(true);
        free.is_gone(&path("/a", 1));
        free.is_gone(&path("/a", 2));
        free.is_gone("/a/data");
        free.is_gone("a");
        assert_eq!(take(&free, "/b"), None);
        // By a session that is being closed.
        free.is_gone(&path("/a", 2));
        assert_eq!(take(&free, "/a"), Some(1));
        assert_eq!(take(&free, "/a"), Some(2));
        assert_eq!(take(&free, "/a"), None);
    }

    #[test]
    fn directories_that_are_used_keep_theirs_and_the_others_do_not_grow() {
        let free = FreeUuids::new(true);
        let kept = || {
            let all = lock(free.0.as_ref().unwrap());
            let generations = [&all.young, &all.old].into_iter();
            generations
                .map(|it| it.values().map(BTreeSet::len).sum::<usize>())
                .sum::<usize>()
        };
        free.is_gone(&path("/used", 7));
        for directory in 0..4 * KEPT_MIN {
            free.is_gone(&path(&format!("/{directory}"), 8));
            let used = free.take("/used").unwrap();
            free.is_gone(&path("/used", used.as_u128()));
            assert!(kept() <= 2 * KEPT_MIN);
        }
        assert_eq!(take(&free, "/used"), Some(7));
        assert_eq!(take(&free, "/0"), None);
    }

    #[test]
    fn nothing_is_kept_for_a_store_that_forgets_names() {
        let free = FreeUuids::new(false);
        free.is_gone(&path("/a", 1));
        assert_eq!(take(&free, "/a"), None);
    }
}
