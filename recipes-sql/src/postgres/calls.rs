//! The calls of the functions.

use recipes_keeper::{
    Answers, Asked, CallError, Caller, Open, Opened, Resume, Resumed, duration, micros, told,
};
use tokio::time::{Duration, sleep};
use tokio_postgres::types::Type;
use tracing::debug;

use crate::STORE;
use crate::aside::Beat;

use super::answers::{Answered, Failed, call_error, failed, lost, read};
use super::line::{Call, Parameter};
use super::simple::Simple;
use super::wire::Lines;
use super::words::{Said, Session, Watched, signed};

/// How often a call is sent again that the server has undone because of others.
const AGAIN_MAX: u32 = 4;
/// Before it is sent again the first time.
const AGAIN_PAUSE: Duration = Duration::from_millis(2);
/// How often a call is sent again after a beat. One is enough unless the server stands still in between.
const LATE_MAX: u32 = 3;

/// The types of the parameters of `enter`.
const ENTER: [Type; 10] = [
    Type::TEXT,
    Type::INT8,
    Type::INT8,
    Type::INT8,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::BYTEA,
    Type::INT8,
];
/// The types of the parameters of `look`.
const LOOK: [Type; 6] = [
    Type::TEXT,
    Type::INT8,
    Type::INT8,
    Type::TEXT,
    Type::TEXT,
    Type::INT8,
];
/// The types of the parameters of `leave`.
const LEAVE: [Type; 7] = [
    Type::TEXT,
    Type::INT8,
    Type::INT8,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
    Type::TEXT,
];

/// The statements.
pub(super) struct Calls {
    pub(super) open: Call,
    pub(super) resume: Call,
    pub(super) requests: Call,
    pub(super) enter: Call,
    pub(super) look: Call,
    pub(super) leave: Call,
    pub(super) close: Call,
    pub(super) beat: Call,
    pub(super) poll: Call,
}

impl Calls {
    /// Those of a schema, whose name is quoted. Through a pooler, `only_on` is the condition under which they
    /// are carried out.
    pub(super) fn new(schema: &str, only_on: &str) -> Self {
        let call = |function: &str, types: &[Type]| {
            let places = (1..=types.len()).map(|it| format!("${it}"));
            let places = places.collect::<Vec<_>>().join(", ");
            // One value is cheaper than a row of one.
            let text = match function {
                "requests" | "enter" | "look" | "leave" | "close" => {
                    format!("SELECT {schema}.{function}({places}){only_on}")
                }
                _ => format!("SELECT * FROM {schema}.{function}({places}){only_on}"),
            };
            Call::new(text, types)
        };
        let (number, word, truth) = (Type::INT8, Type::TEXT, Type::BOOL);
        let [number, word, truth] = [&number, &word, &truth].map(|it| move || it.clone());
        let (numbers, words) = (|| Type::INT8_ARRAY, || Type::TEXT_ARRAY);
        Self {
            open: call("open", &[word(), number(), word(), truth()]),
            resume: call(
                "resume",
                &[
                    word(),
                    number(),
                    number(),
                    number(),
                    word(),
                    truth(),
                    numbers(),
                    numbers(),
                    words(),
                    words(),
                    numbers(),
                    numbers(),
                ],
            ),
            requests: call(
                "requests",
                &[
                    word(),
                    number(),
                    number(),
                    number(),
                    number(),
                    truth(),
                    words(),
                    words(),
                    words(),
                    Type::BYTEA_ARRAY,
                ],
            ),
            enter: call("enter", &ENTER),
            look: call("look", &LOOK),
            leave: call("leave", &LEAVE),
            close: call("close", &[word(), number(), number()]),
            beat: call("beat", &[word(), number(), number(), number()]),
            poll: call(
                "poll",
                &[
                    number(),
                    numbers(),
                    words(),
                    words(),
                    numbers(),
                    numbers(),
                    truth(),
                ],
            ),
        }
    }
}

