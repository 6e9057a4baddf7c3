//! Requests that are on their way, in one call.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use futures::future::FutureExt;
use recipes_core::{EndReason, NodesError};
use tokio::sync::oneshot;
use tokio::task::{Unconstrained, unconstrained};
use tracing::debug;

use crate::STORE;
use crate::answers::{Trouble, whole};
use crate::asked::Asked;
use crate::kept::Kept;
use crate::moment::Moment;
use crate::queue::Request;
use crate::wire::{Answers, CallError, Called, Caller, Outcome, Said, Source, Wire};

/// Why a connection is not served any more.
pub(crate) enum Over {
    Lost(Source),
    /// The session has been ended.
    Expired,
    Closed,
}

/// Requests that are on their way, in one call. It is sent when it is [polled](Self::poll) first.
pub(crate) struct Flight {
    pub(crate) sent: Moment,
    asked: Arc<[Asked]>,
    waiting: Vec<oneshot::Sender<Outcome>>,
    /// Unconstrained: requests are sent in the order of these futures, whatever the task has done
    /// before.
    answer: Unconstrained<Called<Option<Answers>>>,
    /// What it has come to.
    landed: Option<Result<Option<Answers>, CallError>>,
}

/// Requests that are back, with their answers.
pub(crate) struct Landed {
    sent: Moment,
    asked: Arc<[Asked]>,
    waiting: Vec<oneshot::Sender<Outcome>>,
    answer: Result<Option<Answers>, CallError>,
}

impl Flight {
    pub(crate) fn of_requests(
        kept: &Kept,
        wire: &dyn Wire,
        caller: &Arc<Caller>,
        requests: Vec<Request>,
    ) -> Self {
        let (asked, waiting) = apart(requests);
        let mut owned = kept.owned();
        for asked in asked.iter() {
            owned.sent(asked.operations());
        }
        drop(owned);
        Self::new(wire.requests(caller, &asked), asked, waiting)
    }

    /// One beat for all that ask for one.
    pub(crate) fn of_beats(wire: &dyn Wire, caller: &Arc<Caller>, requests: Vec<Request>) -> Self {
        let (asked, waiting) = apart(requests);
        let count = asked.len();
        let answers = move |lives: bool| {
            lives.then(|| Answers {
                outcomes: (0..count).map(|_| Ok(Said::Nothing)).collect(),
                step: None,
            })
        };
        let beaten = wire.beat(caller).map(move |beaten| beaten.map(answers));
        Self::new(beaten.boxed(), asked, waiting)
    }

    fn new(
        called: Called<Option<Answers>>,
        asked: Arc<[Asked]>,
        waiting: Vec<oneshot::Sender<Outcome>>,
    ) -> Self {
        Self {
            answer: unconstrained(called),
            sent: Moment::now(),
            asked,
            waiting,
            landed: None,
        }
    }

    /// How many of the requests list a directory.
    pub(crate) fn listings(&self) -> usize {
        self.asked.iter().filter(|it| it.lists()).count()
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
            asked: self.asked,
            waiting: self.waiting,
            answer: self.landed?,
        })
    }
}

/// What is asked, and who waits for it.
fn apart(requests: Vec<Request>) -> (Arc<[Asked]>, Vec<oneshot::Sender<Outcome>>) {
    let both = requests.into_iter().map(|it| (it.asked, it.answer));
    let (asked, waiting): (Vec<_>, Vec<_>) = both.unzip();
    (asked.into(), waiting)
}

/// Hands out the answers to the requests of one call.
pub(crate) fn settle(landed: Landed, kept: &Kept) -> Result<(), Over> {
    let Landed {
        sent,
        asked,
        waiting,
        answer,
    } = landed;
    let Answers { outcomes, step } = match answer {
        Ok(None) => {
            kept.end(EndReason::Expired);
            refuse(waiting, &NodesError::SessionEnded);
            return Err(Over::Expired);
        }
        Ok(Some(answers)) if answers.outcomes.len() == asked.len() => answers,
        Ok(Some(answers)) => {
            let count = answers.outcomes.len();
            let trouble = format!("{count} answers to {} requests", asked.len());
            return Err(Over::Lost(Arc::new(Trouble::Unexpected(trouble))));
        }
        Err(CallError::Unconfirmed { heard, asked }) => {
            refuse(waiting, &Trouble::Replicas { heard, asked }.into());
            return Ok(());
        }
        Err(CallError::NotNow(error)) => {
            debug!(target: STORE, %error, "the server is busy");
            *kept.trouble() = Some(NodesError::Unknown(error));
            refuse(waiting, &NodesError::Throttled);
            return Ok(());
        }
        Err(CallError::Lost(error) | CallError::Refused(error)) => {
            return Err(Over::Lost(error));
        }
    };
    if let Some(step) = step {
        let step = u64::try_from(step.as_micros()).unwrap_or(u64::MAX);
        kept.step.store(step, Ordering::Relaxed);
    }
    kept.shared.was_heard(sent);
    *kept.trouble() = None;
    let names = outcomes.iter().filter_map(|outcome| match outcome {
        Ok(Said::Names(names, _)) => Some(names.len()),
        _ => None,
    });
    if let Some(names) = names.max() {
        kept.listed(names);
    }
    for ((asked, outcome), waiting) in asked.iter().zip(outcomes).zip(waiting) {
        kept.owned().answered(asked, &outcome);
        // Also if nobody looks at the answer before the connection is lost.
        if let (Asked::Watch(path, number), Ok(Said::Node(_, stat))) = (asked, &outcome) {
            kept.shared.watches.confirm(path, *number, stat.into());
        }
        // Whoever dropped the request does not want to know.
        drop(waiting.send(outcome));
    }
    Ok(())
}

fn refuse(waiting: Vec<oneshot::Sender<Outcome>>, error: &NodesError) {
    for waiting in waiting {
        drop(waiting.send(Err(whole(error.clone()))));
    }
}
