//! The connection for changes and reads.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error, Row, Statement, Value as Parameter};
use recipes_keeper::{CallError, Function, Moment, Shared, Value, Words};
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::{Instant, sleep};

use super::answers::{self, Answers, Entered};
use super::batch::Call;
use super::beats::{Ask, Message};
use super::errors::{Failed, Unexpected, call_error, failed};
use super::looks::Looks;
use super::procedures::{Columns, bytes, entered, first, of_session, prepare};
use super::request::{Caller, Name, Request, Said, number, parse, split};

/// How often a call is sent that deadlocks.
const TRIES_MAX: u32 = 6;
/// Before a call is sent again that was in a deadlock; twice as long each time.
const PAUSE: Duration = Duration::from_millis(1);

/// The connection for changes and reads. One call is on its way at a time.
pub(super) struct Lane {
    inner: Mutex<Inner>,
    /// The number of the wire.
    number: u64,
    shared: Arc<Shared>,
    /// The most that the store's clock advances at once, as far as it was told.
    pub(super) step: AtomicI64,
    /// When the last beat was sent that was answered.
    beaten: std::sync::Mutex<Moment>,
    beats: mpsc::UnboundedSender<Message>,
}

struct Inner {
    connection: Conn,
    calls: Calls,
    looks: Looks,
    /// A call has begun. If it was dropped, nobody knows what comes next over the connection.
    is_busy: bool,
    used: Instant,
}

/// The procedures that are called often.
struct Calls {
    prefix: String,
    requests: Statement,
    enter: Statement,
    leave: Statement,
}

