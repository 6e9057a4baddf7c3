//! The order in which a contender takes what has arrived, and what it learns from it.

use super::connection::Link;
use super::contender::{Contender, Made};
use super::names::id_of;
use super::requests::{Item, Slot};
use super::*;

impl Contender {
    /// The items that the driver may take next. It looks at its own nodes first, then at one slot
    /// after the other, and items may arrive in between. When a slot is ready, it looks at its own
    /// nodes again.
    pub(super) fn takeable(&self) -> Vec<usize> {
        if self.link == Link::Down || self.granting.is_some() {
            return Vec::new();
        }
        let there = self.there();
        let ranks: Vec<_> = self.inbox.iter().map(|it| self.rank(&it.slot)).collect();
        let is_first = |(index, rank): (usize, &Option<(bool, usize)>)| {
            let (is_slot, _) = (*rank)?;
            let arrived = ranks.iter().take(there).flatten();
            let mut seen_before = arrived.filter(|it| it.0 == is_slot);
            let is_first = seen_before.all(|it| Some(*it) >= *rank);
            let arrived = ranks.iter().take(there.max(index + 1)).flatten();
            let mut own = arrived.filter(|(is_slot, _)| !is_slot);
            (is_first && !(is_slot && own.next().is_some())).then_some(index)
        };
        ranks.iter().enumerate().filter_map(is_first).collect()
    }

    /// How many items have arrived for certain.
    pub(super) fn there(&self) -> usize {
        self.inbox.iter().filter(|it| it.arrived).count()
    }

    /// Own nodes come before all slots; `None` if nothing waits for the item any more.
    fn rank(&self, slot: &Slot) -> Option<(bool, usize)> {
        match slot {
            Slot::Own(member) => self.own_watches[*member].then_some((false, *member)),
            slot => {
                let index = self.slots.iter().position(|it| it == slot);
                index.map(|index| (true, index))
            }
        }
    }

    /// The position of news of own nodes, arrived or in flight; the first member's come first.
    pub(super) fn own_news(&self) -> Option<usize> {
        let ranked = self.inbox.iter().enumerate();
        ranked
            .filter_map(|(index, it)| Some((self.rank(&it.slot)?, index)))
            .filter(|((is_slot, _), _)| !is_slot)
            .min()
            .map(|(_, index)| index)
    }

    /// Takes that item. Returns its event for the state machine, and the own nodes that were in
    /// front.
    pub(super) fn take(&mut self, index: usize) -> (Event, Vec<u8>) {
        let there = self.there().max(index + 1);
        let arrived = self.inbox.iter_mut().take(there);
        arrived.for_each(|it| it.arrived = true);
        let item = self.inbox.remove(index);
        if item.is_committed() && !item.is_old {
            self.renew();
        }
        let Item {
            slot,
            event,
            front,
            shown,
            ..
        } = item;
        // Items that were generated earlier and are read later are read with this known.
        for earlier in self.inbox.iter_mut().take(index) {
            earlier.front.clone_from(&front);
        }
        match slot {
            Slot::Own(member) => self.own_watches[member] = false,
            slot => self.slots.retain(|it| *it != slot),
        }
        match &event {
            Event::OwnWatched(member) => self.own_watches[*member] = true,
            Event::Searched(_) => self.proved.clear(),
            Event::Entered(entries) => {
                self.proved.clear();
                for (member, entry) in self.entering.iter().zip(entries) {
                    self.made[*member] = Made::Node(id_of(&entry.node.name));
                }
            }
            _ => {}
        }
        let mine = self.made.iter().zip(&self.own_watches);
        let watched = mine.filter_map(|(made, is_watched)| match made {
            Made::Node(id) if *is_watched && front.contains(id) => Some(*id),
            _ => None,
        });
        self.proved.extend(watched);
        self.proved.extend(shown);
        self.proved.sort_unstable();
        self.proved.dedup();
        (event, front)
    }
}
