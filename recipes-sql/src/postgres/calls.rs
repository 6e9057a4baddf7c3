//! The calls of the functions.

use recipes_keeper::{CallError, Value, Words};
use tokio::time::{Duration, sleep};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use tracing::debug;

use crate::STORE;
use crate::aside::Beat;

use super::answers::{Answered, Cut, Failed, call_error, failed, lost, read};
use super::line::Call;
use super::simple::Simple;
use super::wire::Lines;
use super::words::{Caller, Reader, Said};

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
const LEAVE: [Type; 5] = [Type::TEXT, Type::INT8, Type::INT8, Type::TEXT, Type::TEXT];

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

fn ended() -> Value {
    Value::Bytes(b"ended".to_vec())
}

fn texts(texts: Vec<String>) -> Value {
    let texts = texts.into_iter().map(|it| Value::Bytes(it.into_bytes()));
    Value::List(texts.collect())
}

impl Lines {
    pub(super) async fn open(&self, words: &Words) -> Result<Value, CallError> {
        let mut reader = Reader::of(words);
        let (secret, timeout) = (reader.text()?, reader.number()?);
        let (run, is_known) = (reader.text()?, reader.text()? == "1");
        let said: [super::line::Parameter<'_>; 4] = [&secret, &timeout, &run, &is_known];
        let row = self.requests.one(&self.calls.open, &said).await;
        let row = row.map_err(call_error)?;
        let number = |at| row.try_get(at).map(Value::Number).map_err(lost);
        Ok(Value::List(vec![number(0)?, number(1)?, number(2)?]))
    }

    pub(super) async fn resume(&self, words: &Words) -> Result<Value, CallError> {
        let mut reader = Reader::of(words);
        let (name, id, timeout) = (reader.text()?, reader.number()?, reader.number()?);
        let (number, run, wants_nodes) = (reader.number()?, reader.text()?, reader.text()? == "1");
        let known = reader.text()?.split(',').filter_map(|it| it.parse().ok());
        let known: Vec<i64> = known.collect();
        let watched = reader.watched()?;
        let said: [super::line::Parameter<'_>; 12] = [
            &name,
            &id,
            &timeout,
            &number,
            &run,
            &wants_nodes,
            &known,
            &watched.numbers,
            &watched.dirs,
            &watched.names,
            &watched.created,
            &watched.changed,
        ];
        let row = self.requests.one(&self.calls.resume, &said).await;
        let row = row.map_err(call_error)?;
        let Some(wait) = row.try_get(0).map_err(lost)? else {
            return Ok(ended());
        };
        let news: Vec<String> = row.try_get(1).map_err(lost)?;
        if news.len() != watched.numbers.len() {
            return Err(lost(Cut));
        }
        let nodes = row.try_get(2).map_err(lost)?;
        Ok(Value::List(vec![
            Value::Number(wait),
            texts(news),
            texts(nodes),
        ]))
    }

    /// Carries out requests.
    pub(super) async fn carry_out(&self, words: &Words) -> Result<Value, CallError> {
        // Otherwise nobody has made the settings for these.
        if self.requests.is_direct() {
            if let Some((caller, simple)) = Simple::of(words) {
                if let Some(value) = self.simply(&caller, &simple).await? {
                    return Ok(value);
                }
            }
        }
        let said = Said::of(words)?;
        if said.tells {
            self.bell.changes();
        }
        let answer = self.say(&said).await;
        self.bell.signal(|it| it.has_watched |= said.watches);
        if said.tells {
            let is_known = matches!(answer, Ok(_) | Err(CallError::NotNow(_)));
            self.bell.changed(is_known);
        }
        answer
    }

    /// Calls `requests` until it is carried out.
    async fn say(&self, said: &Said) -> Result<Value, CallError> {
        let (mut again, mut late) = (0, 0);
        loop {
            match self.requested(said).await {
                Ok(Answered::Done(value)) => return Ok(value),
                Ok(Answered::Ended) => return Ok(ended()),
                Ok(Answered::Late) => {
                    late += 1;
                    if late > LATE_MAX {
                        let why = "the session is kept alive too late, again and again";
                        return Err(lost(std::io::Error::other(why)));
                    }
                    if self.beat(&said.caller).await?.is_none() {
                        return Ok(ended());
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

    async fn requested(&self, said: &Said) -> Result<Answered, Failed> {
        let Caller {
            name,
            id,
            timeout,
            rest,
        } = &said.caller;
        let seen = self.seen();
        let parameters: [super::line::Parameter<'_>; 10] = [
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
        read(answer).map_err(Failed::Otherwise)
    }

    /// A beat that somebody asks for. Whoever asks has heard all news when the answer comes.
    pub(super) async fn asked_beat(&self, words: &Words) -> Result<Value, CallError> {
        let caller = Caller::read(&mut Reader::of(words))?;
        let beat = self.beat(&caller).await?;
        if beat.is_some() {
            self.bell.look().await;
        }
        Ok(beat.map_or_else(ended, |_| Value::List(Vec::new())))
    }

    /// Keeps a session alive. `None` if it has ended.
    pub(super) async fn beat(&self, caller: &Caller) -> Result<Option<Beat>, CallError> {
        let Caller {
            name,
            id,
            timeout,
            rest,
        } = caller;
        let said: [super::line::Parameter<'_>; 4] = [name, id, timeout, rest];
        let row = self.aside.one(&self.calls.beat, &said).await;
        let row = row.map_err(call_error)?;
        let step: Option<i64> = row.try_get(0).map_err(lost)?;
        let due: Option<i64> = row.try_get(1).map_err(lost)?;
        let (Some(step), Some(due)) = (step, due) else {
            return Ok(None);
        };
        let [step, due] = [step, due].map(|it| u64::try_from(it).unwrap_or_default());
        let [step, due] = [step, due].map(Duration::from_micros);
        Ok(Some(Beat { step, due }))
    }

    pub(super) async fn close(&self, words: &Words) -> Result<Value, CallError> {
        let name = Reader::of(words).text()?;
        // `id:timeout:secret:connection`
        let mut numbers = name.split(':').map(str::parse);
        let mut number = || numbers.next().and_then(Result::ok).unwrap_or(0_i64);
        let (id, timeout) = (number(), number());
        let said: [super::line::Parameter<'_>; 3] = [&name, &id, &timeout];
        let row: Row = self
            .requests
            .one(&self.calls.close, &said)
            .await
            .map_err(call_error)?;
        let is_left: bool = row.try_get(0).map_err(lost)?;
        Ok(Value::Number(i64::from(is_left)))
    }
}