/// How a call of requests went.
enum Outcome {
    Done(Answers),
    Ended,
    /// Others have locked what it needs.
    Locked,
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl Lane {
    /// Gets the procedures ready.
    pub(super) async fn new(
        mut connection: Conn,
        prefix: &str,
        number: u64,
        shared: &Arc<Shared>,
        beats: mpsc::UnboundedSender<Message>,
    ) -> Result<Self, Error> {
        let calls = Calls {
            prefix: prefix.to_owned(),
            requests: prepare(&mut connection, prefix, "requests", 6).await?,
            enter: prepare(&mut connection, prefix, "enter", 9).await?,
            leave: prepare(&mut connection, prefix, "leave", 5).await?,
        };
        let inner = Inner {
            connection,
            calls,
            looks: Looks::new(prefix),
            is_busy: false,
            used: Instant::now(),
        };
        Ok(Self {
            inner: Mutex::new(inner),
            number,
            shared: Arc::clone(shared),
            step: AtomicI64::default(),
            beaten: std::sync::Mutex::default(),
            beats,
        })
    }

    pub(super) async fn call(&self, function: Function, words: &Words) -> Result<Value, CallError> {
        let mut inner = self.inner.lock().await;
        if inner.is_busy {
            return Err(CallError::Lost(Arc::new(Unexpected::GivenUp)));
        }
        inner.is_busy = true;
        let answer = match function {
            Function::Requests | Function::Undo => self.requests(&mut inner, words).await,
            Function::Open => self.open(&mut inner, words).await,
            Function::Resume => self.resume(&mut inner, words).await,
            Function::Close => inner.close(words).await,
            // It is called elsewhere.
            Function::Beat => Err(Unexpected::words("a call of this connection")),
        };
        inner.is_busy = false;
        inner.used = Instant::now();
        answer
    }

    /// Asks the server whether it is there, if nothing was asked for so long and nothing is now.
    pub(super) async fn ping(&self, idle: Duration) -> Result<(), Error> {
        let Ok(mut inner) = self.inner.try_lock() else {
            return Ok(());
        };
        if inner.is_busy || inner.used.elapsed() < idle {
            return Ok(());
        }
        inner.is_busy = true;
        inner.connection.ping().await?;
        inner.is_busy = false;
        inner.used = Instant::now();
        Ok(())
    }

    async fn requests(&self, inner: &mut Inner, words: &Words) -> Result<Value, CallError> {
        let (caller, requests) = parse(words)?;
        // What is missing to a whole timeout after a beat is less than a 24th of it. So an answer proves
        // that the server keeps the session three quarters of it from the sending on.
        if self.beaten().elapsed() > caller.timeout * 5 / 24 && !self.beat().await? {
            return Ok(ended());
        }
        let mut pause = PAUSE;
        for _ in 0..TRIES_MAX {
            match self.outcome(inner, &caller, &requests).await {
                Ok(Outcome::Done(answers)) => return Ok(self.done(answers)),
                Ok(Outcome::Ended) => return Ok(ended()),
                Ok(Outcome::Locked) => return Err(CallError::NotNow(Arc::new(Unexpected::Locked))),
                Err(Failure::Server(error)) if failed(&error) == Failed::Again => {
                    sleep(pause).await;
                    pause *= 2;
                }
                Err(Failure::Server(error)) => return Err(call_error(error)),
                Err(Failure::Call(error)) => return Err(error),
            }
        }
        Err(CallError::NotNow(Arc::new(Unexpected::Locked)))
    }

    fn done(&self, answers: Answers) -> Value {
        let Answers {
            mut values,
            watched,
        } = answers;
        if !watched.is_empty() {
            // Whoever looks for news is gone with the wire.
            drop(self.beats.send(Message::Watched(watched)));
        }
        values.push(Value::Number(self.step.load(Ordering::Relaxed)));
        Value::List(values)
    }

    fn beaten(&self) -> Moment {
        *self.beaten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server has answered what was sent then, and put off the deadline of the session.
    pub(super) fn was_beaten(&self, sent: Moment) {
        *self.beaten.lock().unwrap_or_else(PoisonError::into_inner) = sent;
    }

    /// Has the session's deadline put off. False if it is over.
    async fn beat(&self) -> Result<bool, CallError> {
        let (ask, answer) = Ask::new();
        drop(self.beats.send(Message::Ask(ask)));
        match answer.await {
            Ok(answer) => answer,
            Err(oneshot::error::RecvError { .. }) => {
                Err(CallError::Lost(Arc::new(Unexpected::Silent)))
            }
        }
    }

    async fn outcome(
        &self,
        inner: &mut Inner,
        caller: &Caller<'_>,
        requests: &[Request<'_>],
    ) -> Result<Outcome, Failure> {
        let seen = self.shared.seen();
        if let Some(simple) = Call::simple(requests) {
            if let Some(answers) = inner.simple(caller, requests, seen, &simple).await? {
                return Ok(Outcome::Done(answers));
            }
        }
        inner.general(caller, requests, seen).await
    }

    async fn open(&self, inner: &mut Inner, words: &Words) -> Result<Value, CallError> {
        let mut said = Said::new(words.iter());
        let (secret, timeout) = (said.word()?, number(said.word()?)?);
        let (run, is_known) = (said.word()?, said.word()?);
        let parameters = vec![
            bytes(secret),
            Parameter::Int(timeout),
            Parameter::UInt(self.number),
            bytes(run),
            Parameter::Int(i64::from(is_known == b"1")),
        ];
        let sent = Moment::now();
        let row = inner.row("open", parameters).await?;
        let mut row = Columns::of(row)?;
        self.was_beaten(sent);
        let (id, wait) = (row.number()?, row.number()?);
        self.step.store(row.number()?, Ordering::Relaxed);
        Ok(Value::List(vec![Value::Number(id), Value::Number(wait)]))
    }

    async fn resume(&self, inner: &mut Inner, words: &Words) -> Result<Value, CallError> {
        let mut said = Said::new(words.iter());
        let session = Name::of(said.word()?)?;
        // The id is in the name, and the server knows the timeout.
        let (_, _) = (said.word()?, said.word()?);
        let (number, run) = (number(said.word()?)?, said.word()?);
        let (wants_nodes, known_by) = (said.word()? == b"1", said.word()?);
        let parameters = vec![
            Parameter::Int(session.id),
            bytes(session.secret),
            Parameter::UInt(number),
            bytes(known_by),
            bytes(run),
        ];
        let sent = Moment::now();
        let row = inner.row("resume", parameters).await?;
        let mut row = Columns::of(row)?;
        let (state, wait) = (row.number()?, row.number()?);
        if state != 0 {
            return Ok(ended());
        }
        self.was_beaten(sent);
        self.step.store(row.number()?, Ordering::Relaxed);
        // It goes on, so what is seen from now on is seen by a session that lives.
        let Inner {
            connection, looks, ..
        } = inner;
        let news = looks.compare(connection, &mut said).await?;
        let nodes = match wants_nodes {
            true => looks.own(connection, session.id).await?,
            false => Vec::new(),
        };
        let parts = [Value::Number(wait), Value::List(news), Value::List(nodes)];
        Ok(Value::List(parts.into()))
    }
}

/// Why requests have no outcome.
enum Failure {
    Server(Error),
    Call(CallError),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Server(error)
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl Inner {
    /// Calls a procedure that is called seldom, and returns its row.
    async fn row(
        &mut self,
        procedure: &str,
        parameters: Vec<Parameter>,
    ) -> Result<Option<Row>, CallError> {
        let marks = vec!["?"; parameters.len()].join(", ");
        let call = format!("CALL {}{procedure}({marks})", self.calls.prefix);
        let row = first(&mut self.connection, call, parameters).await;
        row.map_err(call_error)
    }

    async fn close(&mut self, words: &Words) -> Result<Value, CallError> {
        let session = Name::of(Said::new(words.iter()).word()?)?;
        let row = self.row("close", of_session(&session)).await?;
        Ok(Value::Number(Columns::of(row)?.number()?))
    }

    /// None if it was not done, as more is to be said.
    async fn simple(
        &mut self,
        caller: &Caller<'_>,
        requests: &[Request<'_>],
        seen: i64,
        call: &Call<'_>,
    ) -> Result<Option<Answers>, Failure> {
        let mut parameters = of_session(&caller.session);
        let statement = match call {
            Call::Enter { dir, name, data } => {
                let (up_dir, up_name) = split(dir);
                let place = [up_dir, up_name, dir, name, data].map(bytes);
                parameters.push(Parameter::Int(seen));
                parameters.extend(place);
                &self.calls.enter
            }
            Call::Leave { dir, name } => {
                parameters.extend([bytes(dir), bytes(name)]);
                &self.calls.leave
            }
            Call::Requests(_) => return Ok(None),
        };
        let entered = match call {
            Call::Enter { .. } => entered(&mut self.connection, statement, parameters).await,
            _ => {
                let row = first(&mut self.connection, statement, parameters).await;
                row.map(|_| Ok(Entered::default()))
            }
        };
        let entered = match entered {
            Ok(entered) => entered?,
            Err(error) if failed(&error) == Failed::NotSimple => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        Ok(Some(match call {
            Call::Enter { .. } => answers::of_enter(requests, caller.session.id, &entered)?,
            _ => answers::of_leave(requests),
        }))
    }

    async fn general(
        &mut self,
        caller: &Caller<'_>,
        requests: &[Request<'_>],
        seen: i64,
    ) -> Result<Outcome, Failure> {
        let Call::Requests(words) = Call::general(requests) else {
            return Err(Unexpected::words("a general call").into());
        };
        let mut parameters = of_session(&caller.session);
        parameters.extend([
            Parameter::Int(seen),
            Parameter::Int(caller.rest),
            Parameter::Bytes(words),
        ]);
        let row = first(&mut self.connection, &self.calls.requests, parameters).await?;
        let mut row = Columns::of(row)?;
        Ok(match (row.number()?, row.number()?, row.bytes()?) {
            (0, _, text) => {
                Outcome::Done(answers::of_requests(requests, caller.session.id, &text)?)
            }
            (1, ..) => Outcome::Ended,
            _ => Outcome::Locked,
        })
    }
}

fn ended() -> Value {
    Value::Bytes(b"ended".to_vec())
}
