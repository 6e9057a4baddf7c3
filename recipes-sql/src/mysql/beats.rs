//! The connection for beats and polls.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mysql_async::{Conn, Error, Statement, Value as Parameter};
use recipes_keeper::{CallError, Loss, Moment, Shared, Started};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::debug;

use super::answers::Watched;
use super::errors::{Failed, Unexpected, call_error, failed};
use super::lane::Lane;
use super::looks::Looks;
use super::poller::Poller;
use super::procedures::{Columns, first, of_session, prepare};
use super::request::Name;
use crate::STORE;

/// Directories whose nodes are counted for one poll.
const COUNTED_MAX: usize = 8;
/// After this time without a session there is nothing to beat for.
const NEVER: Duration = Duration::from_secs(3600);

/// What others tell whoever beats and polls.
#[derive(Debug)]
pub(super) enum Message {
    Started(Started),
    Ask(Ask),
    Watched(Vec<Watched>),
}

/// A beat that somebody waits for. The answer is false if the session is over.
#[derive(Debug)]
pub(super) struct Ask(oneshot::Sender<Result<bool, CallError>>);

impl Ask {
    pub(super) fn new() -> (Self, oneshot::Receiver<Result<bool, CallError>>) {
        let (answer, answered) = oneshot::channel();
        (Self(answer), answered)
    }
}

/// Beats and polls for one session, over a connection of its own.
pub(super) struct Beats {
    connection: Conn,
    beat: Statement,
    looks: Looks,
    poller: Poller,
    messages: mpsc::UnboundedReceiver<Message>,
    lane: Arc<Lane>,
    shared: Arc<Shared>,
    number: u64,
    /// The session, once it is open.
    session: Option<Session>,
    /// When to beat next.
    next: Instant,
    /// This session has found work that is not done: nodes of others to delete.
    again: bool,
}

/// The session that is kept alive.
struct Session {
    id: i64,
    parameters: Vec<Parameter>,
    timeout: Duration,
}

/// What a beat has told.
struct Told {
    step: i64,
    /// In how many microseconds to beat again at the latest.
    next: i64,
    again: bool,
}

/// What ends the use of the connection.
enum Over {
    Session,
    Lost(CallError),
}

impl From<Error> for Over {
    fn from(error: Error) -> Self {
        Self::Lost(call_error(error))
    }
}

impl Beats {
    pub(super) async fn new(
        mut connection: Conn,
        prefix: &str,
        number: u64,
        messages: mpsc::UnboundedReceiver<Message>,
        lane: Arc<Lane>,
        shared: &Arc<Shared>,
    ) -> Result<Self, Error> {
        Ok(Self {
            beat: prepare(&mut connection, prefix, "beat", 5).await?,
            connection,
            looks: Looks::new(prefix),
            poller: Poller::default(),
            messages,
            lane,
            shared: Arc::clone(shared),
            number,
            session: None,
            next: Instant::now() + NEVER,
            again: false,
        })
    }

    /// Works until the connection is lost or the session over.
    pub(super) async fn run(mut self, lost: watch::Sender<Option<Loss>>) {
        let loss = match self.serve().await {
            Over::Session => Loss::Session,
            Over::Lost(error) => {
                debug!(target: STORE, ?error, "beats and polls end");
                Loss::Connection
            }
        };
        lost.send_replace(Some(loss));
    }

    async fn serve(&mut self) -> Over {
        loop {
            let poll = self.poller.next();
            let done = tokio::select! {
                biased;
                message = self.messages.recv() => self.hear(message).await,
                () = sleep_until(self.next) => self.beat_and_ping().await,
                () = sleep_until(poll.unwrap_or(self.next)), if poll.is_some() => self.poll().await,
            };
            if let Err(over) = done {
                return over;
            }
        }
    }

    async fn hear(&mut self, message: Option<Message>) -> Result<(), Over> {
        match message {
            Some(Message::Started(session)) => {
                let name = Name::of(session.name.as_bytes()).map_err(Over::Lost)?;
                let rest = i64::try_from(session.container_rest.as_micros()).unwrap_or(i64::MAX);
                let mut parameters = of_session(&name);
                parameters.push(Parameter::Int(rest));
                self.session = Some(Session {
                    id: session.id,
                    parameters,
                    timeout: session.timeout,
                });
                // A resumed session has watches already.
                self.poller.watch(Vec::new(), Instant::now());
                self.next = Instant::now();
                Ok(())
            }
            Some(Message::Watched(watched)) => {
                self.poller.watch(watched, Instant::now());
                Ok(())
            }
            Some(Message::Ask(ask)) => self.answer(ask).await,
            // The wire is gone, and this goes with it.
            None => Err(lost(Unexpected::GivenUp)),
        }
    }

    /// Beats for who asks, and for all who ask at the same time.
    async fn answer(&mut self, ask: Ask) -> Result<(), Over> {
        let mut asks = vec![ask];
        let mut others = Vec::new();
        while let Ok(message) = self.messages.try_recv() {
            match message {
                Message::Ask(ask) => asks.push(ask),
                other => others.push(other),
            }
        }
        for message in others {
            if let Message::Watched(watched) = message {
                self.poller.watch(watched, Instant::now());
            }
        }
        // Whoever asks has heard all news when the answer comes.
        let done = match self.beat().await {
            Ok(()) => self.poll().await,
            done => done,
        };
        for Ask(answer) in asks {
            // Whoever no longer waits does not want to know.
            drop(answer.send(match &done {
                Ok(()) => Ok(true),
                Err(Over::Session) => Ok(false),
                Err(Over::Lost(error)) => Err(error.clone()),
            }));
        }
        match done {
            Err(Over::Lost(CallError::NotNow(_))) => Ok(()),
            done => done,
        }
    }

