//! A store that forgets its last writes.

use tokio::time::Instant;

use super::{Judge, is_valid};

impl Judge {
    /// Nodes that an operator deleted, and of which their clients need not know it.
    pub(crate) fn untold(&self) -> Vec<String> {
        let believes = |node: &str| {
            let mut holds = self.holds.iter();
            holds.any(|hold| hold.node == node && is_valid(hold))
        };
        let untold = self.removed.iter().filter(|(node, removal)| {
            self.lifelines.is_unheard(**removal, removal.session) || believes(node)
        });
        untold.map(|(node, _)| node.clone()).collect()
    }

    /// Notes that the store has forgotten its last writes. These were the lock nodes before, each with
    /// its session. Whoever had one that was deleted and is back knows that it is gone, or has been without
    /// contact for so long that it has lost all it had.
    ///
    /// Nobody but its holder may believe in a lock whose node is gone, and that not for long. A node
    /// that is back blocks others, but its holder stays lost.
    pub(crate) fn forgot(&mut self, before: Vec<(String, i64)>) {
        self.forgot_at = Some(Instant::now());
        self.tell(|| "forgot".to_owned());
        for (node, session) in before {
            if !self.ensemble.exists(&node) && !self.removed.contains_key(&node) {
                let removal = self.lifelines.removal(session);
                self.tell(|| format!("forgot {node}"));
                self.forgotten.insert(node, removal);
            }
        }
        let ensemble = &self.ensemble;
        self.removed.retain(|node, _| !ensemble.exists(node));
        self.forgotten.retain(|node, _| !ensemble.exists(node));
        // What was written under a lock was in the same store.
        for (path, highest) in &mut self.tokens {
            *highest = Self::token_in(ensemble, path);
        }
    }
}
