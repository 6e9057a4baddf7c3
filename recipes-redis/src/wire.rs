//! One connection.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, join};
use recipes_core::NodesError;
use recipes_keeper::{
    Answers, Asked, CallError, Called, Caller, Facts, Loss, Open, Opened, Reads, Resume, Resumed,
    Server, Shared, Source, Wire, news,
};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, FromRedisValue, PushInfo, PushKind, RedisError,
    RedisResult, ServerErrorKind, cmd,
};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::answers::{answers, call_error, closed, opened, refusal, resumed};
use crate::checks::{self, RedisRefusal};
use crate::library::{self, Function};
use crate::reads::RedisReads;
use crate::servers::Servers;
use crate::words::Words;

/// Requests that may be on their way. More wait in the queue of the session.
const IN_FLIGHT_MAX: usize = 1024;
/// A server gives up on a connection with a subscription when 32 MiB of answers wait for it, or 8 MiB for
/// a minute, and a name has some 65 bytes.
const NAMES_MAX: usize = 20_000;

/// How long a server may take to say why it closes connections.
const LAST_WORDS_MAX: Duration = Duration::from_millis(250);
/// Why a server closes a connection without a word.
const EXPECTS_TLS: &str =
    "it may expect TLS at this port, and then the address begins with rediss://";

/// A connection to the primary, which has the library.
struct RedisWire {
    connection: MultiplexedConnection,
    prefix: Arc<str>,
    number: u64,
    /// Becomes true.
    lost: watch::Receiver<bool>,
    facts: Facts,
    /// Replicas that must have what counts as done, and how long they have for it.
    replicas: u32,
    replicas_timeout: Duration,
}

impl fmt::Debug for RedisWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("facts", &self.facts).finish()
    }
}

/// How to connect.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) servers: Servers,
    pub(crate) prefix: String,
    /// Replicas that must have what counts as done.
    pub(crate) replicas: u32,
    /// How long they have for it.
    pub(crate) replicas_timeout: Duration,
}

impl Route {
    /// The key of the root, which who only reads may read, too.
    fn root(&self) -> String {
        format!("{}:n:/", self.prefix)
    }
}

impl Server for Route {
    fn may_pass(&self, refusal: &Source) -> bool {
        match refusal.downcast_ref() {
            Some(RedisRefusal::Replica { .. }) => true,
            Some(RedisRefusal::Elsewhere { .. }) => self.may_move(),
            _ => false,
        }
    }

    fn may_move(&self) -> bool {
        self.servers.may_move()
    }

    fn silence(&self) -> &'static str {
        match self.servers.encrypts() {
            true => "; if it speaks no TLS at this port, the address begins with redis://",
            false => "",
        }
    }

    fn open<'a>(
        &'a self,
        shared: &'a Arc<Shared>,
        number: u64,
    ) -> BoxFuture<'a, Result<Box<dyn Wire>, NodesError>> {
        let opened = RedisWire::open(self, shared, number);
        opened
            .map(|opened| opened.map(|wire| Box::new(wire) as Box<dyn Wire>))
            .boxed()
    }

    fn read(&self) -> BoxFuture<'_, Result<Arc<dyn Reads>, NodesError>> {
        RedisReads::open(self).boxed()
    }
}

impl RedisWire {
    /// Connects, looks at the server, and hands over the library. News go to the watches, as those of
    /// connection `number`.
    async fn open(route: &Route, shared: &Arc<Shared>, number: u64) -> Result<Self, NodesError> {
        let shared = Arc::clone(shared);
        let heard = move |payload: &[u8]| {
            if let Some((event, up_to, path)) = news(payload) {
                shared.watches.fire(number, path, up_to, event);
            }
        };
        let (mut connection, lost) = connect(route, heard).await?;
        let mut info = info(&mut connection).await?;
        if checks::is_clustered(&info) {
            // The server ends this when it loses the keys, and says so ahead of any answer of later. A connection
            // with nothing to ask would not notice that they are back, and older.
            let mut subscribe = cmd("SSUBSCRIBE");
            subscribe.arg(format!("{}:e:slot", route.prefix));
            let subscribed = subscribe.exec_async(&mut connection).await;
            subscribed.map_err(|error| gone(route, error))?;
            // The run that it began before.
            info = self::info(&mut connection).await?;
        }
        let facts = look(&mut connection, route, &info).await?;
        let loaded = library::load(&mut connection).await;
        loaded.map_err(refusal)?;
        Ok(Self {
            connection,
            prefix: route.prefix.as_str().into(),
            number,
            lost,
            facts,
            replicas: route.replicas,
            replicas_timeout: route.replicas_timeout,
        })
    }

