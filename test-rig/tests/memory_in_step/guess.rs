//! Guesses which nodes exist, so that requests meet some. No verdict depends on it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use recipes_core::NodeMode;

use crate::random::Random;
use crate::script::Place;

#[derive(Clone, Debug)]
struct Node {
    owner: Option<usize>,
    created: u32,
}

/// Paths below the script's directory, which itself is the empty path.
#[derive(Clone, Debug)]
pub(crate) struct Guess(BTreeMap<String, Node>);

impl Default for Guess {
    fn default() -> Self {
        let directory = Node {
            owner: None,
            created: 0,
        };
        Self(BTreeMap::from([(String::new(), directory)]))
    }
}

impl Guess {
    pub(crate) fn any(&self, random: &mut Random) -> String {
        let paths: Vec<&String> = self.0.keys().collect();
        (*random.pick(&paths)).clone()
    }

    pub(crate) fn has(&self, place: &Place) -> bool {
        place.0 == "." || self.0.contains_key(&place.0)
    }

    /// Notes a create. Returns whether it should succeed.
    pub(crate) fn create(&mut self, place: &Place, mode: NodeMode, session: usize) -> bool {
        let Some((parent, _)) = place.0.rsplit_once('/') else {
            return false;
        };
        let Some(parent) = self.0.get_mut(parent).filter(|it| it.owner.is_none()) else {
            return false;
        };
        let (path, owner) = match mode {
            NodeMode::Persistent | NodeMode::Container => (place.0.clone(), None),
            NodeMode::Ephemeral => (place.0.clone(), Some(session)),
            NodeMode::EphemeralSequential => {
                (format!("{}{:010}", place.0, parent.created), Some(session))
            }
        };
        parent.created += 1;
        match self.0.entry(path) {
            Entry::Occupied(_) => false,
            Entry::Vacant(entry) => {
                entry.insert(Node { owner, created: 0 });
                true
            }
        }
    }

    /// Notes a delete. Returns whether it should succeed.
    pub(crate) fn delete(&mut self, place: &Place) -> bool {
        let below = format!("{}/", place.0);
        let is_empty = !self.0.keys().any(|path| path.starts_with(&below));
        is_empty && !place.0.is_empty() && self.0.remove(&place.0).is_some()
    }

    /// Notes the end of a session, which deletes its nodes.
    pub(crate) fn end(&mut self, session: usize) {
        self.0.retain(|_, node| node.owner != Some(session));
    }
}
