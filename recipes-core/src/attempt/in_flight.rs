//! The requests and watches of an attempt that are in flight.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, TryFutureExt};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::attempt::cleanup_guard::CleanupGuard;
use crate::attempt::entering::Entering;
use crate::attempt::requests::{self, OwnNode, Refused};
use crate::error::{AcquireError, LostReason, Step};
use crate::lock::held_node::{LeaseBasis, MadeNode};
use crate::lock::lease::Lease;
use crate::lock::session::Session;
use crate::lock::target::Target;
use crate::names::token::FencingToken;
use crate::rules::acquire::{Action, Event, Failure, GrantedNode, Outcome};
use crate::session::cleanup::Deleted;
use crate::session::epoch::Epoch;
use crate::session::leftovers::{Leftovers, Made};
use crate::session::own_watch::OwnWatch;
use crate::session::tenant::Tenant;
use crate::store::nodes::{Nodes, NodesError};

mod news;
mod watches;

/// A request or watch in flight; at most one of each.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Slot {
    /// A probe, enter, make-parents, search or commit, for several members.
    Members,
    /// A number of permits that changes what is waited for.
    Permits,
    List(usize),
    Stat(usize),
    OwnWatch(usize),
    Blocker(usize, String),
}

/// A watch or request of the earlier connection, dropped once its replacement has been sent.
type Outdated<'a> = (
    Option<OwnWatch>,
    Option<BoxFuture<'a, Result<Answered, Refused>>>,
);

enum Answered {
    Event(Event),
    OwnWatch(usize, OwnNode),
}

/// The requests and watches of an attempt in one epoch.
///
/// Polled in a fixed order, so that a run can be replayed. Our own nodes come first: if our node
/// and the one ahead of it are both gone, we have lost our place and must not take the lock.
pub(crate) struct InFlight<'a> {
    pub(crate) epoch: &'a Arc<Epoch>,
    nodes: &'a Arc<dyn Nodes>,
    pub(crate) targets: &'a [Target],
    session: &'a Session,
    own_nodes: Vec<OwnNode>,
    slots: Vec<(Slot, BoxFuture<'a, Result<Answered, Refused>>)>,
    /// The number of permits by which the state machine decides.
    permits: Option<usize>,
    /// The connection that all current evidence came from.
    connection: u64,
    /// Of the store, as far as is known.
    runs: u64,
    /// Wakes the attempt when the connection changes.
    changes: BoxStream<'static, ()>,
    /// Watches and requests of the earlier connection, kept until they are replaced. Removing a
    /// watch without a replacement would cost a request.
    outdated: Vec<Outdated<'a>>,
    /// For each member, the highest transaction number that was seen before its first create with this uuid.
    floors: Vec<i64>,
    /// The members of the last create, in its order.
    entering: Vec<usize>,
    /// Withdrawals in flight, each with the path of its first lock.
    withdrawn: Vec<(Arc<str>, oneshot::Receiver<Deleted>)>,
    cleanup_guard: CleanupGuard<'a>,
}

impl<'a> InFlight<'a> {
    pub(crate) fn new(
        session: &'a Session,
        epoch: &'a Arc<Epoch>,
        nodes: &'a Arc<dyn Nodes>,
        targets: &'a [Target],
        leftovers: Arc<Leftovers>,
    ) -> Self {
        let cleanup = &session.core().cleanup;
        // Before any request is sent.
        let changes = epoch.link_changes();
        Self {
            connection: epoch.connection().unwrap_or_default(),
            runs: nodes.runs(),
            changes,
            outdated: Vec::new(),
            floors: vec![0; targets.len()],
            epoch,
            nodes,
            targets,
            session,
            own_nodes: targets.iter().map(|_| OwnNode::default()).collect(),
            permits: None,
            slots: Vec::new(),
            entering: Vec::new(),
            withdrawn: Vec::new(),
            cleanup_guard: CleanupGuard::new(cleanup, epoch, targets, leftovers),
        }
    }

