//! Who of one process holds a lock next, where its contenders share one node of the queue.
//!
//! One of them has the *turn*: it alone contends with other processes, by the one node. Decisions
//! only; [`LocalQueue`](crate::local_queue::LocalQueue) carries them out.
//!
//! | what is passed on | to the next one | if nobody waits |
//! |---|---|---|
//! | the turn alone | the turn: it makes a node of its own | the turn is free |
//! | a node that still waits | the node, with its place in the queue | the node is withdrawn |
//! | a held node | the node, at most `handoffs_max` times in a row; then the turn alone | the node is deleted |

use std::collections::BTreeMap;

/// What goes with the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Passed {
    /// Nothing.
    Turn,
    /// A node that waits in the queue.
    Place,
    /// A node that is held.
    Hold,
}

/// The contenders of one process for one lock, first come first served. `W` is who waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LocalOrder<W> {
    handoffs_max: u32,
    /// How often the held node was handed on.
    handoffs: u32,
    is_taken: bool,
    next_ticket: u64,
    waiting: BTreeMap<u64, W>,
}

impl<W> LocalOrder<W> {
    /// Nobody contends; a held node is handed on at most so often in a row.
    pub(crate) fn new(handoffs_max: u32) -> Self {
        Self {
            handoffs_max,
            handoffs: 0,
            is_taken: false,
            next_ticket: 0,
            waiting: BTreeMap::new(),
        }
    }

    /// Takes the turn, unless somebody has it.
    pub(crate) fn take(&mut self) -> bool {
        !std::mem::replace(&mut self.is_taken, true)
    }

    /// Waits for the turn; returns the ticket to leave with.
    pub(crate) fn wait(&mut self, waiter: W) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting.insert(ticket, waiter);
        ticket
    }

    /// Waits no more.
    pub(crate) fn leave(&mut self, ticket: u64) {
        self.waiting.remove(&ticket);
    }

    /// Whether somebody of this process would get a held node.
    pub(crate) fn would_hand_on(&self) -> bool {
        self.handoffs < self.handoffs_max && !self.waiting.is_empty()
    }

    /// Passes the turn on to the one who waits longest: who that is, and what goes with it. `None`
    /// leaves the turn to whoever comes.
    pub(crate) fn pass(&mut self, passed: Passed) -> Option<(W, Passed)> {
        let passed = match passed {
            Passed::Hold if self.would_hand_on() => {
                self.handoffs += 1;
                Passed::Hold
            }
            Passed::Hold | Passed::Turn => {
                self.handoffs = 0;
                Passed::Turn
            }
            Passed::Place => Passed::Place,
        };
        let next = self.waiting.pop_first();
        self.is_taken = next.is_some();
        next.map(|(_, waiter)| (waiter, passed))
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
            order.wait(waiter);
        }
        order
    }

    #[test]
    fn one_contender_has_the_turn_until_it_passes_it_on_to_nobody() {
        let mut order = LocalOrder::<u32>::new(1);
        assert!(order.take());
        assert!(!order.take());
        assert_eq!(order.pass(Passed::Hold), None);
        assert!(order.take());
    }

    #[test]
    fn a_held_node_is_handed_on_so_often_in_a_row_and_then_the_next_one_makes_its_own() {
        let mut order = contended(2, 5);
        let passed: Vec<_> = (0..5).filter_map(|_| order.pass(Passed::Hold)).collect();
        let (node, turn) = (Passed::Hold, Passed::Turn);
        assert_eq!(
            passed,
            [(0, node), (1, node), (2, turn), (3, node), (4, node)]
        );
        assert_eq!(order.pass(Passed::Hold), None);
    }

    #[test]
    fn without_hand_offs_each_makes_its_own_node() {
        let mut order = contended(0, 1);
        assert!(!order.would_hand_on());
        assert_eq!(order.pass(Passed::Hold), Some((0, Passed::Turn)));
    }

    #[test]
    fn a_place_in_the_queue_is_kept_however_often_its_holder_gives_up() {
        let mut order = contended(1, 3);
        for waiter in 0..3 {
            assert_eq!(order.pass(Passed::Place), Some((waiter, Passed::Place)));
        }
        assert_eq!(order.pass(Passed::Place), None);
        assert!(order.take());
    }

    #[test]
    fn who_leaves_is_passed_over() {
        let mut order = contended(9, 1);
        let leaver = order.wait(1);
        order.wait(2);
        order.leave(leaver);
        assert_eq!(order.pass(Passed::Hold), Some((0, Passed::Hold)));
        assert_eq!(order.pass(Passed::Hold), Some((2, Passed::Hold)));
    }

    #[test]
    fn another_node_may_be_handed_on_as_often_as_the_one_before() {
        let mut order = contended(1, 4);
        assert_eq!(order.pass(Passed::Hold), Some((0, Passed::Hold)));
        // The node is lost.
        assert_eq!(order.pass(Passed::Turn), Some((1, Passed::Turn)));
        assert_eq!(order.pass(Passed::Hold), Some((2, Passed::Hold)));
        assert_eq!(order.pass(Passed::Hold), Some((3, Passed::Turn)));
    }
}