    /// Calls a function, and reads its answer.
    fn call<T: Send + 'static>(
        &self,
        function: Function,
        words: &Words,
        read: impl FnOnce(redis::Value) -> Result<T, CallError> + Send + 'static,
    ) -> Called<T> {
        let answer = self.send(library::call(function, &self.prefix, words));
        async move { read(answer.await?) }.boxed()
    }

    /// Sends a command at the first poll; the answer comes later.
    fn send(
        &self,
        command: Cmd,
    ) -> impl Future<Output = Result<redis::Value, CallError>> + Send + 'static {
        let (mut connection, lost) = (self.connection.clone(), self.lost.clone());
        let prefix = Arc::clone(&self.prefix);
        async move {
            let answer = connection.send_packed_command(&command).await;
            // The client takes the end of a subscription for an answer, and then each answer for the next one.
            if answer.is_ok() && *lost.borrow() {
                return Err(CallError::unexpected("an answer after the keys have moved"));
            }
            let error = match answer {
                Ok(redis::Value::ServerError(error)) => error.into(),
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            if is_moving(&error) {
                distrust(&mut connection, &prefix).await;
                return Err(CallError::Lost(Arc::new(moving(&prefix, &error))));
            }
            Err(call_error(error))
        }
    }
}

/// The keys are being moved. What is found afterwards may not be all, should they stay after all: so whoever comes
/// then takes the server for another one.
async fn distrust(connection: &mut MultiplexedConnection, prefix: &str) {
    let mut run = cmd("HSET");
    run.arg(format!("{prefix}:x")).arg("r").arg("moving");
    // If it is refused, this key is there no more, which says as much.
    drop(run.exec_async(connection).await);
}

impl Wire for RedisWire {
    fn number(&self) -> u64 {
        self.number
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn in_flight_max(&self) -> usize {
        // The replicas confirm one call after the other.
        match self.replicas {
            0 => IN_FLIGHT_MAX,
            _ => 1,
        }
    }

    fn names_max(&self) -> usize {
        NAMES_MAX
    }

    fn leaves_anywhere(&self) -> bool {
        true
    }

    fn open(&self, open: Open) -> Called<Opened> {
        self.call(Function::Open, &Words::of_open(&open), opened)
    }

    fn resume(&self, resume: Resume) -> Called<Option<Resumed>> {
        self.call(Function::Resume, &Words::of_resume(&resume), resumed)
    }

    fn requests(&self, caller: &Arc<Caller>, asked: &Arc<[Asked]>) -> Called<Option<Answers>> {
        let done = self.undo(caller, asked);
        let replicas = self.replicas;
        if replicas == 0 {
            return done;
        }
        let mut wait = cmd("WAIT");
        let patience = self.replicas_timeout.as_millis();
        wait.arg(replicas).arg(patience.to_string());
        // Right behind the call, on its connection: elsewhere it would wait for nothing.
        let both = join(done, self.send(wait));
        both.map(move |(done, confirmed)| {
            let done = done?;
            match confirmed? {
                redis::Value::Int(heard) if heard < i64::from(replicas) => {
                    let asked = replicas;
                    Err(CallError::Unconfirmed { heard, asked })
                }
                _ => Ok(done),
            }
        })
        .boxed()
    }

    fn undo(&self, caller: &Arc<Caller>, asked: &Arc<[Asked]>) -> Called<Option<Answers>> {
        let (words, asked) = (Words::of_requests(caller, asked), Arc::clone(asked));
        let read = move |answer| answers(&asked, answer);
        self.call(Function::Requests, &words, read)
    }

    fn close(&self, caller: &Arc<Caller>) -> Called<bool> {
        self.call(Function::Close, &Words::of_close(caller), closed)
    }

    fn lost(&self) -> BoxFuture<'_, Loss> {
        lost(&self.lost)
    }

    fn subscribe(&self, id: i64) -> BoxFuture<'_, Result<(), NodesError>> {
        let mut subscribe = cmd("SUBSCRIBE");
        subscribe.arg(format!("{}:e:{id}", self.prefix));
        let subscribed = self.send(subscribe);
        async move { Ok(subscribed.await.map(drop)?) }.boxed()
    }
}

