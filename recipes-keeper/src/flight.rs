//! Requests that are on their way, in one call.

use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use futures::future::{BoxFuture, FutureExt};
use recipes_core::{EndReason, NodesError};
use tokio::task::{Unconstrained, unconstrained};
use tracing::debug;

use crate::STORE;
use crate::answers::Trouble;
use crate::kept::Kept;
use crate::moment::Moment;
use crate::queue::Request;
use crate::wire::{CallError, Function, Source, Value, Wire, Words};

/// Why a connection is not served any more.
pub(crate) enum Over {
    Lost(Trouble),
    Refused(Source),
    /// The session has been ended.
    Expired,
    Closed,
}

/// Requests that are on their way, in one call. It is sent when it is [polled](Self::poll) first.
pub(crate) struct Flight {
    pub(crate) sent: Moment,
    function: Function,
    requests: Vec<Request>,
    /// Unconstrained: requests are sent in the order of these futures, whatever the task has done
    /// before.
    answer: Unconstrained<BoxFuture<'static, Result<Value, CallError>>>,
    /// What it has come to.
    landed: Option<Result<Value, CallError>>,
}

/// Requests that are back, with their answers.
pub(crate) struct Landed {
    sent: Moment,
    function: Function,
    requests: Vec<Request>,
    answer: Result<Value, CallError>,
}

impl Flight {
    /// Requests, in a call that begins with these words.
    pub(crate) fn of_requests(
        kept: &Kept,
        wire: &dyn Wire,
        mut call: Words,
        requests: Vec<Request>,
    ) -> Self {
        let mut owned = kept.owned();
        for Request { asked, .. } in &requests {
            owned.sent(asked.operations());
            asked.say(&mut call);
        }
        drop(owned);
        Self::new(wire, Function::Requests, call, requests)
    }

    /// One beat for all that ask for one.
    pub(crate) fn of_beats(kept: &Kept, wire: &dyn Wire, requests: Vec<Request>) -> Self {
        Self::new(wire, Function::Beat, kept.requests(wire), requests)
    }

    fn new(wire: &dyn Wire, function: Function, call: Words, requests: Vec<Request>) -> Self {
        Self {
            answer: unconstrained(wire.call(function, call)),
            sent: Moment::now(),
            function,
            requests,
            landed: None,
        }
    }

    /// How many of the requests list a directory.
    pub(crate) fn listings(&self) -> usize {
        let lists = |it: &&Request| it.asked.lists();
        self.requests.iter().filter(lists).count()
    }

    /// Whether it has landed.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        if self.landed.is_none() {
            if let Poll::Ready(answer) = self.answer.poll_unpin(cx) {
                self.landed = Some(answer);
            }
        }
        self.landed.is_some()
    }

    /// The requests with their answers, once it has landed.
    pub(crate) fn landed(self) -> Option<Landed> {
        Some(Landed {
            sent: self.sent,
            function: self.function,
            requests: self.requests,
            answer: self.landed?,
        })
    }
}

/// Hands out the answers to the requests of one call.
pub(crate) fn settle(landed: Landed, kept: &Kept) -> Result<(), Over> {
    let Landed {
        sent,
        function,
        requests,
        answer,
    } = landed;
    let answers = match answer {
        Ok(answer) if answer.is_ended() => {
            kept.end(EndReason::Expired);
            refuse(requests, &NodesError::SessionEnded);
            return Err(Over::Expired);
        }
        Ok(Value::List(_)) if function == Function::Beat => {
            let done = || Value::List(vec![Value::Bytes(Vec::new())]);
            requests.iter().map(|_| done()).collect()
        }
        Ok(Value::List(mut answers)) if answers.len() == requests.len() + 1 => {
            if let Some(step) = answers.pop().and_then(|step| step.number()) {
                let step = u64::try_from(step).unwrap_or_default();
                kept.step.store(step, Ordering::Relaxed);
            }
            answers
        }
        Ok(other) => {
            let trouble = Trouble::Unexpected(format!("{other:?}"));
            return Err(Over::Lost(trouble));
        }
        Err(CallError::Unconfirmed { heard, asked }) => {
            refuse(requests, &Trouble::Replicas { heard, asked }.into());
            return Ok(());
        }
        Err(CallError::NotNow(error)) => {
            debug!(target: STORE, %error, "the server is busy");
            refuse(requests, &NodesError::Throttled);
            return Ok(());
        }
        Err(CallError::Lost(error) | CallError::Refused(error)) => {
            return Err(Over::Refused(error));
        }
    };
    kept.shared.was_heard(sent);
    let both = requests.iter().zip(&answers);
    let listed = both.filter(|(request, _)| request.asked.lists());
    if let Some(names) = listed.map(|(_, answer)| names_in(answer)).max() {
        kept.listed(names);
    }
    for (request, answer) in requests.into_iter().zip(answers) {
        kept.owned().answered(&request.asked, &answer);
        // Whoever dropped the request does not want to know.
        drop(request.answer.send(Ok(answer)));
    }
    Ok(())
}

/// How many names a listing has, whose answer begins with its reason.
fn names_in(answer: &Value) -> usize {
    match answer {
        Value::List(parts) => match parts.get(1) {
            Some(Value::List(names)) => names.len(),
            _ => 0,
        },
        _ => 0,
    }
}

fn refuse(requests: Vec<Request>, error: &NodesError) {
    for request in requests {
        drop(request.answer.send(Err(error.clone())));
    }
}
