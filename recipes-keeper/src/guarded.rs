//! Wires below which a client may panic. A panic is a lost connection.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use recipes_core::{NodesError, caught};

use crate::asked::Asked;
use crate::wire::{
    Answers, CallError, Called, Caller, Facts, Loss, Open, Opened, Resume, Resumed, Wire,
};

/// A wire whose client may panic.
#[derive(Debug)]
pub(crate) struct Guarded(pub(crate) Box<dyn Wire>);

impl Wire for Guarded {
    fn number(&self) -> u64 {
        self.0.number()
    }

    fn facts(&self) -> &Facts {
        self.0.facts()
    }

    fn in_flight_max(&self) -> usize {
        self.0.in_flight_max()
    }

    fn names_max(&self) -> usize {
        self.0.names_max()
    }

    fn beats_apart(&self) -> bool {
        self.0.beats_apart()
    }

    fn leaves_anywhere(&self) -> bool {
        self.0.leaves_anywhere()
    }

    fn open(&self, open: Open) -> Called<Opened> {
        guarded(self.0.open(open))
    }

    fn resume(&self, resume: Resume) -> Called<Option<Resumed>> {
        guarded(self.0.resume(resume))
    }

    fn requests(&self, caller: &Arc<Caller>, asked: &Arc<[Asked]>) -> Called<Option<Answers>> {
        guarded(self.0.requests(caller, asked))
    }

    fn undo(&self, caller: &Arc<Caller>, asked: &Arc<[Asked]>) -> Called<Option<Answers>> {
        guarded(self.0.undo(caller, asked))
    }

    fn beat(&self, caller: &Arc<Caller>) -> Called<bool> {
        guarded(self.0.beat(caller))
    }

    fn close(&self, caller: &Arc<Caller>) -> Called<bool> {
        guarded(self.0.close(caller))
    }

    fn lost(&self) -> BoxFuture<'_, Loss> {
        let lost = caught(self.0.lost());
        lost.map(|loss| loss.unwrap_or(Loss::Connection)).boxed()
    }

    fn subscribe(&self, id: i64) -> BoxFuture<'_, Result<(), NodesError>> {
        let subscribed = caught(self.0.subscribe(id));
        let done = subscribed.map(|done| done.unwrap_or_else(|why| Err(NodesError::Unknown(why))));
        done.boxed()
    }

    fn started(&self, session: &Arc<Caller>) {
        self.0.started(session);
    }
}

fn guarded<T: Send + 'static>(called: Called<T>) -> Called<T> {
    let called = caught(called);
    let answer = called.map(|answer| answer.unwrap_or_else(|why| Err(CallError::Lost(why))));
    answer.boxed()
}
