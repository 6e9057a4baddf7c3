//! What comes in: answers, events of watches, changes of the connection. And the last look before a
//! grant.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use futures::future::{self, poll_fn};
use futures::{FutureExt, StreamExt};
use tokio::task::unconstrained;
use tokio::time::{Instant, sleep_until};

use super::{Answered, InFlight, Slot};
use crate::attempt::requests::{OwnNode, Refused};
use crate::error::{AcquireError, Step};
use crate::lock::target::Target;
use crate::rules::acquire::{Entry, Event, GrantedNode};
use crate::session::cleanup::Deleted;
use crate::session::epoch::Forgot;
use crate::session::leftovers::Made;
use crate::store::nodes::{NodeEvent, NodesError};
use crate::telemetry;

impl InFlight<'_> {
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
                Ok(Answered::Event(event)) => {
                    self.note(&event);
                    return Ok(event);
                }
                Ok(Answered::OwnWatch(member, own)) => {
                    self.own_watched(member, own);
                    return Ok(Event::OwnWatched(member));
                }
                // The epoch ends as well, and `acquire` then drops this future.
                Err(Refused {
                    source: NodesError::SessionEnded,
                    ..
                }) => future::pending().await,
                Err(Refused {
                    path,
                    step,
                    node,
                    source,
                }) => {
                    if step == Step::Create {
                        // The create was refused, not lost, so there is no node to search for.
                        let guard = &self.cleanup_guard;
                        let entering = self.entering.iter();
                        entering.for_each(|member| guard.set(*member, Made::Nothing));
                    }
                    return Err(AcquireError::refused_on(&path, &node, step, source));
                }
            }
        }
    }

    fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<Result<Answered, Refused>> {
        // Polled for the waker only. The epoch knows the present connection.
        while let Poll::Ready(Some(_)) = self.changes.poll_next_unpin(cx) {}
        // Without a connection no watch counts, and nothing may be granted. A read-only server
        // counts as no connection, but it does answer.
        let is_up = self.epoch.connection().is_some();
        if let Some(news) = self.poll_news(cx) {
            return Poll::Ready(Ok(Answered::Event(news)));
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
                (Event::Reconnected { .. }, Slot::Members | Slot::Permits) => {
                    self.slots.push(kept);
                }
                (Event::Reconnected { .. }, _) => {}
                _ => self.slots.insert(index, kept),
            }
            return Poll::Ready(Ok(Answered::Event(news)));
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
            let runs = self.nodes.runs();
            let forgot = std::mem::replace(&mut self.runs, runs) != runs;
            return Some(Event::Reconnected { forgot });
        }
        for (member, own) in self.own_nodes.iter_mut().enumerate() {
            let Some(event) = own.poll(cx) else {
                continue;
            };
            match event {
                NodeEvent::Deleted | NodeEvent::DeletedAsFirst => {
                    return Some(Event::OwnGone(member));
                }
                NodeEvent::Changed => return Some(Event::OwnChanged(member)),
                NodeEvent::SessionEnded => {}
            }
        }
        None
    }

    /// Sets aside the earlier connection's watches and requests, except those for several members,
    /// and what does not come from the store.
    fn outdate(&mut self) {
        for own in &mut self.own_nodes {
            self.outdated.push((own.take_watch(), None));
        }
        let slots = std::mem::take(&mut self.slots);
        for (slot, request) in slots {
            match slot {
                Slot::Members | Slot::Permits => self.slots.push((slot, request)),
                _ => self.outdated.push((None, Some(request))),
            }
        }
    }

    /// Waits until the store knows of all who may hold a lock. Returns whether that took time.
    pub(crate) async fn quarantine(&mut self) -> bool {
        let mut has_waited = false;
        while let Some(over) = self.nodes.grants_from().filter(|it| *it > Instant::now()) {
            // Boxed, because few attempts ever wait for it.
            Box::pin(sleep_until(over)).await;
            has_waited = true;
        }
        has_waited
    }

    /// The last look before a grant. Returns the event that speaks against it, if any.
    pub(crate) fn doubt(&mut self, granted: &[GrantedNode]) -> Option<Event> {
        // No wake-up is needed: after an event the watches are polled again.
        let mut nobody = Context::from_waker(Waker::noop());
        if let Some(news) = self.poll_news(&mut nobody) {
            return Some(news);
        }
        // A lower number counts from the moment on in which it is set.
        let permits = Target::permits(self.targets).map(|it| *it.borrow());
        if let Some(fewer) = permits.filter(|it| self.permits.is_some_and(|known| *it < known)) {
            return Some(Event::Permits(fewer));
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
}
