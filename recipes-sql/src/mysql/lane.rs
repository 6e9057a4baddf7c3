//! The connection for changes and reads.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mysql_async::{Conn, Error, Row, Statement, Value as Parameter};
use recipes_core::NodeEvent;
use recipes_keeper::{
    Answers, Asked, CallError, Caller, Moment, Open, Opened, Outcome, Resume, Resumed, Rewatch,
    Shared, duration, micros,
};
use tokio::runtime::Handle;
use tokio::time::{Sleep, sleep};

use crate::bell::Bell;

use super::answers::{self, Entered};
use super::batch::{Call, general};
use super::errors::{Failed, Unexpected, call_error, failed};
use super::line::{Line, Turn};
use super::looks::{Looks, happened};
use super::procedures::{Columns, first, of_session, prepare, rows, text};

/// How often a call is sent that deadlocks.
const TRIES_MAX: u32 = 6;
/// Before a call is sent again that was in a deadlock; twice as long each time.
const PAUSE: Duration = Duration::from_millis(1);

/// The connection for changes and reads.
#[derive(Debug)]
pub(super) struct Lane {
    line: Line,
    /// What the names of the procedures begin with.
    prefix: String,
    requests: Statement,
    enter: Statement,
    leave: Statement,
    looks: Looks,
    /// The number of the wire.
    number: u64,
    shared: Arc<Shared>,
    /// The highest number of a transaction that any session of the store has seen.
    highest: Arc<AtomicI64>,
    /// When the last beat was sent that was answered.
    beaten: Mutex<Moment>,
    bell: Arc<Bell>,
    /// Of the session: whoever asks may be outside of any, or in one that ends.
    runtime: Handle,
}

/// How a call of requests went.
enum Went {
    Done(Vec<Outcome>),
    Ended,
    /// Others have locked what it needs.
    Locked,
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

impl Lane {
    /// Gets the procedures ready.
    pub(super) async fn new(
        mut connection: Conn,
        prefix: &str,
        number: u64,
        shared: &Arc<Shared>,
        highest: &Arc<AtomicI64>,
        bell: &Arc<Bell>,
    ) -> Result<Self, Error> {
        Ok(Self {
            prefix: prefix.to_owned(),
            requests: prepare(&mut connection, prefix, "requests", 6).await?,
            enter: prepare(&mut connection, prefix, "enter", 9).await?,
            leave: prepare(&mut connection, prefix, "leave", 5).await?,
            line: Line::new(connection),
            looks: Looks::new(prefix),
            number,
            shared: Arc::clone(shared),
            highest: Arc::clone(highest),
            beaten: Mutex::default(),
            bell: Arc::clone(bell),
            runtime: Handle::current(),
        })
    }

    /// Asks the server whether it is there, if nothing was asked for so long and nothing is now.
    pub(super) async fn ping(&self, idle: Duration) -> Result<(), CallError> {
        self.line.ping(idle).await
    }

    /// Whether the last beat is so recent that an answer proves what it must.
    ///
    /// What is missing to a whole timeout after a beat is less than a 24th of it. So the server keeps the
    /// session for three quarters of it after the requests are sent.
    pub(super) fn is_fresh(&self, timeout: Duration) -> bool {
        let beaten = *self.beaten.lock().unwrap_or_else(PoisonError::into_inner);
        beaten.elapsed() <= timeout * 5 / 24
    }

    /// The server has answered what was sent then, and put off the deadline of the session.
    pub(super) fn was_beaten(&self, sent: Moment) {
        *self.beaten.lock().unwrap_or_else(PoisonError::into_inner) = sent;
    }

    /// Carries out requests.
    pub(super) async fn carry_out(
        &self,
        caller: &Caller,
        all: &[Asked],
    ) -> Result<Option<Answers>, CallError> {
        let mut turn = self.line.turn().await?;
        let mut pause = PAUSE;
        for _ in 0..TRIES_MAX {
            match self.outcome(&mut turn, caller, all).await {
                Ok(Went::Done(outcomes)) => {
                    turn.end();
                    // The step of the clock is told to beats.
                    let step = None;
                    return Ok(Some(Answers { outcomes, step }));
                }
                Ok(Went::Ended) => {
                    turn.end();
                    return Ok(None);
                }
                Ok(Went::Locked) => break,
                Err(Failure::Server(error)) if failed(&error) == Failed::Again => {
                    self.pause(pause).await;
                    pause *= 2;
                }
                Err(Failure::Server(error)) => {
                    let error = call_error(error);
                    if matches!(error, CallError::NotNow(_)) {
                        turn.end();
                    }
                    return Err(error);
                }
                Err(Failure::Call(error)) => return Err(error),
            }
        }
        turn.end();
        Err(CallError::NotNow(Arc::new(Unexpected::Locked)))
    }

    /// Waits on the runtime of the session.
    fn pause(&self, pause: Duration) -> Sleep {
        let _context = self.runtime.enter();
        sleep(pause)
    }

    /// The highest number of a transaction that is known. Numbers go on above it.
    fn seen(&self) -> i64 {
        let seen = self.shared.seen();
        self.highest.fetch_max(seen, Ordering::Relaxed).max(seen)
    }

