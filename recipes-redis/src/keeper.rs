//! Keeps a session alive, over as many connections as it takes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::future::{BoxFuture, Fuse, FusedFuture, FutureExt};
use futures::stream::FuturesUnordered;
use recipes_core::{Connection, EndReason, Guarantee, NodesError};
use redis::{RedisError, Value, cmd};
use tokio::sync::{oneshot, watch};
use tokio::task::unconstrained;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tracing::{debug, warn};

use crate::answers::{Failed, Parts, Trouble, event, failed, refusal_of_session};
use crate::client::unwatch;
use crate::queue::{Queue, Request};
use crate::scripts::Script;
use crate::watches::{Rewatch, Watches};
use crate::wire::{IN_FLIGHT_MAX, Route, Wire};

/// Target of log events about a store.
const STORE: &str = "lock_recipes::store";
/// A contender that wants the watches of its listing wants them at once.
const SPARE_MAX: Duration = Duration::from_secs(1);
/// Watches that one script sets again.
const REWATCHED_MAX: usize = 200;
/// Pauses between tries to connect, as those of requests in the core.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// How a session is kept.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) route: Route,
    pub(crate) session_timeout: Duration,
    /// Replicas that must have what counts as done.
    pub(crate) replicas: u32,
    /// Nobody held a lock before.
    pub(crate) is_new: bool,
    /// How long a container may be empty.
    pub(crate) container_rest: Duration,
}

/// A session, as its requests and its keeper see it.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) id: i64,
    /// By which the server knows it: id, timeout, secret.
    name: String,
    pub(crate) terms: Terms,
    pub(crate) queue: Queue,
    pub(crate) watches: Arc<Watches>,
    pub(crate) link: watch::Sender<Connection>,
    promise: Mutex<Promise>,
}

/// What the present server promises.
#[derive(Clone, Copy, Debug)]
struct Promise {
    guarantee: Guarantee,
    /// Before this, somebody may hold a lock of which this server does not know.
    grants_from: Option<Instant>,
}

fn micros(duration: Duration) -> String {
    duration.as_micros().to_string()
}

impl Kept {
    pub(crate) fn guarantee(&self) -> Guarantee {
        self.promise().guarantee
    }

    pub(crate) fn grants_from(&self) -> Option<Instant> {
        self.promise().grants_from
    }

    fn promise(&self) -> Promise {
        *self.promise.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes watches that came with a listing, and that no contender wanted.
    fn give_spares_up(&self, now: Instant) {
        let Some(since) = now.checked_sub(SPARE_MAX) else {
            return;
        };
        self.queue.with(|waiting| {
            for path in self.watches.drop_spares(since) {
                drop(waiting.ask(unwatch(&path)));
            }
        });
    }

    fn end(&self, reason: EndReason) {
        // In one moment: whoever hears of the end from one of these finds it at the others.
        self.link.send_modify(|link| {
            *link = Connection::Ended(reason);
            self.queue.end();
            self.watches.end();
        });
    }
}

/// The end of a quarantine that lasts for so many microseconds.
fn quarantined(wait: i64) -> Option<Instant> {
    let wait = Duration::from_micros(u64::try_from(wait).unwrap_or_default());
    if wait.is_zero() {
        return None;
    }
    warn!(
        target: STORE,
        wait_ms = wait.as_millis(),
        "this run of the server is new, and may have forgotten who holds a lock: none is granted \
         until every holder must have noticed"
    );
    Some(Instant::now() + wait)
}

/// What keeps one session. It ends with the session.
pub(crate) struct Keeper {
    kept: Arc<Kept>,
    /// Fails when nobody uses the session any more.
    closed: Fuse<oneshot::Receiver<()>>,
    connections: u64,
}

/// Why a connection is not served any more.
enum Over {
    Lost(Trouble),
    Refused(RedisError),
    /// The session has been ended.
    Expired,
    Closed,
}

/// Requests that are on their way, in one script.
struct Flight {
    sent: Instant,
    answer: BoxFuture<'static, Result<Value, FlightError>>,
    requests: Vec<Request>,
}

enum FlightError {
    Failed(RedisError),
    Replicas(i64),
}

impl Keeper {
    /// Opens a session. Returns it with what must live as long as somebody uses it.
    pub(crate) async fn open(
        terms: Terms,
        secret: &str,
    ) -> Result<(Arc<Kept>, oneshot::Sender<()>), NodesError> {
        let watches = Arc::new(Watches::default());
        let connections = 1;
        watches.count_on(connections);
        let wire = Wire::open(&terms.route, &watches, connections).await?;
        let timeout = micros(terms.session_timeout);
        // Then whoever held a lock in an earlier run has noticed long ago.
        let is_old = wire.facts.uptime_s > terms.session_timeout.as_secs().saturating_add(1);
        let mut open = wire.call(Script::Open);
        open.arg(secret)
            .arg(&timeout)
            .arg(&wire.facts.run)
            .arg(i32::from(terms.is_new || is_old));
        let opened = wire.send(open).await.map_err(refusal_of_session)?;
        let mut opened = Parts::of(opened)?;
        let id = opened.number()?;
        let promise = Promise {
            guarantee: wire.facts.guarantee,
            grants_from: quarantined(opened.number()?),
        };
        wire.subscribe(&id.to_string()).await?;
        let (link, _) = watch::channel(Connection::Connected);
        let kept = Arc::new(Kept {
            id,
            name: format!("{id}:{timeout}:{secret}"),
            terms,
            queue: Queue::default(),
            watches,
            link,
            promise: Mutex::new(promise),
        });
        let (used, closed) = oneshot::channel();
        let keeper = Self {
            kept: Arc::clone(&kept),
            closed: closed.fuse(),
            connections,
        };
        tokio::spawn(keeper.run(wire));
        Ok((kept, used))
    }

