//! The requests and watches of an attempt that are in flight.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::future::{self, BoxFuture, poll_fn};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, TryFutureExt};
use tokio::sync::oneshot;
use tokio::task::unconstrained;
use tracing::{Instrument, debug, debug_span};

use crate::attempt::cleanup_guard::CleanupGuard;
use crate::attempt::requests::{self, OwnNode, Refused};
use crate::error::{AcquireError, LostReason, Step};
use crate::lock::lease::{Basis, Lease, MadeNode};
use crate::lock::session::Session;
use crate::lock::target::Target;
use crate::log::LOCK;
use crate::names::token::FencingToken;
use crate::rules::acquire::{Action, Entry, Event, Failure, GrantedNode, Outcome};
use crate::session::cleanup::Deleted;
use crate::session::epoch::{Epoch, Forgot};
use crate::session::leftovers::{Leftovers, Made};
use crate::session::own_watch::OwnWatch;
use crate::store::nodes::{NodeEvent, Nodes, NodesError};
use crate::telemetry;

/// A request or watch in flight; at most one of each.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Slot {
    /// A probe, enter, make-parents, search or commit, for several members.
    Members,
    List(usize),
    Stat(usize),
    OwnWatch(usize),
    Blocker(usize, String),
}

/// A watch or request of the earlier connection, dropped once its replacement has been sent.
type Outdated<'a> = (
    Option<OwnWatch>,
    Option<BoxFuture<'a, Result<Done, Refused>>>,
);

enum Done {
    Event(Event),
    OwnWatch(usize, OwnNode),
}

