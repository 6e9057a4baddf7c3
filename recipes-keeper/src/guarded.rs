//! Wires below which a client may panic. A panic is a lost connection.

use futures::future::{BoxFuture, FutureExt};
use recipes_core::{NodesError, caught};

use crate::wire::{CallError, Facts, Function, Loss, Started, Value, Wire, Words};

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

    fn call(
        &self,
        function: Function,
        words: Words,
    ) -> BoxFuture<'static, Result<Value, CallError>> {
        let called = caught(self.0.call(function, words));
        let answer = called.map(|answer| answer.unwrap_or_else(|why| Err(CallError::Lost(why))));
        answer.boxed()
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

    fn started(&self, session: &Started) {
        self.0.started(session);
    }
}