    async fn run(mut self, mut wire: Wire) {
        // Also if the runtime drops this task.
        let _ends = End(Arc::clone(&self.kept));
        loop {
            let why = match self.serve(&wire).await {
                Over::Lost(trouble) => trouble.to_string(),
                Over::Refused(error) => error.to_string(),
                Over::Expired => return,
                Over::Closed => {
                    self.close(&wire).await;
                    return self.kept.end(EndReason::Closed);
                }
            };
            debug!(target: STORE, session = self.kept.id, why, "connection given up");
            drop(wire);
            wire = match self.connect_again().await {
                Ok(wire) => wire,
                Err(reason) => return self.kept.end(reason),
            };
        }
    }

    /// Serves requests over one connection.
    async fn serve(&mut self, wire: &Wire) -> Over {
        if self.closed.is_terminated() {
            return Over::Closed;
        }
        let kept = Arc::clone(&self.kept);
        let timeout = kept.terms.session_timeout;
        let (beat, patience) = (timeout / 6, timeout / 4);
        let mut in_flight = FuturesUnordered::new();
        // When each was sent, as far as they are not answered.
        let mut unanswered: VecDeque<Instant> = VecDeque::new();
        let mut last = Instant::now();
        let mut ticks = interval((timeout / 24).max(Duration::from_millis(1)));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let over = loop {
            tokio::select! {
                biased;
                () = wire.lost() => break Over::Lost(Trouble::Lost),
                Some((requests, answer)) = in_flight.next(), if !in_flight.is_empty() => {
                    unanswered.pop_front();
                    match settle(requests, answer, &kept) {
                        Ok(()) => {}
                        Err(over) => break over,
                    }
                }
                () = kept.queue.arrived(), if in_flight.len() < IN_FLIGHT_MAX => {
                    let flight = self.fly(wire, kept.queue.take());
                    (last, _) = (flight.sent, unanswered.push_back(flight.sent));
                    in_flight.push(flight.land());
                }
                now = ticks.tick() => {
                    if unanswered.front().is_some_and(|sent| now > *sent + patience) {
                        break Over::Lost(Trouble::Silent);
                    }
                    kept.give_spares_up(now);
                    if now >= last + beat {
                        // Nobody waits for the answer; that there is one counts.
                        drop(kept.queue.ask(vec![b"beat".to_vec()]));
                    }
                }
                _ = &mut self.closed => break Over::Closed,
            }
        };
        if matches!(over, Over::Lost(_) | Over::Refused(_)) {
            kept.link.send_replace(Connection::Disconnected);
        }
        // Only now, when whoever looks finds the connection lost, are its requests given up.
        drop(in_flight);
        over
    }

    /// Sends requests in one script.
    fn fly(&self, wire: &Wire, requests: Vec<Request>) -> Flight {
        let terms = &self.kept.terms;
        let mut call = wire.call(Script::Requests);
        call.arg(&self.kept.name).arg(micros(terms.container_rest));
        for word in requests.iter().flat_map(|request| &request.words) {
            call.arg(word);
        }
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
            // Right behind the script, on its connection: elsewhere it would wait for nothing.
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
        Flight {
            sent: Instant::now(),
            answer,
            requests,
        }
    }

    /// Connects until the session goes on, or is over.
    async fn connect_again(&mut self) -> Result<Wire, EndReason> {
        let connected = connected(&self.kept, &mut self.connections);
        tokio::pin!(connected);
        if !self.closed.is_terminated() {
            tokio::select! {
                biased;
                _ = &mut self.closed => {}
                connected = &mut connected => return connected,
            }
        }
        // What waits is still to be sent, and the nodes are to go. After the timeout they have gone
        // without us.
        let patience = self.kept.terms.session_timeout;
        let connected = tokio::time::timeout(patience, connected).await;
        connected.unwrap_or(Err(EndReason::Closed))
    }

