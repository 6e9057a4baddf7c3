//! Explores the shipped order with a model checker, in every order of events: contenders of one
//! process that may give up at any moment, a contender of another process, nodes that are deleted,
//! and connections that are lost.
//!
//! A node may be gone long before any contender of the process is notified. A guard of such a node
//! is no fault, because an operator has deleted it. Handing it on is a fault, unless a watch that
//! was set on this connection is going to report the deletion.
//!
//! The queue between processes is taken as right, because [`acquire`](crate::acquire) has a model
//! for it: a contender that enters goes to its end, and the contender whose node is first holds.

use stateright::{Checker, HasDiscoveries, Model, Property};

use super::*;

mod process;

use process::Process;

const HANDOFFS: u32 = 1;
/// More contenders than one node can be handed on to.
const OURS: usize = 3;
/// The same for runs that may take minutes.
const OURS_LONG: usize = 4;
const ROUNDS: u8 = 2;

/// A node that goes with the turn: the number of its create.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Node {
    Nothing,
    Waits(u8),
    /// The number of its create, and how many times it was handed on.
    Held(u8, u32),
}

/// What a contender of our process does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Away,
    /// Waits for its turn.
    Waiting(u64),
    /// Gave up, and has not left the order yet.
    Leaving(u64),
    /// Was sent the turn and has not received it yet.
    Given(Node),
    Queued(u8),
    Holding(u8, u32),
    /// Has a guard of a lock that is lost.
    Bereft,
}

impl Stage {
    fn has_turn(&self) -> bool {
        matches!(self, Self::Given(_) | Self::Queued(_) | Self::Holding(..))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Ours {
    stage: Stage,
    rounds_left: u8,
}

/// What the contender of another process does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Theirs {
    Away,
    Queued(u8),
    Holding(u8),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    order: LocalOrder<usize>,
    ours: Vec<Ours>,
    theirs: Theirs,
    their_rounds_left: u8,
    /// Critical sections of ours that the other process has waited for.
    waited_for: u32,
    /// The nodes, in the order of the queue.
    queue: Vec<u8>,
    nodes: u8,
    faults_left: u8,
    connections_left: u8,
    /// As `own_watch::Care` of the held node: it existed on this connection.
    is_verified: bool,
    /// A watch on this connection would report a deletion, and has reported nothing.
    is_watched: bool,
    /// A node was handed on without any evidence that it existed.
    is_broken: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Arrive(usize),
    GiveUp(usize),
    Leave(usize),
    Receive(usize),
    /// Its node is first. It had to wait and so has a watch, or not.
    Grant(usize, bool),
    Release(usize),
    /// An operator deletes our node.
    Lose,
    /// The watch on a held node reports its deletion.
    Hear,
    /// A waiting contender learns that its node is gone, and joins again at the end.
    Rejoin(usize),
    /// The connection is a new one: earlier watches and answers do not count any more.
    Reconnect,
    /// The epoch task looks at a held node and watches it.
    Look(usize),
    TheyArrive,
    TheyHold,
    TheyRelease,
}

impl World {
    fn enter(&mut self) -> u8 {
        self.nodes += 1;
        self.queue.push(self.nodes);
        self.nodes
    }

    fn delete(&mut self, node: u8) {
        self.queue.retain(|it| *it != node);
    }

    fn exists(&self, node: u8) -> bool {
        self.queue.contains(&node)
    }

    fn is_first(&self, node: u8) -> bool {
        self.queue.first() == Some(&node)
    }

    /// As `LocalQueue::pass` and its callers, with a node that no contender takes.
    fn pass(&mut self, node: Node) {
        while let Some(next) = self.order.pass() {
            let next = &mut self.ours[next].stage;
            if matches!(next, Stage::Waiting(_)) {
                *next = Stage::Given(node);
                return;
            }
        }
        if let Node::Waits(node) | Node::Held(node, _) = node {
            self.delete(node);
        }
    }

    /// As `Lease::retire`.
    fn release(&mut self, node: u8, handoffs: u32) {
        if self.is_verified && self.order.hands_on(handoffs) {
            self.pass(Node::Held(node, handoffs + 1));
        } else {
            self.delete(node);
            self.pass(Node::Nothing);
        }
    }

    fn hold(&mut self, index: usize, node: u8, handoffs: u32) {
        self.ours[index].stage = Stage::Holding(node, handoffs);
        if matches!(self.theirs, Theirs::Queued(_)) && self.exists(node) {
            self.waited_for += 1;
        }
    }

    /// As `Lease::vouch`.
    fn vouch(&mut self, node: u8) -> bool {
        if !(self.is_verified && self.is_watched) {
            self.is_verified = self.exists(node);
            return self.is_verified;
        }
        true
    }

    /// A lease is lost; its guard keeps no contender waiting.
    fn bereave(&mut self, index: usize) {
        self.ours[index].stage = Stage::Bereft;
        self.pass(Node::Nothing);
    }

    /// The node that our process holds or hands on, and its holder.
    fn held(&self) -> Option<(u8, Option<usize>)> {
        let ours = self.ours.iter().enumerate();
        let mut held = ours.filter_map(|(index, it)| match it.stage {
            Stage::Holding(node, _) => Some((node, Some(index))),
            Stage::Given(Node::Held(node, _)) => Some((node, None)),
            _ => None,
        });
        held.next()
    }

