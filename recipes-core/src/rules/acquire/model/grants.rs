//! What a contender concludes from its news, and whether a grant is justified.

use super::connection::Link;
use super::contender::Made;
use super::ensemble::is_front;
use super::names::id_of;
use super::requests::What;
use super::world::World;
use super::*;

impl World {
    pub(super) fn take(&mut self, index: usize, at: usize) {
        let it = &mut self.contenders[index];
        let (event, front) = it.take(at);
        let end = it.step(event);
        if let Some(Action::Grant(nodes)) = end {
            let may_wait = self.has_late_looks && self.faults_left > 0;
            let speaks_against = it.late.is_over() || it.own_news().is_some();
            it.granting = Some((nodes, front));
            if !may_wait && !speaks_against {
                self.doubt(index);
            }
            return;
        }
        self.concluded(index, end);
    }

    /// As `InFlight::doubt`: a grant, unless something speaks against it.
    pub(super) fn doubt(&mut self, index: usize) {
        let it = &mut self.contenders[index];
        let Some((nodes, front)) = it.granting.take() else {
            return;
        };
        let news = it.own_news().filter(|at| it.inbox[*at].arrived);
        let event = match news {
            Some(at) if it.link != Link::Down => it.take(at).0,
            _ if it.late.is_over() || it.link == Link::Down => Event::Lapsed,
            _ => return self.granted(index, &nodes, &front),
        };
        let end = it.step(event);
        self.concluded(index, end);
    }

    pub(super) fn concluded(&mut self, index: usize, end: Option<Action>) {
        match end {
            // No answer or deletion arrived on which the grant could rest.
            Some(Action::Grant(_)) => self.broken = Some("granted by a change of the connection"),
            end => self.ended(index, end),
        }
    }

    pub(super) fn ended(&mut self, index: usize, end: Option<Action>) {
        let Some(end) = end else { return };
        match end {
            Action::Fail(failure) if !self.needs_to(index, &failure) => {
                self.broken = Some("fails without need");
            }
            Action::Busy => {
                let is_left = |made: &Made| match made {
                    Made::Nothing => false,
                    Made::With => true,
                    Made::Node(id) => self.ensemble.lock(*id).is_some(),
                };
                if self.contenders[index].made.iter().any(is_left) {
                    self.broken = Some("is busy with a node left");
                }
            }
            _ => {}
        }
        let it = &mut self.contenders[index];
        it.end();
        it.machine = None;
        it.at = it.program.len();
    }

    /// Whether an attempt has a reason to fail.
    fn needs_to(&self, index: usize, failure: &Failure) -> bool {
        let it = &self.contenders[index];
        match failure {
            Failure::WriterGone { .. } => {
                let writer = it.writer().and_then(|it| self.ensemble.lock(it.id));
                it.is_beside && writer.is_none()
            }
            Failure::SequenceExhausted { member, sequence } => {
                let mut made = it.entered[*member].iter();
                made.any(|it| it.sequence == *sequence && !it.mark().is_in_order())
            }
            // Nothing here reaps that many times.
            Failure::ParentsVanish { .. }
            | Failure::OtherRecipe { .. }
            | Failure::BesideOthers { .. } => false,
        }
    }

    /// The ensemble refuses the first request of an attempt for good, which ends the attempt.
    pub(super) fn refuse(&mut self, index: usize) {
        let it = &mut self.contenders[index];
        let request = it.pipe.remove(0);
        if let What::Enter(members, _) = request.what {
            // As in `InFlight::next_event`: there is nothing to search for.
            for member in members {
                it.made[member] = Made::Nothing;
            }
        }
        it.end();
        it.machine = None;
        it.at = it.program.len();
    }

    /// Checks a grant at the moment in which it is made.
    fn granted(&mut self, index: usize, nodes: &[GrantedNode], front: &[u8]) {
        let it = &mut self.contenders[index];
        let mut held = Vec::new();
        for (member, node) in nodes.iter().enumerate() {
            let id = id_of(&node.name);
            let is_evident = match it.own_watches[member] {
                true => front.contains(&id),
                false => it.proved.contains(&id) && (nodes.len() > 1 || front.contains(&id)),
            };
            if !is_evident {
                self.broken = Some("granted by what was generated when it was not in front");
            }
            let made = it.entered[member].iter().find(|lock| lock.id == id);
            let Some(lock) = made.cloned() else {
                self.broken = Some("granted with the node of another create");
                return;
            };
            // An operator may have deleted it since.
            let is_struck = self.struck.contains(&id);
            // Nodes that are no lock's, or that will never hold, may be ahead of it by now.
            let mut locks = self.ensemble.locks.clone();
            locks.retain(|it| it.mark().is_in_order());
            if !is_struck && !is_front(&locks, id) {
                self.broken = Some("granted where it is not in front");
            }
            if !lock.mark().is_in_order() {
                self.broken = Some("granted beyond the end of the counter");
            }
            if node.czxid != i64::from(lock.czxid) {
                self.broken = Some("granted with a token of another node");
            }
            let tokens = &mut self.ensemble.dirs[usize::from(lock.dir)].tokens;
            let is_reader = lock.kind == LockKind::Read;
            let earlier = if is_reader { tokens.0 } else { tokens.1 };
            // Holders of permits do not exclude each other, so no token is late.
            let excludes = !it.is_beside && lock.kind != LockKind::Permit;
            if !is_struck && lock.czxid <= earlier && excludes {
                self.broken = Some("token does not rise");
            }
            if !it.is_beside {
                // A reader next to its writer keeps the writer's token.
                tokens.1 = tokens.1.max(lock.czxid);
            }
            if !is_reader {
                tokens.0 = tokens.0.max(lock.czxid);
            }
            held.push(lock);
        }
        if held.iter().any(|lock| lock.kind == LockKind::Permit) {
            // The mutex goes as soon as the leases are granted.
            it.doomed.push(held.remove(0).id);
        }
        it.held.push(held);
        it.clear();
        it.machine = None;
        it.at += 1;
        it.begin();
    }
}