    /// Sends what waits, and closes the session, so that its nodes go.
    async fn close(&self, wire: &Wire) {
        let kept = &self.kept;
        let closed = async {
            loop {
                let requests = kept.queue.take();
                if requests.is_empty() {
                    break;
                }
                let (requests, answer) = self.fly(wire, requests).land().await;
                if settle(requests, answer, kept).is_err() {
                    return;
                }
            }
            loop {
                let mut close = wire.call(Script::Close);
                close.arg(&kept.name);
                match wire.send(close).await {
                    Ok(Value::Int(left)) if left > 0 => {}
                    _ => return,
                }
            }
        };
        // Without an answer the session ends by itself.
        let patience = kept.terms.session_timeout / 4;
        if tokio::time::timeout(patience, closed).await.is_err() {
            debug!(target: STORE, session = kept.id, "session was not closed; it will expire");
        }
    }
}

/// Ends the session when its keeper is gone.
struct End(Arc<Kept>);

impl Drop for End {
    fn drop(&mut self) {
        let Self(kept) = self;
        if !matches!(*kept.link.borrow(), Connection::Ended(_)) {
            kept.end(EndReason::Closed);
        }
    }
}

impl Flight {
    /// The requests, with their answers.
    async fn land(self) -> (Vec<Request>, Result<Value, FlightError>) {
        // Unconstrained: requests are sent in the order of these futures, whatever the task has
        // done before.
        let answer = unconstrained(self.answer).await;
        (self.requests, answer)
    }
}

/// Hands out the answers to the requests of one script.
fn settle(
    requests: Vec<Request>,
    answer: Result<Value, FlightError>,
    kept: &Kept,
) -> Result<(), Over> {
    let answers = match answer {
        Ok(Value::Array(answers)) if answers.len() == requests.len() => answers,
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
                Failed::Never(error) => {
                    refuse(requests, &NodesError::Refused(Arc::new(error)));
                    Ok(())
                }
                Failed::Lost(error) => Err(Over::Refused(error)),
            };
        }
    };
    for (request, answer) in requests.into_iter().zip(answers) {
        // Whoever dropped the request does not want to know.
        drop(request.answer.send(Ok(answer)));
    }
    Ok(())
}

fn refuse(requests: Vec<Request>, error: &NodesError) {
    for request in requests {
        drop(request.answer.send(Err(error.clone())));
    }
}

/// Tries until the session goes on over a new connection, or is over.
async fn connected(kept: &Kept, connections: &mut u64) -> Result<Wire, EndReason> {
    let mut pause = PAUSE_MIN;
    let mut said = String::new();
    loop {
        *connections += 1;
        match resumed(kept, *connections).await {
            Ok(Some(wire)) => return Ok(wire),
            Ok(None) => return Err(EndReason::Expired),
            Err(error) => {
                let why = chain(&error);
                if why != said {
                    warn!(target: STORE, session = kept.id, why, "cannot connect");
                    said = why;
                }
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Connects, and goes on with the session. `None` if it is over.
async fn resumed(kept: &Kept, number: u64) -> Result<Option<Wire>, NodesError> {
    kept.watches.count_on(number);
    let wire = Wire::open(&kept.terms.route, &kept.watches, number).await?;
    let went_on = go_on(kept, &wire, number);
    match tokio::time::timeout(kept.terms.route.connect_timeout, went_on).await {
        Ok(went_on) => Ok(went_on?.then_some(wire)),
        Err(elapsed) => Err(NodesError::Unknown(Arc::new(elapsed))),
    }
}

/// Takes up the session over a new connection, and sets its watches again. False if it is over.
async fn go_on(kept: &Kept, wire: &Wire, number: u64) -> Result<bool, NodesError> {
    wire.subscribe(&kept.id.to_string()).await?;
    let rewatches = kept.watches.confirmed();
    let mut told = Vec::new();
    let mut wait = 0;
    // At least once, also without watches.
    let mut chunks = rewatches.chunks(REWATCHED_MAX);
    let mut chunk: &[Rewatch] = chunks.next().unwrap_or_default();
    loop {
        let mut resume = wire.call(Script::Resume);
        resume.arg(&kept.name).arg(&wire.facts.run);
        for watch in chunk {
            resume
                .arg(watch.number)
                .arg(&watch.path)
                .arg(watch.seen.czxid)
                .arg(watch.seen.mzxid);
        }
        let answer = wire.send(resume).await.map_err(refusal_of_session)?;
        if matches!(&answer, Value::BulkString(word) if word == b"ended") {
            return Ok(false);
        }
        let mut answer = Parts::of(answer)?;
        wait = answer.number()?.max(wait);
        told.extend(answer.texts()?);
        match chunks.next() {
            Some(next) => chunk = next,
            None => break,
        }
    }
    *kept.promise.lock().unwrap_or_else(PoisonError::into_inner) = Promise {
        guarantee: wire.facts.guarantee,
        grants_from: quarantined(wait),
    };
    // Before any news or answer of this connection.
    kept.link.send_replace(Connection::Connected);
    for (watch, word) in rewatches.iter().zip(&told) {
        if let Some(event) = event(word) {
            kept.watches.fire(number, &watch.path, watch.number, event);
        }
    }
    Ok(true)
}

/// An error with its causes, in one line.
fn chain(error: &NodesError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
