//! The two connections of a session.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, try_join};
use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error, OptsBuilder, Row};
use recipes_core::NodesError;
use recipes_keeper::{
    CallError, Facts, Function, Loss, Server, Shared, Started, Value, Wire, Words,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::address::Address;
use super::beats::{Ask, Beats, Message};
use super::checks::{self, Allowed, MySqlRefusal, Said, VARIABLES};
use super::errors::{Unexpected, refused};
use super::fence;
use super::lane::Lane;
use super::schema;

/// How to connect.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) address: Address,
    pub(super) prefix: String,
    pub(super) allowed: Allowed,
    pub(super) may_create: bool,
    pub(super) session_timeout: Duration,
}

impl Server for Route {
    fn open<'a>(
        &'a self,
        shared: &'a Arc<Shared>,
        number: u64,
    ) -> BoxFuture<'a, Result<Box<dyn Wire>, NodesError>> {
        let opened = MySqlWire::open(self, shared, number);
        opened
            .map(|opened| opened.map(|wire| Box::new(wire) as Box<dyn Wire>))
            .boxed()
    }

    fn fence(&self, held: &[(&str, i64)]) -> Option<String> {
        Some(fence::statement(&self.address.database, &self.prefix, held))
    }
}

/// The two connections of a session.
struct MySqlWire {
    number: u64,
    facts: Facts,
    lane: Arc<Lane>,
    beats: mpsc::UnboundedSender<Message>,
    /// Tells how the other connection ended.
    lost: watch::Receiver<Option<Loss>>,
    /// Beats and polls; ends with the wire.
    task: JoinHandle<()>,
}

impl fmt::Debug for MySqlWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("facts", &self.facts).finish()
    }
}

impl Drop for MySqlWire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl MySqlWire {
    async fn open(route: &Route, shared: &Arc<Shared>, number: u64) -> Result<Self, NodesError> {
        let (mut one, other) = try_join(connect(route), connect(route))
            .await
            .map_err(refused)?;
        let said = look(&mut one).await.map_err(refused)?;
        let facts = checks::judge(&said, route.allowed);
        let facts = facts.map_err(|why: MySqlRefusal| NodesError::Refused(Arc::new(why)))?;
        schema::prepare(&mut one, &route.prefix, route.may_create).await?;
        let (beats, messages) = mpsc::unbounded_channel();
        let (is_lost, lost) = watch::channel(None);
        let prefix = &route.prefix;
        let lane = Lane::new(one, prefix, number, shared, beats.clone()).await;
        let lane = Arc::new(lane.map_err(refused)?);
        let beating = Beats::new(other, prefix, number, messages, Arc::clone(&lane), shared).await;
        let beating = beating.map_err(refused)?;
        Ok(Self {
            number,
            facts,
            lane,
            beats,
            lost,
            task: tokio::spawn(beating.run(is_lost)),
        })
    }
}

impl Wire for MySqlWire {
    fn number(&self) -> u64 {
        self.number
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn in_flight_max(&self) -> usize {
        // One transaction at a time. What waits meanwhile leaves in the next, and is flushed with it.
        1
    }

    fn beats_apart(&self) -> bool {
        true
    }

    fn call(
        &self,
        function: Function,
        words: Words,
    ) -> BoxFuture<'static, Result<Value, CallError>> {
        if function == Function::Beat {
            let beats = self.beats.clone();
            return async move { beat(&beats).await }.boxed();
        }
        let lane = Arc::clone(&self.lane);
        async move { lane.call(function, &words).await }.boxed()
    }

    fn lost(&self) -> BoxFuture<'_, Loss> {
        let mut lost = self.lost.clone();
        let lost = async move {
            let loss = lost.wait_for(Option::is_some).await;
            // An error means that whoever beats is gone.
            loss.ok().and_then(|loss| *loss).unwrap_or(Loss::Connection)
        };
        lost.boxed()
    }

    fn subscribe(&self, _id: i64) -> BoxFuture<'_, Result<(), NodesError>> {
        // Polls bring the news.
        async { Ok(()) }.boxed()
    }

    fn started(&self, session: &Started) {
        drop(self.beats.send(Message::Started(session.clone())));
    }
}

async fn beat(beats: &mpsc::UnboundedSender<Message>) -> Result<Value, CallError> {
    let (ask, answer) = Ask::new();
    drop(beats.send(Message::Ask(ask)));
    match answer.await {
        Ok(Ok(true)) => Ok(Value::List(Vec::new())),
        Ok(Ok(false)) => Ok(Value::Bytes(b"ended".to_vec())),
        Ok(Err(error)) => Err(error),
        Err(oneshot::error::RecvError { .. }) => Err(CallError::Lost(Arc::new(Unexpected::Silent))),
    }
}

/// Opens a connection, and makes it independent of the server's defaults.
async fn connect(route: &Route) -> Result<Conn, Error> {
    // In seconds. Nobody waits longer for a lock of others.
    let wait = (route.session_timeout.as_secs() / 8).max(1);
    let settings = [
        "autocommit = 1".to_owned(),
        "tx_isolation = 'READ-COMMITTED'".to_owned(),
        "sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'".to_owned(),
        format!("innodb_lock_wait_timeout = {wait}"),
        format!("lock_wait_timeout = {wait}"),
        // A name that is left out of a listing would be a holder whom nobody sees.
        "group_concat_max_len = 1073741824".to_owned(),
        "max_statement_time = 0".to_owned(),
        "wait_timeout = 86400".to_owned(),
    ];
    let settings = settings.map(|it| format!("SESSION {it}")).join(", ");
    let setup = vec![format!("SET {settings}"), "SET NAMES binary".to_owned()];
    Conn::new(OptsBuilder::from_opts(route.address.options.clone()).setup(setup)).await
}

/// Asks the server what it is.
async fn look(connection: &mut Conn) -> Result<Said, Error> {
    let version: Option<String> = connection.query_first("SELECT VERSION()").await?;
    let version = version.unwrap_or_default();
    if !version.contains("MariaDB") {
        // What follows is not known there.
        return Ok(Said {
            version,
            ..Said::default()
        });
    }
    let names = VARIABLES.map(|name| format!("'{name}'")).join(", ");
    let variables = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})");
    let variables: Vec<(String, String)> = connection.query(variables).await?;
    let times = "SELECT CAST(VARIABLE_VALUE AS SIGNED), UNIX_TIMESTAMP() - CAST(VARIABLE_VALUE AS SIGNED) \
                 FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'UPTIME'";
    let times: Option<(i64, i64)> = connection.query_first(times).await?;
    let (uptime, started) = times.unwrap_or_default();
    Ok(Said {
        version,
        variables: variables.into_iter().collect::<HashMap<_, _>>(),
        uptime_s: u64::try_from(uptime).unwrap_or_default(),
        started,
        primary: primary(connection).await?,
    })
}

/// The server that this one follows now. Few users may ask; then none is known.
async fn primary(connection: &mut Conn) -> Result<Option<String>, Error> {
    let rows: Vec<Row> = match connection.query("SHOW ALL SLAVES STATUS").await {
        Ok(rows) => rows,
        Err(Error::Server(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let following = rows.iter().find_map(|row| {
        let column = |name: &str| row.get_opt::<String, _>(name)?.ok();
        let runs = |name| column(name).is_some_and(|it| it != "No");
        let is_running = runs("Slave_IO_Running") || runs("Slave_SQL_Running");
        let host = column("Master_Host").unwrap_or_default();
        let port = row.get_opt::<u16, _>("Master_Port")?.unwrap_or_default();
        is_running.then(|| format!("{host}:{port}"))
    });
    Ok(following)
}