/// Connects. Returns what becomes true when the connection is lost, too.
///
/// What is published is heard by the task that reads the connection, before it hands out any later answer. So
/// whoever gets an answer has been told of all that happened before it.
pub(crate) async fn connect(
    route: &Route,
    heard: impl Fn(&[u8]) + Send + Sync + 'static,
) -> Result<(MultiplexedConnection, watch::Receiver<bool>), NodesError> {
    let (is_lost, lost) = watch::channel(false);
    let push = move |push: PushInfo| -> Result<(), Infallible> {
        match (push.kind, push.data.as_slice()) {
            (PushKind::Message, [_, redis::Value::BulkString(payload)]) => heard(payload),
            (PushKind::Disconnection | PushKind::SUnsubscribe, _) => {
                is_lost.send_replace(true);
            }
            _ => {}
        }
        Ok(())
    };
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        // A request that is taken to have failed might still be carried out. We decide.
        .set_response_timeout(None)
        .set_pipeline_buffer_size(2 * IN_FLIGHT_MAX)
        .set_push_sender(push);
    let client = route.servers.client(&route.root()).await?;
    let connected = client.get_multiplexed_async_connection_with_config(&config);
    match connected.await {
        Ok(connection) => Ok((connection, lost)),
        Err(error) => Err(closed_with(route, error).await),
    }
}

/// Completes when the connection is lost.
pub(crate) fn lost(lost: &watch::Receiver<bool>) -> BoxFuture<'static, Loss> {
    let mut lost = lost.clone();
    async move {
        // An error means that the task which reads the connection is gone.
        drop(lost.wait_for(|is_lost| *is_lost).await);
        Loss::Connection
    }
    .boxed()
}

/// What an error of connecting means. A server that has no room for a connection says so and closes it, often
/// before the client has sent all that it wants to, which then reports that alone.
async fn closed_with(route: &Route, error: RedisError) -> NodesError {
    let is_closed = error.is_connection_dropped() || error.is_io_error();
    let address = route.servers.plain().filter(|_| is_closed);
    let Some((host, port)) = address else {
        return refusal(error);
    };
    let Ok(Ok(stream)) = timeout(LAST_WORDS_MAX, TcpStream::connect((host, port))).await else {
        return refusal(error);
    };
    let mut said = String::new();
    let mut stream = BufReader::new(stream);
    let read = timeout(LAST_WORDS_MAX, stream.read_line(&mut said)).await;
    let said = match said.strip_prefix("-ERR ") {
        Some(said) if matches!(read, Ok(Ok(_))) => said.trim_end(),
        _ if error.is_connection_dropped() && !error.is_connection_refusal() => EXPECTS_TLS,
        // It was not there a moment ago.
        _ => return refusal(error),
    };
    let said = said.to_owned();
    NodesError::Unknown(Arc::new(RedisRefusal::Closed { said }))
}

/// What the server says of itself.
pub(crate) async fn info(connection: &mut MultiplexedConnection) -> Result<String, NodesError> {
    let info: RedisResult<redis::Value> =
        cmd("INFO").arg("everything").query_async(connection).await;
    let info = info.and_then(|info| Ok(String::from_redis_value(info)?));
    info.map_err(refusal)
}

/// Judges the server by that, and whether the keys of the prefix are on it.
pub(crate) async fn look(
    connection: &mut MultiplexedConnection,
    route: &Route,
    info: &str,
) -> Result<Facts, NodesError> {
    let refused = |why: RedisRefusal| NodesError::Refused(Arc::new(why));
    let mut asked = cmd("CONFIG");
    asked
        .arg("GET")
        .arg("appendfsync")
        .arg("no-appendfsync-on-rewrite");
    // Many providers refuse it.
    let answer: RedisResult<HashMap<String, String>> = asked.query_async(connection).await;
    let settings = answer.unwrap_or_default();
    let set = |name: &str| settings.get(name).map(String::as_str);
    // What is not flushed during a rewrite is not always flushed.
    let appendfsync = set("appendfsync").filter(|_| set("no-appendfsync-on-rewrite") == Some("no"));
    let facts = checks::judge(info, appendfsync).map_err(refused)?;
    let mut probe = cmd("EXISTS");
    probe.arg(route.root());
    let probed: RedisResult<i64> = probe.query_async(connection).await;
    match probed {
        Ok(_) => Ok(facts),
        Err(error) => Err(gone(route, error)),
    }
}

/// What an error means that may say that the keys are on another server, or on their way there.
fn gone(route: &Route, error: RedisError) -> NodesError {
    match error.redirect_node() {
        Some(_) if is_moving(&error) => {
            NodesError::Unknown(Arc::new(moving(&route.prefix, &error)))
        }
        Some(_) => NodesError::Refused(Arc::new(RedisRefusal::Elsewhere {
            prefix: route.prefix.clone(),
            redirection: redirection(&error),
        })),
        None => refusal(error),
    }
}

fn is_moving(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::Ask)
}

fn moving(prefix: &str, error: &RedisError) -> RedisRefusal {
    RedisRefusal::Moving {
        prefix: prefix.to_owned(),
        redirection: redirection(error),
    }
}

/// The slot and the server.
fn redirection(error: &RedisError) -> String {
    error.detail().unwrap_or_default().to_owned()
}