    /// Sends the requests of an action.
    pub(crate) fn carry_out(&mut self, action: Action) {
        let nodes = &**self.nodes;
        match action {
            Action::Probe => self.start(Slot::Members, requests::probe(nodes, self.targets)),
            Action::Enter(members) => self.enter(members),
            Action::MakeParents(members) => {
                let mut targets = self.targets_of(&members);
                targets.dedup_by_key(|target| &target.lock.path);
                self.start(Slot::Members, async move {
                    requests::make_parents(nodes, &targets).await
                });
            }
            Action::Search(members) => {
                let asks: Vec<_> = members
                    .iter()
                    .filter_map(|it| self.cleanup_guard.ask(*it))
                    .collect();
                self.start(Slot::Members, async move {
                    requests::search(nodes, &asks).await
                });
            }
            Action::Adopt(member, name) => self.cleanup_guard.set(member, Made::Node(name)),
            Action::Commit => {
                let Some(target) = self.targets.first() else {
                    return;
                };
                self.start(Slot::Members, async move {
                    requests::prove(nodes, &target.lock).await
                });
            }
            Action::List(member) => {
                let Some(target) = self.targets.get(member) else {
                    return;
                };
                let own = self.cleanup_guard.node(member).map(|(_, name)| name);
                self.start(Slot::List(member), async move {
                    let children = requests::list_again(nodes, &target.lock, own).await?;
                    Ok(Event::Listed(member, children))
                });
            }
            Action::Stat(member) => {
                let Some((target, name)) = self.cleanup_guard.node(member) else {
                    return;
                };
                self.start(Slot::Stat(member), async move {
                    let found = requests::stat(nodes, &target.lock, name).await?;
                    Ok(Event::Stated(member, found))
                });
            }
            Action::WatchOwn(member) => self.watch_own(member),
            Action::Watch(member, names) => self.watch(member, names),
            Action::HeedPermits(known) => self.heed_permits(known),
            Action::Gone(member) => self.gone(member),
            Action::Withdraw(nodes) => {
                let Some((first, _)) = nodes.first() else {
                    return;
                };
                let path = self.path(*first).into();
                let target = self.cleanup_guard.withdraw(&nodes);
                let deleted = self.session.core().cleanup.delete(target, self.epoch);
                self.withdrawn.push((path, deleted));
                nodes
                    .into_iter()
                    .for_each(|(member, _)| self.forget(member));
            }
            // These end the attempt. `serve` handles them.
            Action::Grant(_) | Action::Busy | Action::Fail(_) => {}
        }
    }

    fn gone(&self, member: usize) {
        if let Some((target, name)) = self.cleanup_guard.node(member) {
            self.nodes.gone(&target.lock.node_path(&name));
            self.cleanup_guard.set(member, Made::Nothing);
        }
    }

    fn heed_permits(&mut self, known: usize) {
        self.permits = Some(known);
        if let Some(permits) = Target::permits(self.targets) {
            let leases = self.targets.iter().filter(|it| it.permits.is_some());
            let news = requests::permits(permits.clone(), leases.count(), known);
            self.start(Slot::Permits, news);
        }
    }