/// The requests and watches of an attempt in one epoch.
///
/// Polled in a fixed order, so that a run can be replayed. Our own nodes come first: if our node
/// and the one ahead of it are both gone, we have lost our place and must not take the lock.
pub(crate) struct InFlight<'a> {
    pub(crate) epoch: &'a Arc<Epoch>,
    nodes: &'a dyn Nodes,
    pub(crate) targets: &'a [Target],
    session: &'a Session,
    own_nodes: Vec<OwnNode>,
    slots: Vec<(Slot, BoxFuture<'a, Result<Done, Refused>>)>,
    /// The connection that all current evidence came from.
    connection: u64,
    /// Wakes the attempt when the connection changes.
    changes: BoxStream<'static, ()>,
    /// Watches and requests of the earlier connection, kept until they are replaced. Removing a
    /// watch without a replacement would cost a request.
    outdated: Vec<Outdated<'a>>,
    /// For each member, the highest transaction number that was seen before its create.
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
        nodes: &'a dyn Nodes,
        targets: &'a [Target],
        leftovers: Arc<Leftovers>,
    ) -> Self {
        let cleanup = &session.core().cleanup;
        // Before any request is sent.
        let changes = epoch.link_changes();
        Self {
            connection: epoch.connection().unwrap_or_default(),
            changes,
            outdated: Vec::new(),
            floors: vec![0; targets.len()],
            epoch,
            nodes,
            targets,
            session,
            own_nodes: targets.iter().map(|_| OwnNode::default()).collect(),
            slots: Vec::new(),
            entering: Vec::new(),
            withdrawn: Vec::new(),
            cleanup_guard: CleanupGuard::new(cleanup, epoch, targets, leftovers),
        }
    }

    /// Sends the requests of an action.
    pub(crate) fn carry_out(&mut self, action: Action) {
        let nodes = self.nodes;
        match action {
            Action::Probe => self.start(Slot::Members, requests::probe(nodes, self.targets)),
            Action::Enter(members) => self.enter(members),
            Action::MakeParents(members) => {
                let targets: Vec<_> = self.targets_of(&members);
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
                self.start(Slot::List(member), async move {
                    let children = requests::list(nodes, &target.lock).await?;
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
        self.occupy(slot, request.map_ok(Done::Event).boxed());
    }

    fn occupy(&mut self, slot: Slot, request: BoxFuture<'a, Result<Done, Refused>>) {
        self.slots.retain(|(other, _)| *other != slot);
        self.slots.push((slot, request));
    }

    fn enter(&mut self, members: Vec<usize>) {
        let mut asks = Vec::with_capacity(members.len());
        let highest = self.epoch.highest_number();
        for member in &members {
            let store = &self.session.core().store;
            self.cleanup_guard.uuid(*member, || store.new_uuid());
            self.forget(*member);
            asks.extend(self.cleanup_guard.ask(*member));
            if let Some(floor) = self.floors.get_mut(*member) {
                *floor = highest;
            }
        }
        self.entering = members;
        let (epoch, nodes) = (self.epoch, self.nodes);
        self.start(Slot::Members, async move {
            requests::enter(epoch, nodes, &asks).await
        });
    }

    /// Drops the requests and watches for a node that a member no longer has.
    fn forget(&mut self, member: usize) {
        self.slots.retain(|(slot, _)| match slot {
            Slot::List(it) | Slot::Stat(it) | Slot::OwnWatch(it) | Slot::Blocker(it, _) => {
                *it != member
            }
            Slot::Members => true,
        });
        if let Some(own) = self.own_nodes.get_mut(member) {
            *own = OwnNode::default();
        }
    }

    fn watch_own(&mut self, member: usize) {
        let slot = Slot::OwnWatch(member);
        let own = self.own_nodes.get(member);
        let is_watched = own.is_some_and(|own| own.watch.is_some());
        if is_watched || self.slots.iter().any(|(other, _)| *other == slot) {
            return;
        }
        let Some((target, name)) = self.cleanup_guard.node(member) else {
            return;
        };
        let nodes = self.nodes;
        let watched = async move {
            let watched = requests::own_watch(nodes, &target.lock, &name).await?;
            Ok(match watched {
                Some(own) => Done::OwnWatch(member, own),
                None => Done::Event(Event::OwnGone(member)),
            })
        };
        self.occupy(slot, watched.boxed());
    }

    fn watch(&mut self, member: usize, names: Vec<String>) {
        self.slots.retain(|(slot, _)| match slot {
            Slot::Blocker(it, name) => *it != member || names.contains(name),
            _ => true,
        });
        let Some(target) = self.targets.get(member) else {
            return;
        };
        let node = self.cleanup_guard.node(member).map(|(_, name)| name);
        debug!(target: LOCK, lock = %target.lock.path, ?node, predecessors = ?names, "waiting");
        for name in names {
            let slot = Slot::Blocker(member, name.clone());
            if !self.slots.iter().any(|(other, _)| *other == slot) {
                let wait = debug_span!(
                    target: LOCK,
                    "wait", lock = %target.lock.path, node, predecessor = %name
                );
                let gone = requests::blocker(self.nodes, &target.lock, member, name);
                self.start(slot, gone.instrument(wait));
            }
        }
    }

    fn own_watched(&mut self, member: usize, seen: OwnNode) {
        if let Some(own) = self.own_nodes.get_mut(member) {
            own.watch = seen.watch;
            // A request to give the lock up stays noted, even if it was overwritten.
            own.is_revoked |= seen.is_revoked;
        }
    }

    /// Waits for the next event.
    pub(crate) async fn next_event(&mut self) -> Result<Event, AcquireError> {
        // Their replacements have been sent by now.
        self.outdated.clear();
        loop {
            let done = poll_fn(|cx| {
                while let Poll::Ready(withdrawn) = self.poll_withdrawn(cx) {
                    if let Err(refused) = withdrawn {
                        return Poll::Ready(Err(refused));
                    }
                }
                self.poll_done(cx).map(Ok)
            });
            // Arrived events must be seen even if the task has used up its share of the runtime.
            match unconstrained(done).await? {
                Ok(Done::Event(event)) => {
                    self.note(&event);
                    return Ok(event);
                }
                Ok(Done::OwnWatch(member, own)) => {
                    self.own_watched(member, own);
                    return Ok(Event::OwnWatched(member));
                }
                // The epoch ends as well, and `acquire` then drops this future.
                Err(Refused {
                    source: NodesError::SessionEnded,
                    ..
                }) => future::pending().await,
                Err(Refused { path, step, source }) => {
                    if step == Step::Create {
                        // The create was refused, not lost, so there is no node to search for.
                        let guard = &self.cleanup_guard;
                        let entering = self.entering.iter();
                        entering.for_each(|member| guard.set(*member, Made::Nothing));
                    }
                    return Err(AcquireError::refused(&path, step, source));
                }
            }
        }
    }

    fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<Result<Done, Refused>> {
        // Polled for the waker only. The epoch knows the present connection.
        while let Poll::Ready(Some(_)) = self.changes.poll_next_unpin(cx) {}
        // Without a connection no watch counts, and nothing may be granted. A read-only server
        // counts as no connection, but it does answer.
        let is_up = self.epoch.connection().is_some();
        if let Some(news) = self.poll_news(cx) {
            return Poll::Ready(Ok(Done::Event(news)));
        }
        for index in 0..self.slots.len() {
            let Some((slot, request)) = self.slots.get_mut(index) else {
                break;
            };
            if !is_up && *slot != Slot::Members {
                continue;
            }
            let Poll::Ready(done) = request.poll_unpin(cx) else {
                continue;
            };
            let (slot, _) = self.slots.remove(index);
            // News of our own nodes may have arrived since we looked at them, before this answer
            // did.
            let Some(news) = self.poll_news(cx) else {
                return Poll::Ready(done);
            };
            let kept = (slot, future::ready(done).boxed());
            match (&news, &kept.0) {
                (Event::Reconnected, Slot::Members) => self.slots.push(kept),
                (Event::Reconnected, _) => {}
                _ => self.slots.insert(index, kept),
            }
            return Poll::Ready(Ok(Done::Event(news)));
        }
        Poll::Pending
    }

    /// The news that comes before all other events: a new connection, and what happened to our own
    /// nodes. So before we learn that the node ahead is gone, we have learned about our own node on
    /// the same connection.
    fn poll_news(&mut self, cx: &mut Context<'_>) -> Option<Event> {
        let connection = self.epoch.connection()?;
        if connection != self.connection {
            self.connection = connection;
            self.outdate();
            return Some(Event::Reconnected);
        }
        for (member, own) in self.own_nodes.iter_mut().enumerate() {
            let Some(event) = own.poll(cx) else {
                continue;
            };
            match event {
                NodeEvent::Deleted => return Some(Event::OwnGone(member)),
                NodeEvent::Changed => return Some(Event::OwnChanged(member)),
                NodeEvent::SessionEnded => {}
            }
        }
        None
    }

    /// Sets aside the earlier connection's watches and requests, except those for several members.
    fn outdate(&mut self) {
        for own in &mut self.own_nodes {
            self.outdated.push((own.take_watch(), None));
        }
        let slots = std::mem::take(&mut self.slots);
        for (slot, request) in slots {
            match slot {
                Slot::Members => self.slots.push((slot, request)),
                _ => self.outdated.push((None, Some(request))),
            }
        }
    }

    /// The last look before a grant. Returns the event that speaks against it, if any.
    pub(crate) fn doubt(&mut self, granted: &[GrantedNode]) -> Option<Event> {
        // No wake-up is needed: after an event the watches are polled again.
        let mut nobody = Context::from_waker(Waker::noop());
        if let Some(news) = self.poll_news(&mut nobody) {
            return Some(news);
        }
        for (node, floor) in granted.iter().zip(&self.floors) {
            if node.czxid <= *floor {
                // This ends the epoch, and `acquire` then drops this future.
                let (seen, now) = (*floor, node.czxid);
                self.epoch.note_forgot(Forgot { seen, now });
                return Some(Event::Lapsed);
            }
        }
        // `poll_news` may have found no connection, and by now there may be another one.
        let is_same = self.epoch.connection() == Some(self.connection);
        let is_good = self.epoch.is_good(self.epoch.lapses());
        (!is_good || !is_same).then_some(Event::Lapsed)
    }

    /// Records which nodes exist now, so that `cleanup_guard` can delete them.
    fn note(&mut self, event: &Event) {
        let Event::Entered(entries) = event else {
            return;
        };
        self.look_around(entries);
        for (member, entry) in self.entering.iter().zip(entries) {
            self.cleanup_guard
                .set(*member, Made::Node(entry.node.name.clone()));
        }
    }

    /// Checks the directories of the new nodes for other nodes.
    fn look_around(&mut self, entries: &[Entry]) {
        for (member, Entry { node, children }) in self.entering.iter().zip(entries) {
            let Some(children) = children else {
                continue;
            };
            if let Some(target) = self.targets.get(*member) {
                telemetry::enqueued(target.kind, children, &node.name);
            }
            if let Some(own) = self.own_nodes.get_mut(*member) {
                own.was_alone = *children == [node.name.as_str()];
            }
        }
    }

    /// Waits until all withdrawn nodes are gone, for an attempt that found a lock busy.
    pub(crate) async fn all_withdrawn(&mut self) -> Result<(), AcquireError> {
        while !self.withdrawn.is_empty() {
            poll_fn(|cx| self.poll_withdrawn(cx)).await?;
        }
        Ok(())
    }

    /// Ready when one withdrawal is over. A refusal is an error, because the node that stays would
    /// be in our own way.
    fn poll_withdrawn(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AcquireError>> {
        for (index, (path, deleted)) in self.withdrawn.iter_mut().enumerate() {
            let Poll::Ready(deleted) = deleted.poll_unpin(cx) else {
                continue;
            };
            let path = Arc::clone(path);
            drop(self.withdrawn.remove(index));
            return Poll::Ready(match deleted {
                Ok(Deleted::Refused(source)) => {
                    Err(AcquireError::refused(&path, Step::Delete, source))
                }
                // An error means that the session is over, and its nodes with it.
                Ok(_) | Err(_) => Ok(()),
            });
        }
        Poll::Pending
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
                        writer.lease.lose(LostReason::NodeRemoved).into()
                    }
                    _ => return Ok(Outcome::Stale),
                }
            }
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
            let basis = Basis {
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