    /// Beats, and sees whether the other connection is there, if it was not used.
    async fn beat_and_ping(&mut self) -> Result<(), Over> {
        match self.beat().await {
            Err(Over::Lost(CallError::NotNow(error))) => {
                debug!(target: STORE, %error, "a beat was refused");
                self.next = Instant::now() + self.patience() / 8;
            }
            done => done?,
        }
        let Some(session) = &self.session else {
            return Ok(());
        };
        let pinged = timeout(self.patience(), self.lane.ping(session.timeout / 6)).await;
        match pinged {
            Ok(pinged) => Ok(pinged?),
            Err(_) => Err(lost(Unexpected::Silent)),
        }
    }

    /// How long an answer may take.
    fn patience(&self) -> Duration {
        let timeout = self.session.as_ref().map_or(NEVER, |it| it.timeout);
        timeout / 4
    }

    async fn beat(&mut self) -> Result<(), Over> {
        let patience = self.patience();
        let Some(session) = &self.session else {
            self.next = Instant::now() + NEVER;
            return Err(lost(Unexpected::Words("a session")));
        };
        let mut parameters = session.parameters.clone();
        parameters.push(Parameter::Int(i64::from(self.again)));
        let sent = Moment::now();
        let answer = first(&mut self.connection, &self.beat, parameters);
        let row = match timeout(patience, answer).await {
            Ok(Ok(row)) => row,
            Ok(Err(error)) => {
                // It has done nothing, and is repeated.
                let error = match failed(&error) {
                    Failed::Again => CallError::NotNow(Arc::new(error)),
                    _ => call_error(error),
                };
                return Err(Over::Lost(error));
            }
            Err(_) => return Err(lost(Unexpected::Silent)),
        };
        let mut row = Columns::of(row).map_err(Over::Lost)?;
        let mut number = || row.number().map_err(Over::Lost);
        if number()? != 0 {
            return Err(Over::Session);
        }
        let told = Told {
            step: number()?,
            next: number()?,
            again: number()? != 0,
        };
        self.shared.was_heard(sent);
        self.lane.was_beaten(sent);
        self.lane.step.store(told.step, Ordering::Relaxed);
        self.again = told.again;
        self.next = Instant::now() + pause(session, &told);
        Ok(())
    }

    async fn poll(&mut self) -> Result<(), Over> {
        let began = Instant::now();
        let watches = self.shared.watches.confirmed();
        let Some(session) = self.session.as_ref().filter(|_| !watches.is_empty()) else {
            self.poller.polled(false, None, began);
            return Ok(());
        };
        let (me, patience) = (session.id, self.patience());
        let mut paths: Vec<_> = watches.iter().map(|it| it.path.as_str()).collect();
        paths.sort_unstable();
        paths.dedup();
        let looked = timeout(patience, self.looks.nodes(&mut self.connection, &paths)).await;
        let nodes = looked.map_err(|_| lost(Unexpected::Silent))??;
        for news in self.poller.news(&watches, &nodes, me) {
            let watches = &self.shared.watches;
            watches.fire(self.number, &news.path, news.up_to, news.event);
        }
        let ahead = match self.poller.to_count(&nodes, me) {
            None => Some(0),
            Some(to_count) => {
                let to_count: Vec<_> = to_count.into_iter().take(COUNTED_MAX).collect();
                let mut least = None;
                for (path, place) in to_count {
                    let counted = self.looks.ahead(&mut self.connection, path, place);
                    let counted = timeout(patience, counted).await;
                    let ahead = counted.map_err(|_| lost(Unexpected::Silent))??;
                    self.poller.counted(path, ahead);
                    least = Some(least.map_or(ahead, |it: i64| it.min(ahead)));
                }
                least
            }
        };
        self.poller.polled(true, ahead, began);
        Ok(())
    }
}

fn lost(why: Unexpected) -> Over {
    Over::Lost(CallError::Lost(Arc::new(why)))
}

/// Until the next beat: a sixth of the timeout, or less if the store's clock would stand still between
/// them, or if something is to be done then.
fn pause(session: &Session, told: &Told) -> Duration {
    let micros = |it: i64| Duration::from_micros(u64::try_from(it).unwrap_or_default());
    let mut pause = session.timeout / 6;
    if told.step > 0 {
        pause = pause.min(micros(told.step) * 2 / 3);
    }
    // All sessions know when the next one is due. One of them is enough, so they come one by one.
    let turn = match told.again {
        true => 0,
        false => told.step / 128 * session.id.rem_euclid(16),
    };
    pause.min(micros(told.next.saturating_add(turn)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beats_are_a_sixth_of_the_timeout_or_when_something_is_due() {
        let session = |id| Session {
            id,
            parameters: Vec::new(),
            timeout: Duration::from_secs(12),
        };
        let told = |step, next, again| Told { step, next, again };
        let millis = |told: &Told, id| pause(&session(id), told).as_millis();
        let far = 12_000_000;
        assert_eq!(millis(&told(3_000_000, far, false), 16), 2_000);
        assert_eq!(millis(&told(300_000, far, false), 16), 200);
        assert_eq!(millis(&told(0, far, false), 16), 2_000);
        assert_eq!(millis(&told(3_200_000, 100_000, false), 16), 100);
        assert_eq!(millis(&told(3_200_000, 100_000, false), 18), 150);
        assert_eq!(millis(&told(3_200_000, 20_000, true), 18), 20);
    }
}