    async fn outcome(
        &self,
        turn: &mut Turn<'_>,
        caller: &Caller,
        all: &[Asked],
    ) -> Result<Went, Failure> {
        let seen = self.seen();
        if let Some(simple) = Call::simple(all) {
            let done = self.simple(turn, caller, all, seen, &simple).await?;
            if let Some(outcomes) = done {
                return Ok(Went::Done(outcomes));
            }
        }
        let mut parameters = of_session(caller);
        parameters.extend([seen, micros(caller.container_rest)].map(Parameter::Int));
        parameters.push(Parameter::Bytes(general(all)));
        let rows = rows(turn.connection(), &self.requests, parameters).await?;
        // Before anybody reads the answers.
        self.bell.signal(|it| {
            it.has_watched |= all.iter().any(Asked::watches);
            it.has_changed |= all.iter().any(Asked::tells);
        });
        // The last one counts.
        let (mut state, mut text) = (None, Vec::new());
        for row in rows {
            let mut row = Columns::of(Some(row))?;
            state = Some(row.number()?);
            row.number()?;
            text.append(&mut row.bytes()?);
        }
        Ok(match state {
            Some(0) => Went::Done(answers::of_requests(all, &text)?),
            Some(1) => Went::Ended,
            Some(2) => Went::Locked,
            _ => return Err(CallError::unexpected("no state").into()),
        })
    }

    /// None if it was not done, as more is to be said.
    async fn simple(
        &self,
        turn: &mut Turn<'_>,
        caller: &Caller,
        all: &[Asked],
        seen: i64,
        call: &Call<'_>,
    ) -> Result<Option<Vec<Outcome>>, Failure> {
        let mut parameters = of_session(caller);
        let row = match call {
            Call::Enter {
                up_dir,
                up_name,
                dir,
                name,
                data,
            } => {
                parameters.push(Parameter::Int(seen));
                parameters.extend([up_dir, up_name, dir, name].map(|it| text(it)));
                parameters.push(Parameter::Bytes(data.to_vec()));
                first(turn.connection(), &self.enter, parameters).await
            }
            Call::Leave { dir, name, .. } => {
                parameters.extend([dir, name].map(|it| text(it)));
                first(turn.connection(), &self.leave, parameters).await
            }
        };
        let row = match row {
            Ok(row) => row,
            Err(error) if failed(&error) == Failed::NotSimple => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let entered = match call {
            Call::Enter { .. } => Entered::of(row)?,
            _ => Entered::default(),
        };
        // Before anybody reads the answer. Who acquires without a wait does not watch its node.
        self.bell.signal(|it| match call {
            Call::Leave { path, .. } => {
                it.has_changed |= self.shared.watches.last_on(path).is_some()
            }
            _ => it.has_watched |= entered.ahead > 0,
        });
        Ok(Some(match call {
            Call::Enter { .. } => answers::of_enter(all, caller.id, &entered)?,
            Call::Leave { .. } => answers::of_leave(all),
        }))
    }

    /// Calls a procedure that is called seldom, and returns its row.
    async fn row(
        &self,
        turn: &mut Turn<'_>,
        procedure: &str,
        parameters: Vec<Parameter>,
    ) -> Result<Option<Row>, CallError> {
        let marks = vec!["?"; parameters.len()].join(", ");
        let call = format!("CALL {}{procedure}({marks})", self.prefix);
        let row = first(turn.connection(), call, parameters).await;
        row.map_err(call_error)
    }

    pub(super) async fn open(&self, open: &Open) -> Result<Opened, CallError> {
        let parameters = vec![
            text(&open.secret),
            Parameter::Int(micros(open.timeout)),
            Parameter::UInt(self.number),
            text(&open.run),
            Parameter::Int(i64::from(open.is_known)),
        ];
        let mut turn = self.line.turn().await?;
        let sent = Moment::now();
        let row = self.row(&mut turn, "open", parameters).await?;
        turn.end();
        self.was_beaten(sent);
        let mut row = Columns::of(row)?;
        Ok(Opened {
            id: row.number()?,
            quarantine: duration(row.number()?),
            doubt: duration(row.number()?),
        })
    }

    pub(super) async fn resume(&self, resume: &Resume) -> Result<Option<Resumed>, CallError> {
        let caller = &resume.caller;
        let known_by: Vec<_> = resume.known_by.iter().map(u64::to_string).collect();
        let mut parameters = of_session(caller);
        parameters.extend([text(&known_by.join(",")), text(&resume.run)]);
        let mut turn = self.line.turn().await?;
        let sent = Moment::now();
        let row = self.row(&mut turn, "resume", parameters).await?;
        let mut row = Columns::of(row)?;
        let (state, wait) = (row.number()?, row.number()?);
        if state != 0 {
            turn.end();
            return Ok(None);
        }
        self.was_beaten(sent);
        // It goes on, so what is seen from now on is seen by a session that lives.
        let news = self.compare(&mut turn, &resume.watches).await?;
        let nodes = match resume.wants_nodes {
            true => self.looks.own(turn.connection(), caller.id).await?,
            false => Vec::new(),
        };
        turn.end();
        Ok(Some(Resumed {
            quarantine: duration(wait),
            news,
            nodes,
        }))
    }

    /// What has happened to the nodes of these watches.
    async fn compare(
        &self,
        turn: &mut Turn<'_>,
        watches: &[Rewatch],
    ) -> Result<Vec<Option<NodeEvent>>, CallError> {
        let paths: Vec<_> = watches.iter().map(|it| it.path.as_str()).collect();
        let nodes = self.looks.nodes(turn.connection(), &paths).await?;
        let news = watches
            .iter()
            .map(|Rewatch { path, seen, .. }| happened(nodes.get(path), seen.czxid, seen.mzxid));
        Ok(news.collect())
    }

    /// Whether some of its nodes are left.
    pub(super) async fn close(&self, caller: &Caller) -> Result<bool, CallError> {
        let mut turn = self.line.turn().await?;
        let row = self.row(&mut turn, "close", of_session(caller)).await?;
        turn.end();
        Ok(Columns::of(row)?.number()? > 0)
    }
}
