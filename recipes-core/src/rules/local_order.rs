//! Which contender of a process is next when its contenders share one node of the queue.
//!
//! One of them has the *turn*: it alone competes with other processes, with that one node. This
//! module only decides; [`LocalQueue`](crate::lock::local_queue::LocalQueue) carries the decisions out.
//!
//! | the turn is given up with | the next contender gets | if no contender waits |
//! |---|---|---|
//! | nothing | the turn, and makes a node of its own | the turn is free |
//! | a node that waits | the node, with its place in the queue | the node is withdrawn |
//! | a held node, handed on fewer than `handoffs_max` times | the node | the node is deleted |
//! | a held node, otherwise | the turn alone; the node is deleted | the node is deleted |

use std::collections::BTreeMap;

/// The contenders of one process for one lock, first come, first served. `W` is a waiting one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LocalOrder<W> {
    handoffs_max: u32,
    is_taken: bool,
    next_ticket: u64,
    waiting: BTreeMap<u64, W>,
}

impl<W> LocalOrder<W> {
    /// An order without contenders. A held node is handed on at most `handoffs_max` times.
    pub(crate) fn new(handoffs_max: u32) -> Self {
        Self {
            handoffs_max,
            is_taken: false,
            next_ticket: 0,
            waiting: BTreeMap::new(),
        }
    }

    /// Takes the turn; false if another contender has it.
    pub(crate) fn take(&mut self) -> bool {
        !std::mem::replace(&mut self.is_taken, true)
    }

    /// Adds a contender that waits for the turn; returns the ticket to leave with.
    pub(crate) fn enlist(&mut self, waiter: W) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting.insert(ticket, waiter);
        ticket
    }

    /// Removes a contender that does not wait any more.
    pub(crate) fn leave(&mut self, ticket: u64) {
        self.waiting.remove(&ticket);
    }

    /// Whether a held node that was handed on this many times goes with the turn.
    pub(crate) fn hands_on(&self, handoffs: u32) -> bool {
        handoffs < self.handoffs_max && !self.waiting.is_empty()
    }

    /// Passes the turn to the contender that has waited longest; `None` if the turn is free now.
    pub(crate) fn pass(&mut self) -> Option<W> {
        let next = self.waiting.pop_first();
        self.is_taken = next.is_some();
        next.map(|(_, waiter)| waiter)
    }
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests {
    use super::*;

    fn contended(handoffs_max: u32, waiters: u32) -> LocalOrder<u32> {
        let mut order = LocalOrder::new(handoffs_max);
        assert!(order.take());
        for waiter in 0..waiters {
            order.enlist(waiter);
        }
        order
    }

    #[test]
    fn one_contender_has_the_turn_until_it_passes_it_on_to_nobody() {
        let mut order = contended(1, 1);
        assert!(!order.take());
        assert_eq!(order.pass(), Some(0));
        assert!(!order.take());
        assert_eq!(order.pass(), None);
        assert!(order.take());
    }

    #[test]
    fn a_held_node_is_handed_on_so_often_and_only_if_somebody_waits() {
        let order = contended(2, 1);
        assert_eq!(
            [0, 1, 2, 3].map(|it| order.hands_on(it)),
            [true, true, false, false]
        );
        assert!(!contended(2, 0).hands_on(0));
        assert!(!contended(0, 1).hands_on(0));
    }

    #[test]
    fn who_leaves_is_passed_over() {
        let mut order = contended(9, 1);
        let leaver = order.enlist(1);
        order.enlist(2);
        order.leave(leaver);
        assert_eq!(
            [order.pass(), order.pass(), order.pass()],
            [Some(0), Some(2), None]
        );
    }
}
