//! The greatest value seen so far, and the greatest value of the other groups.

/// Keeps the greatest value, and the greatest value of the other groups. That is enough to find the
/// greatest value outside any one group in constant time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Highest<G, V> {
    best: Option<(V, G, usize)>,
    other: Option<(V, G, usize)>,
}

impl<G, V> Default for Highest<G, V> {
    fn default() -> Self {
        Self {
            best: None,
            other: None,
        }
    }
}

impl<G: Copy + PartialEq, V: Copy + PartialOrd> Highest<G, V> {
    pub(super) fn insert(&mut self, value: V, group: G, index: usize) {
        let is_above = |it: Option<(V, G, usize)>| it.is_none_or(|(best, ..)| value > best);
        let entry = Some((value, group, index));
        let is_own = matches!(self.best, Some((_, best, _)) if best == group);
        if is_above(self.best) {
            if !is_own {
                self.other = self.best;
            }
            self.best = entry;
        } else if !is_own && is_above(self.other) {
            self.other = entry;
        }
    }

    /// The greatest value outside `group`, and its index.
    pub(super) fn outside(&self, group: G) -> Option<(V, usize)> {
        let entry = match self.best {
            Some((_, best, _)) if best == group => self.other,
            best => best,
        };
        entry.map(|(value, _, index)| (value, index))
    }
}
