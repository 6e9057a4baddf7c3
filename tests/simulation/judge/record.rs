//! What the judge is told: requests, connections, removals. And what it makes of it in the end.

use std::mem;
use std::time::Duration;

use recipes_testing::{MemoryEnsemble, Operation, Request};

use super::Judge;
use crate::world::Run;

impl Judge {
    pub(crate) fn drain(&mut self) {
        let requests = self.ensemble.requests();
        if requests.is_empty() {
            return;
        }
        self.ensemble.reset_requests();
        let elapsed = self.start.elapsed();
        if self.second.0 != elapsed.as_secs() {
            self.second = (elapsed.as_secs(), 0);
        }
        self.second.1 += requests.iter().filter(|it| !is_beat(it)).count();
        if self.second.1 > self.requests_max {
            self.fail(format!("{} requests in a second", self.second.1));
        }
        for request in requests {
            self.lifelines.requested(&request);
            self.tell(|| {
                let Request {
                    session,
                    operation,
                    path,
                } = &request;
                format!("{session:#x} asks {operation:?} {path}")
            });
            self.requests.push((elapsed, request));
        }
    }

    pub(crate) fn last_answered(&mut self, session: i64) -> Duration {
        self.drain();
        self.lifelines.last_answered(session)
    }

    pub(crate) fn disconnected(&mut self, session: i64) {
        self.drain();
        self.lifelines.disconnected(session);
        self.tell(|| format!("{session:#x} cut off"));
    }

    /// Call after the session is notified, so that queued requests count from now on.
    pub(crate) fn reconnected(&mut self, session: i64) {
        self.drain();
        self.lifelines.reconnected(session);
        self.tell(|| format!("{session:#x} connected"));
    }

    pub(crate) fn halted(&mut self) {
        self.drain();
        self.lifelines.halted();
        self.tell(|| "halted".to_owned());
    }

    pub(crate) fn went_on(&mut self) {
        self.drain();
        self.lifelines.went_on();
        self.tell(|| "went on".to_owned());
    }

    pub(crate) fn stopped(&mut self) {
        self.drain();
        self.lifelines.stopped();
        self.tell(|| "stopped".to_owned());
    }

    pub(crate) fn restarted(&mut self) {
        self.drain();
        self.lifelines.restarted();
        self.tell(|| "restarted".to_owned());
    }

    /// Call after sessions have moved from one leader to another. Their earlier requests were
    /// drained.
    pub(crate) fn leaders_changed(&mut self, what: &str) {
        self.lifelines.note_leaders();
        let behind = self.ensemble.sessions_behind();
        self.tell(|| format!("{what}, behind: {behind:x?}"));
    }

    /// The machine of all clients has slept. Leases whose deadline has passed are over at once.
    pub(crate) fn slept(&mut self, pause: Duration) {
        self.drain();
        self.lifelines.slept(pause);
        self.tell(|| format!("slept for {pause:?}"));
        self.note_lapses();
        self.asks_soon = true;
    }

    pub(crate) fn removed(&mut self, node: &str, session: i64) {
        let removal = self.lifelines.removal(session);
        self.removed.insert(node.to_owned(), removal);
        self.tell(|| format!("deleted {node}"));
    }

    pub(crate) fn tell(&mut self, what: impl FnOnce() -> String) {
        if let Some(story) = &mut self.story {
            story.push(format!("{:?} {}", self.start.elapsed(), what()));
        }
    }

    /// Reports a violation. Only the first counts.
    pub(crate) fn fail(&mut self, what: String) {
        self.tell(|| format!("WRONG: {what}"));
        self.failure.get_or_insert(what);
    }

    pub(crate) fn held_nodes(&self) -> Vec<String> {
        let held = self.holds.iter().filter(|it| it.guard.strong_count() > 0);
        held.map(|hold| hold.node.clone()).collect()
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    pub(crate) fn ensemble(&self) -> MemoryEnsemble {
        self.ensemble.clone()
    }

    /// Without those that say nothing but that a session lives.
    pub(crate) fn request_count(&self) -> usize {
        let requests = self.requests.iter();
        requests.filter(|(_, request)| !is_beat(request)).count()
    }

    pub(crate) fn verdict(&mut self) -> Run {
        Run {
            requests: mem::take(&mut self.requests),
            story: self.story.take().unwrap_or_default(),
            grants: self.grants.values().map(Vec::len).sum(),
            failure: self.failure.take(),
        }
    }
}

fn is_beat(request: &Request) -> bool {
    request.operation == Operation::Beat
}
