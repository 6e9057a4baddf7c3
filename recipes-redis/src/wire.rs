//! One connection.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use recipes_core::NodesError;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, FromRedisValue, PushInfo, PushKind, RedisError, RedisResult, Value,
    cmd,
};
use tokio::sync::watch;

use crate::address::Servers;
use crate::answers::{news, refusal_of_session};
use crate::checks::{self, Allowed, Facts, RedisRefusal};
use crate::library::{self, Function};
use crate::watches::Watches;

/// Requests that may be on their way. More wait in the queue of the session.
pub(crate) const IN_FLIGHT_MAX: usize = 1024;

/// A connection to the primary, which has the library.
pub(crate) struct Wire {
    connection: MultiplexedConnection,
    prefix: String,
    /// The first of a session is 1.
    pub(crate) number: u64,
    /// Becomes true.
    lost: watch::Receiver<bool>,
    pub(crate) facts: Facts,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("facts", &self.facts).finish()
    }
}

/// How to connect.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) servers: Servers,
    pub(crate) prefix: String,
    pub(crate) allowed: Allowed,
    pub(crate) connect_timeout: Duration,
}

impl Wire {
    /// Connects, looks at the server, and hands over the library. News go to `watches`, as those of
    /// connection `number`.
    pub(crate) async fn open(
        route: &Route,
        watches: &Arc<Watches>,
        number: u64,
    ) -> Result<Self, NodesError> {
        let opened = Self::open_in_time(route, watches, number);
        match tokio::time::timeout(route.connect_timeout, opened).await {
            Ok(opened) => opened,
            Err(elapsed) => Err(NodesError::Unknown(Arc::new(elapsed))),
        }
    }

    async fn open_in_time(
        route: &Route,
        watches: &Arc<Watches>,
        number: u64,
    ) -> Result<Self, NodesError> {
        let (is_lost, lost) = watch::channel(false);
        let watches = Arc::clone(watches);
        // Called by the task that reads the connection, before it hands out any later answer. So
        // whoever gets an answer has been told of all that happened before it.
        let push = move |push: PushInfo| -> Result<(), std::convert::Infallible> {
            match (push.kind, push.data.as_slice()) {
                (PushKind::Message, [_, Value::BulkString(payload)]) => {
                    if let Some((event, up_to, path)) = news(payload) {
                        watches.fire(number, path, up_to, event);
                    }
                }
                (PushKind::Disconnection, _) => {
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
        let connected = async {
            let client = route.servers.client().await?;
            client
                .get_multiplexed_async_connection_with_config(&config)
                .await
        };
        let mut connection = connected.await.map_err(refusal_of_session)?;
        let facts = look(&mut connection, route).await?;
        let loaded = library::load(&mut connection).await;
        loaded.map_err(refusal_of_session)?;
        Ok(Self {
            connection,
            prefix: route.prefix.clone(),
            number,
            lost,
            facts,
        })
    }

    /// Completes when the connection is lost.
    pub(crate) async fn lost(&self) {
        let mut lost = self.lost.clone();
        // An error means that the task which reads the connection is gone.
        drop(lost.wait_for(|is_lost| *is_lost).await);
    }

    /// Begins a call of a function.
    pub(crate) fn call(&self, function: Function) -> Cmd {
        function.call(&self.prefix)
    }

    /// Sends a command at the first poll; the answer comes later.
    pub(crate) fn send(
        &self,
        command: Cmd,
    ) -> impl Future<Output = RedisResult<Value>> + Send + 'static {
        let mut connection = self.connection.clone();
        async move {
            match connection.send_packed_command(&command).await? {
                Value::ServerError(error) => Err(error.into()),
                value => Ok(value),
            }
        }
    }

    /// Has the server send the news for a session over this connection.
    pub(crate) async fn subscribe(&self, id: &str) -> Result<(), NodesError> {
        let mut subscribe = cmd("SUBSCRIBE");
        subscribe.arg(format!("{}:e:{id}", self.prefix));
        let subscribed = self.send(subscribe).await;
        subscribed.map(drop).map_err(refusal_of_session)
    }
}

/// Judges the server, and whether the keys of the prefix are on it.
async fn look(connection: &mut MultiplexedConnection, route: &Route) -> Result<Facts, NodesError> {
    let refused = |refusal: RedisRefusal| NodesError::Refused(Arc::new(refusal));
    let info: RedisResult<Value> = cmd("INFO").arg("everything").query_async(connection).await;
    let info = info.and_then(|info| Ok(String::from_redis_value(info)?));
    let info = info.map_err(refusal_of_session)?;
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
    let facts = checks::judge(&info, appendfsync, route.allowed).map_err(refused)?;
    let mut probe = cmd("EXISTS");
    probe.arg(format!("{}:x", route.prefix));
    let probed: RedisResult<i64> = probe.query_async(connection).await;
    match probed {
        Ok(_) => Ok(facts),
        Err(error) if error.redirect_node().is_some() => Err(refused(elsewhere(route, &error))),
        Err(error) => Err(refusal_of_session(error)),
    }
}

fn elsewhere(route: &Route, error: &RedisError) -> RedisRefusal {
    RedisRefusal::Elsewhere {
        prefix: route.prefix.clone(),
        redirection: error.to_string(),
    }
}