    fn steps_of(&self, index: usize, steps: &mut Vec<Step>) {
        let it = &self.ours[index];
        match it.stage {
            Stage::Away if it.rounds_left > 0 => steps.push(Step::Arrive(index)),
            Stage::Away => {}
            Stage::Waiting(_) => steps.push(Step::GiveUp(index)),
            Stage::Leaving(_) => steps.push(Step::Leave(index)),
            Stage::Given(_) => steps.extend([Step::Receive(index), Step::GiveUp(index)]),
            Stage::Queued(node) => {
                steps.push(Step::GiveUp(index));
                if self.is_first(node) {
                    steps.extend([true, false].map(|it| Step::Grant(index, it)));
                }
                if !self.exists(node) {
                    steps.push(Step::Rejoin(index));
                }
            }
            Stage::Holding(..) => {
                steps.push(Step::Release(index));
                if !(self.is_verified && self.is_watched) {
                    steps.push(Step::Look(index));
                }
            }
            Stage::Bereft => steps.push(Step::Release(index)),
        }
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each step")]
    fn take(&mut self, step: Step) {
        match step {
            Step::Arrive(index) => {
                self.ours[index].rounds_left -= 1;
                self.ours[index].stage = match self.order.take() {
                    true => Stage::Queued(self.enter()),
                    false => Stage::Waiting(self.order.enlist(index)),
                };
            }
            Step::GiveUp(index) => {
                let stage = std::mem::replace(&mut self.ours[index].stage, Stage::Away);
                match stage {
                    Stage::Waiting(ticket) => self.ours[index].stage = Stage::Leaving(ticket),
                    Stage::Given(node) => self.pass(node),
                    Stage::Queued(node) => self.pass(Node::Waits(node)),
                    _ => {}
                }
            }
            Step::Leave(index) => {
                if let Stage::Leaving(ticket) = self.ours[index].stage {
                    self.order.leave(ticket);
                    self.ours[index].stage = Stage::Away;
                }
            }
            Step::Receive(index) => match self.ours[index].stage.clone() {
                Stage::Given(Node::Nothing) => {
                    self.ours[index].stage = Stage::Queued(self.enter());
                }
                Stage::Given(Node::Waits(node)) => self.ours[index].stage = Stage::Queued(node),
                Stage::Given(Node::Held(node, handoffs)) if self.vouch(node) => {
                    self.is_broken |= !self.exists(node) && !self.is_watched;
                    self.hold(index, node, handoffs);
                }
                // The node was lost during the hand-off: the contender waits again.
                _ => {
                    self.ours[index].stage = Stage::Away;
                    self.ours[index].rounds_left += 1;
                    self.pass(Node::Nothing);
                }
            },
            Step::Grant(index, has_waited) => {
                if let Stage::Queued(node) = self.ours[index].stage {
                    (self.is_verified, self.is_watched) = (true, has_waited);
                    self.hold(index, node, 0);
                }
            }
            Step::Hear => {
                self.is_watched = false;
                self.is_verified = false;
                if let Some((_, Some(index))) = self.held() {
                    self.bereave(index);
                }
            }
            Step::Rejoin(index) => self.ours[index].stage = Stage::Queued(self.enter()),
            Step::Reconnect => {
                self.connections_left -= 1;
                (self.is_verified, self.is_watched) = (false, false);
            }
            Step::Look(index) => {
                if let Stage::Holding(node, _) = self.ours[index].stage {
                    let exists = self.exists(node);
                    (self.is_verified, self.is_watched) = (exists, exists);
                    if !exists {
                        self.bereave(index);
                    }
                }
            }
            Step::Release(index) => {
                let stage = std::mem::replace(&mut self.ours[index].stage, Stage::Away);
                if let Stage::Holding(node, handoffs) = stage {
                    self.release(node, handoffs);
                }
            }
            Step::Lose => self.lose(),
            Step::TheyArrive => {
                self.their_rounds_left -= 1;
                self.theirs = Theirs::Queued(self.enter());
                let holding = |it: &Ours| matches!(it.stage, Stage::Holding(..));
                self.waited_for = u32::from(self.ours.iter().any(holding));
            }
            Step::TheyHold => {
                if let Theirs::Queued(node) = self.theirs {
                    self.theirs = Theirs::Holding(node);
                }
            }
            Step::TheyRelease => {
                if let Theirs::Holding(node) = self.theirs {
                    self.delete(node);
                    self.theirs = Theirs::Away;
                }
            }
        }
    }

    fn lose(&mut self) {
        self.faults_left -= 1;
        let theirs = match self.theirs {
            Theirs::Queued(node) | Theirs::Holding(node) => Some(node),
            Theirs::Away => None,
        };
        self.queue.retain(|node| Some(*node) == theirs);
    }

    fn is_over(&self) -> bool {
        let is_done = |it: &Ours| it.stage == Stage::Away && it.rounds_left == 0;
        self.ours.iter().all(is_done) && self.theirs == Theirs::Away && self.their_rounds_left == 0
    }
}

#[test]
fn no_order_of_events_breaks_the_order() {
    let checker = Process
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .threads(2)
        .spawn_bfs()
        .join();
    eprintln!(
        "{} states, {} steps deep",
        checker.unique_state_count(),
        checker.max_depth()
    );
    checker.assert_properties();
}
