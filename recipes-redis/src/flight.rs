//! Requests that are on their way, in one call.

use std::sync::atomic::Ordering;

use futures::future::{BoxFuture, FutureExt};
use recipes_core::{EndReason, NodesError};
use redis::{RedisError, Value, cmd};
use tokio::task::unconstrained;
use tracing::debug;

use crate::STORE;
use crate::answers::{Failed, Trouble, failed};
use crate::kept::Kept;
use crate::moment::Moment;
use crate::queue::Request;
use crate::wire::Wire;

/// Why a connection is not served any more.
pub(crate) enum Over {
    Lost(Trouble),
    Refused(RedisError),
    /// The session has been ended.
    Expired,
    Closed,
}

/// Requests that are on their way, in one call.
pub(crate) struct Flight {
    pub(crate) sent: Moment,
    answer: BoxFuture<'static, Result<Value, FlightError>>,
    requests: Vec<Request>,
}

/// How many of the requests list a directory.
pub(crate) fn listings(requests: &[Request]) -> usize {
    requests.iter().filter(|it| it.asked.lists()).count()
}

/// Requests that are back, with their answers.
pub(crate) struct Landed {
    sent: Moment,
    requests: Vec<Request>,
    answer: Result<Value, FlightError>,
}

pub(crate) enum FlightError {
    Failed(RedisError),
    Replicas(i64),
}

impl Flight {
    /// Sends requests in one call, at the first poll of [`land`](Self::land).
    pub(crate) fn send(kept: &Kept, wire: &Wire, requests: Vec<Request>) -> Self {
        let terms = &kept.terms;
        let mut call = kept.requests(wire);
        let mut owned = kept.owned();
        for Request { asked, .. } in &requests {
            owned.sent(asked.operations());
            asked.say(&mut call);
        }
        drop(owned);
        let answer = wire.send(call);
        let asked = terms.replicas;
        let answer = if asked == 0 {
            answer
                .map(|answer| answer.map_err(FlightError::Failed))
                .boxed()
        } else {
            let mut wait = cmd("WAIT");
            let patience = terms.session_timeout / 6;
            wait.arg(asked).arg(patience.as_millis().to_string());
            // Right behind the call, on its connection: elsewhere it would wait for nothing.
            let both = futures::future::join(answer, wire.send(wait));
            both.map(move |(answer, confirmed)| {
                let answer = answer.map_err(FlightError::Failed)?;
                match confirmed.map_err(FlightError::Failed)? {
                    Value::Int(heard) if heard < i64::from(asked) => {
                        Err(FlightError::Replicas(heard))
                    }
                    _ => Ok(answer),
                }
            })
            .boxed()
        };
        Self {
            sent: Moment::now(),
            answer,
            requests,
        }
    }

    pub(crate) async fn land(self) -> Landed {
        // Unconstrained: requests are sent in the order of these futures, whatever the task has
        // done before.
        let answer = unconstrained(self.answer).await;
        let Self { sent, requests, .. } = self;
        Landed {
            sent,
            requests,
            answer,
        }
    }
}

/// Hands out the answers to the requests of one call.
pub(crate) fn settle(landed: Landed, kept: &Kept) -> Result<(), Over> {
    let Landed {
        sent,
        requests,
        answer,
    } = landed;
    let answers = match answer {
        Ok(Value::Array(mut answers)) if answers.len() == requests.len() + 1 => {
            if let Some(Value::Int(step)) = answers.pop() {
                let step = u64::try_from(step).unwrap_or_default();
                kept.step.store(step, Ordering::Relaxed);
            }
            kept.was_heard(sent);
            answers
        }
        Ok(Value::BulkString(word)) if word == b"ended" => {
            kept.end(EndReason::Expired);
            refuse(requests, &NodesError::SessionEnded);
            return Err(Over::Expired);
        }
        Ok(other) => {
            let trouble = Trouble::Unexpected(format!("{other:?}"));
            return Err(Over::Lost(trouble));
        }
        Err(FlightError::Replicas(heard)) => {
            let asked = kept.terms.replicas;
            refuse(requests, &Trouble::Replicas { heard, asked }.into());
            return Ok(());
        }
        Err(FlightError::Failed(error)) => {
            return match failed(error) {
                Failed::NotNow(error) => {
                    debug!(target: STORE, %error, "the server is busy");
                    refuse(requests, &NodesError::Throttled);
                    Ok(())
                }
                Failed::Lost(error) => Err(Over::Refused(error)),
            };
        }
    };
    let both = requests.iter().zip(&answers);
    let listed = both.filter(|(request, _)| request.asked.lists());
    if let Some(names) = listed.map(|(_, answer)| names_in(answer)).max() {
        kept.names.store(names, Ordering::Relaxed);
    }
    for (request, answer) in requests.into_iter().zip(answers) {
        kept.owned().answered(request.asked.operations(), &answer);
        // Whoever dropped the request does not want to know.
        drop(request.answer.send(Ok(answer)));
    }
    Ok(())
}

/// How many names a listing has, whose answer begins with its reason.
fn names_in(answer: &Value) -> usize {
    match answer {
        Value::Array(parts) => match parts.get(1) {
            Some(Value::Array(names)) => names.len(),
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