    fn targets_of(&self, members: &[usize]) -> Vec<&'a Target> {
        members
            .iter()
            .filter_map(|member| self.targets.get(*member))
            .collect()
    }

    fn start(
        &mut self,
        slot: Slot,
        request: impl Future<Output = Result<Event, Refused>> + Send + 'a,
    ) {
        // Not an async block, which would reserve space for the request twice while it waits.
        self.occupy(slot, request.map_ok(Answered::Event).boxed());
    }

    fn occupy(&mut self, slot: Slot, request: BoxFuture<'a, Result<Answered, Refused>>) {
        self.slots.retain(|(other, _)| *other != slot);
        self.slots.push((slot, request));
    }

    fn enter(&mut self, members: Vec<usize>) {
        let mut asks = Vec::with_capacity(members.len());
        let (core, mut repeated) = (self.session.core(), Vec::new());
        let mut uuids = self.new_uuids(&members);
        for member in &members {
            if self.cleanup_guard.ask(*member).is_some() {
                repeated.push(*member);
            }
            let target = self.targets.get(*member);
            let of_directory = target.and_then(|it| uuids.get_mut(&*it.lock.path));
            let next = of_directory.and_then(BTreeSet::pop_first);
            let fresh = || next.unwrap_or_else(|| core.store.new_uuid());
            self.cleanup_guard.uuid(*member, fresh);
            self.forget(*member);
            asks.extend(self.cleanup_guard.ask(*member));
        }
        let (epoch, nodes) = ((self.epoch, self.connection), self.nodes);
        let leftovers = (&core.cleanup, &self.cleanup_guard.leftovers);
        let entering = Entering::new(epoch, nodes, leftovers, (asks, repeated.is_empty()));
        for (member, floor) in members.iter().zip(&entering.floors) {
            // What is found may be of the first create with its uuid.
            let is_new = !repeated.contains(member);
            if let Some(known) = self.floors.get_mut(*member).filter(|_| is_new) {
                *known = *floor;
            }
        }
        self.entering = members;
        self.start(Slot::Members, entering.entered());
    }

    /// The uuids for those of these members that have none, by their directories.
    fn new_uuids(&self, members: &[usize]) -> BTreeMap<&'a str, BTreeSet<Uuid>> {
        // One transaction may give several leases one number. Then their names decide, and they follow the members.
        let mut uuids: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        let is_new = |it: &&usize| self.cleanup_guard.ask(**it).is_none();
        let new = members.iter().filter(is_new);
        for target in new.filter_map(|member| self.targets.get(*member)) {
            let directory: &str = &target.lock.path;
            let free = match target.beside {
                None => self.epoch.free_uuids.take(directory),
                // Its name ends with the number of that node.
                Some(_) => None,
            };
            let uuid = free.unwrap_or_else(|| self.session.core().store.new_uuid());
            uuids.entry(directory).or_default().insert(uuid);
        }
        uuids
    }

    /// Drops the requests and watches for a node that a member no longer has.
    fn forget(&mut self, member: usize) {
        self.slots.retain(|(slot, _)| match slot {
            Slot::List(it) | Slot::Stat(it) | Slot::OwnWatch(it) | Slot::Blocker(it, _) => {
                *it != member
            }
            Slot::Members | Slot::Permits => true,
        });
        if let Some(own) = self.own_nodes.get_mut(member) {
            *own = OwnNode::default();
        }
    }

    pub(crate) fn failed(
        &self,
        failure: Failure,
    ) -> Result<Outcome<Vec<GrantedNode>>, AcquireError> {
        let error = match failure {
            Failure::SequenceExhausted { member, sequence } => AcquireError::SequenceExhausted {
                path: self.path(member),
                sequence,
            },
            Failure::ParentsVanish { member } => {
                AcquireError::refused(&self.path(member), Step::CreateParents, NodesError::NoNode)
            }
            Failure::WriterGone { member } => {
                let target = self.targets.get(member);
                match target.and_then(|target| target.beside.as_ref()) {
                    Some(writer) if !writer.lease.is_released() => {
                        writer.lease.node.lose(LostReason::NodeRemoved).into()
                    }
                    _ => return Ok(Outcome::Stale),
                }
            }
            Failure::OtherRecipe {
                member,
                node,
                found,
            } => AcquireError::RecipeDiffers {
                node: format!("{}/{node}", self.path(member)),
                path: self.path(member),
                found,
            },
            Failure::BesideOthers {
                member,
                node,
                found,
            } => AcquireError::RecipeDiffers {
                path: self.path(member),
                node,
                found,
            },
        };
        Err(error)
    }

    /// The path of a member, for an error; all paths of the set if there is no such member.
    fn path(&self, member: usize) -> String {
        match self.targets.get(member) {
            Some(target) => target.lock.path.to_string(),
            None => {
                let paths: Vec<&str> = self.targets.iter().map(|it| &*it.lock.path).collect();
                paths.join(", ")
            }
        }
    }

    /// Turns granted nodes into leases, without an await in between.
    pub(crate) fn leases(self, granted: Vec<GrantedNode>) -> Vec<Lease> {
        let mut leases = Vec::with_capacity(granted.len());
        let (connection, lapses) = (self.connection, self.epoch.lapses());
        let granted = granted.into_iter().zip(self.targets).zip(self.own_nodes);
        for (member, ((node, target), own)) in granted.enumerate() {
            let own_token = FencingToken::new(node.czxid);
            let beside = target.beside.as_ref();
            let made = MadeNode {
                path: target.lock.node_path(&node.name),
                czxid: node.czxid,
                fencing_token: beside.map_or(own_token, |writer| writer.lease.fencing_token),
                is_revoked: own.is_revoked,
                was_alone: own.was_alone,
            };
            let basis = LeaseBasis {
                connection,
                lapses,
                own_watch: own.watch,
            };
            leases.push(Lease::new(self.epoch, &target.lock, made, basis));
            self.cleanup_guard.set(member, Made::Nothing);
        }
        leases
    }
}

#[cfg(test)]
mod tests;