impl Lines {
    pub(super) async fn open(&self, open: &Open) -> Result<Opened, CallError> {
        let timeout = micros(open.timeout);
        let said: [Parameter<'_>; 4] = [&open.secret, &timeout, &open.run, &open.is_known];
        let row = self.requests.one(&self.calls.open, &said).await;
        let row = row.map_err(call_error)?;
        Ok(Opened {
            id: row.try_get(0).map_err(lost)?,
            quarantine: duration(row.try_get(1).map_err(lost)?),
            doubt: duration(row.try_get(2).map_err(lost)?),
        })
    }

    pub(super) async fn resume(&self, resume: &Resume) -> Result<Option<Resumed>, CallError> {
        let caller = &resume.caller;
        let (name, timeout) = (caller.lasting_name(), micros(caller.timeout));
        let number = signed(caller.connection);
        let known_by: Vec<_> = resume.known_by.iter().map(|it| signed(*it)).collect();
        let watched = Watched::of(&resume.watches);
        let said: [Parameter<'_>; 12] = [
            &name,
            &caller.id,
            &timeout,
            &number,
            &resume.run,
            &resume.wants_nodes,
            &known_by,
            &watched.numbers,
            &watched.dirs,
            &watched.names,
            &watched.created,
            &watched.changed,
        ];
        let row = self.requests.one(&self.calls.resume, &said).await;
        let row = row.map_err(call_error)?;
        let Some(wait) = row.try_get(0).map_err(lost)? else {
            return Ok(None);
        };
        let news: Vec<&str> = row.try_get(1).map_err(lost)?;
        Ok(Some(Resumed {
            quarantine: duration(wait),
            news: news.into_iter().map(told).collect::<Result<_, _>>()?,
            nodes: row.try_get(2).map_err(lost)?,
        }))
    }

    /// Carries out requests.
    pub(super) async fn carry_out(
        &self,
        caller: &Caller,
        all: &[Asked],
    ) -> Result<Option<Answers>, CallError> {
        let session = Session::of(caller);
        // Otherwise nobody has made the settings for these.
        if self.requests.is_direct() {
            if let Some(simple) = Simple::of(all) {
                let done = self.simply(&session, &simple).await?;
                if done.is_some() {
                    return Ok(done);
                }
            }
        }
        let said = Said::of(all);
        if said.tells {
            self.bell.changes();
        }
        let answer = self.say(&session, all, &said).await;
        self.bell.signal(|it| it.has_watched |= said.watches);
        if said.tells {
            let is_known = matches!(answer, Ok(_) | Err(CallError::NotNow(_)));
            self.bell.changed(is_known);
        }
        answer
    }

    /// Calls `requests` until it is carried out.
    async fn say(
        &self,
        session: &Session,
        all: &[Asked],
        said: &Said,
    ) -> Result<Option<Answers>, CallError> {
        let (mut again, mut late) = (0, 0);
        loop {
            match self.requested(session, all, said).await {
                Ok(Answered::Done(answers)) => return Ok(Some(answers)),
                Ok(Answered::Ended) => return Ok(None),
                Ok(Answered::Late) => {
                    late += 1;
                    if late > LATE_MAX {
                        let why = "the session is kept alive too late, again and again";
                        return Err(lost(std::io::Error::other(why)));
                    }
                    if self.beat(session).await?.is_none() {
                        return Ok(None);
                    }
                }
                Err(Failed::Again(error)) if again < AGAIN_MAX => {
                    debug!(target: STORE, %error, again, "undone because of others");
                    sleep(AGAIN_PAUSE * 2_u32.pow(again)).await;
                    again += 1;
                }
                Err(Failed::Again(error)) => return Err(call_error(error)),
                Err(Failed::Otherwise(error)) => return Err(error),
            }
        }
    }

    async fn requested(
        &self,
        session: &Session,
        all: &[Asked],
        said: &Said,
    ) -> Result<Answered, Failed> {
        let Session {
            name,
            id,
            timeout,
            rest,
            ..
        } = session;
        let seen = self.seen();
        let parameters: [Parameter<'_>; 10] = [
            name,
            id,
            timeout,
            rest,
            &seen,
            &said.changes,
            &said.up_dirs,
            &said.up_names,
            &said.words,
            &said.data,
        ];
        let row = self.requests.one(&self.calls.requests, &parameters).await;
        let row = row.map_err(failed)?;
        let answer = row.try_get(0).map_err(failed)?;
        read(all, answer).map_err(Failed::Otherwise)
    }

    /// A beat that somebody asks for. Whoever asks has heard all news when the answer comes.
    pub(super) async fn asked_beat(&self, caller: &Caller) -> Result<bool, CallError> {
        let lives = self.beat(&Session::of(caller)).await?.is_some();
        if lives {
            self.bell.look().await;
        }
        Ok(lives)
    }

    /// Keeps a session alive. `None` if it has ended.
    pub(super) async fn beat(&self, session: &Session) -> Result<Option<Beat>, CallError> {
        let Session {
            name,
            id,
            timeout,
            rest,
            ..
        } = session;
        let said: [Parameter<'_>; 4] = [name, id, timeout, rest];
        let row = self.aside.one(&self.calls.beat, &said).await;
        let row = row.map_err(call_error)?;
        let step: Option<i64> = row.try_get(0).map_err(lost)?;
        let due: Option<i64> = row.try_get(1).map_err(lost)?;
        let (Some(step), Some(due)) = (step, due) else {
            return Ok(None);
        };
        let [step, due] = [step, due].map(duration);
        Ok(Some(Beat { step, due }))
    }

    /// Whether some of its nodes are left.
    pub(super) async fn close(&self, caller: &Caller) -> Result<bool, CallError> {
        let Session {
            name, id, timeout, ..
        } = Session::of(caller);
        let said: [Parameter<'_>; 3] = [&name, &id, &timeout];
        let row = self.requests.one(&self.calls.close, &said).await;
        row.map_err(call_error)?.try_get(0).map_err(lost)
    }
}
