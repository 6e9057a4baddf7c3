//! The two connections of a session.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, try_join};
use recipes_core::{Dialect, Fence, NodesError};
use recipes_keeper::{
    Answers, Asked, Called, Caller, Facts, Loss, LossSender, Open, Opened, Reads, Resume, Resumed,
    Server, Shared, Source, Wire, first_of, until_lost,
};
use tokio::sync::watch;
use tokio_postgres::{Config, Error as PgError};
use tracing::debug;

use crate::STORE;
use crate::aside::{self, Running};
use crate::bell::Bell;
use crate::fence;

use super::address;
use super::answers::refusal;
use super::calls::Calls;
use super::checks::{Found, PostgresRefusal, question};
use super::line::{Call, Line};
use super::reads::PostgresReads;
use super::schema;
use super::side::Side;
use super::variables;

/// How to connect.
#[derive(Debug)]
pub(super) struct Route {
    /// Each server alone. If there are several, the primary may be another in a moment.
    pub(super) hosts: Vec<Config>,
    pub(super) schema: String,
    pub(super) may_create: bool,
    /// Sessions only read.
    pub(super) only_reads: bool,
    pub(super) session_timeout: Duration,
    /// The highest number of a transaction that any session has seen.
    pub(super) highest: Arc<AtomicI64>,
    /// A pooler has refused the settings that come with a connection.
    pub(super) is_pooled: AtomicBool,
}

impl Server for Route {
    fn open<'a>(
        &'a self,
        shared: &'a Arc<Shared>,
        number: u64,
    ) -> BoxFuture<'a, Result<Box<dyn Wire>, NodesError>> {
        let opened = self.connect(shared, number);
        opened
            .map(|wire| Ok(Box::new(wire?) as Box<dyn Wire>))
            .boxed()
    }

    fn read(&self) -> BoxFuture<'_, Result<Arc<dyn Reads>, NodesError>> {
        PostgresReads::open(self).boxed()
    }

    fn may_pass(&self, refusal: &Source) -> bool {
        let refusal = refusal.downcast_ref();
        matches!(
            refusal,
            Some(PostgresRefusal::Replica | PostgresRefusal::ReadOnly)
        )
    }

    fn may_move(&self) -> bool {
        self.hosts.len() > 1
    }

    fn fence(&self, held: &[(&str, i64)]) -> Option<Fence> {
        let fence = format!("{}.fence", schema::quoted(&self.schema));
        let calls = held.iter().map(|(path, token)| {
            let path = fence::postgres_literal(path);
            format!("{fence}({path}, {token})")
        });
        let sql = format!("SELECT {}", calls.collect::<Vec<_>>().join(", "));
        Some(Fence::new(Dialect::Postgres, sql))
    }
}

impl Route {
    async fn connect(&self, shared: &Arc<Shared>, number: u64) -> Result<PostgresWire, NodesError> {
        let lines = self.first(|host| async move {
            // The connections to a host that is passed over end, which is no loss of the others.
            let bell = Arc::new(Bell::default());
            let loss: LossSender = Arc::new(watch::channel(None).0);
            let line = || self.line(&host, &bell, &loss);
            let lines = try_join(line(), line()).await?;
            Ok((lines, bell, loss))
        });
        let (lines, bell, loss) = lines.await?;
        let ((requests, found, facts), (aside, _, beside)) = lines;
        if beside.run != facts.run {
            let why = "the two connections of the session are to different servers";
            return Err(NodesError::Unknown(Arc::new(std::io::Error::other(why))));
        }
        self.look_at_schema(&requests, &found).await?;
        // A call of which another server has no row: the session connects again.
        let only_on = found.only_here(requests.is_direct() && aside.is_direct());
        let mut calls = Calls::new(&schema::quoted(&self.schema), &only_on);
        let prepared = async {
            requests.prepare(&mut calls.requests).await?;
            requests.prepare(&mut calls.enter).await?;
            requests.prepare(&mut calls.look).await?;
            requests.prepare(&mut calls.leave).await?;
            aside.prepare(&mut calls.beat).await?;
            aside.prepare(&mut calls.poll).await
        };
        prepared.await.map_err(self.denied(&found))?;
        let lines = Lines {
            requests,
            aside,
            calls,
            shared: Arc::clone(shared),
            highest: Arc::clone(&self.highest),
            bell,
        };
        Ok(PostgresWire {
            lines: Arc::new(lines),
            number,
            facts,
            running: Mutex::default(),
            loss,
        })
    }

    /// Connects to the first server that can be used.
    pub(super) async fn first<T, F>(&self, connect: impl Fn(Config) -> F) -> Result<T, NodesError>
    where
        F: Future<Output = Result<T, NodesError>>,
    {
        // A replica refuses, and the next may be the primary.
        let speaks_for_all = |_: &NodesError| false;
        let connect = &connect;
        let at_host = |host| async move {
            let addresses = address::each_address(host).await;
            first_of(addresses, connect, speaks_for_all).await
        };
        first_of(&self.hosts, at_host, speaks_for_all).await
    }

    /// Connects, and asks the server about itself.
    pub(super) async fn line(
        &self,
        host: &Config,
        bell: &Arc<Bell>,
        loss: &LossSender,
    ) -> Result<(Line, Found, Facts), NodesError> {
        let timeout = self.session_timeout.as_micros();
        let settings = format!(
            "-c lock_recipes.settled={timeout} {}",
            variables::options(self.session_timeout)
        );
        let mut line = Line::open(host, &settings, &self.is_pooled, bell, loss).await?;
        let found = line.one(&Call::new(question(), &[]), &[]).await;
        let found = found.and_then(|row| Found::read(&row)).map_err(refusal)?;
        line.settled(found.settled == timeout.to_string());
        if line.is_direct() {
            let later = variables::later(found.version);
            line.run(&later).await.map_err(refusal)?;
        }
        let refused = |why: PostgresRefusal| NodesError::Refused(Arc::new(why));
        let facts = found.judge().map_err(refused)?;
        Ok((line, found, facts))
    }

    fn may_not_use(&self, found: &Found) -> PostgresRefusal {
        let (user, schema) = (found.user.clone(), self.schema.clone());
        match self.only_reads {
            true => PostgresRefusal::MayNotRead { user, schema },
            false => PostgresRefusal::MayNotUse { user, schema },
        }
    }

    /// What an error means if the schema is there.
    fn denied(&self, found: &Found) -> impl FnOnce(PgError) -> NodesError {
        let why = self.may_not_use(found);
        move |error| schema::denied(error, why)
    }

    /// Judges the schema. Creates it if it does not exist.
    pub(super) async fn look_at_schema(
        &self,
        line: &Line,
        found: &Found,
    ) -> Result<(), NodesError> {
        let (name, user) = (self.schema.clone(), found.user.clone());
        let denied = |why: PostgresRefusal| move |error| schema::denied(error, why);
        let mut seen = schema::look(line, &name).await;
        if matches!(seen, Ok(None)) {
            if !self.may_create {
                let why = PostgresRefusal::NoSchema { schema: name };
                return Err(NodesError::Refused(Arc::new(why)));
            }
            let may_not_create = PostgresRefusal::MayNotCreate {
                user,
                schema: name.clone(),
            };
            let created = line.run(&schema::creation(&name)).await;
            created.map_err(denied(may_not_create))?;
            debug!(target: STORE, schema = name, "schema created");
            seen = schema::look(line, &name).await;
        }
        let seen = seen.map_err(self.denied(found))?;
        let why = match seen {
            Some(seen) if seen.version != schema::VERSION => PostgresRefusal::SchemaVersion {
                schema: name,
                found: seen.version,
            },
            Some(seen) if seen.may_use || self.only_reads && seen.may_read => return Ok(()),
            Some(_) => self.may_not_use(found),
            None => PostgresRefusal::NoSchema { schema: name },
        };
        Err(NodesError::Refused(Arc::new(why)))
    }
}

/// Both connections, and what is said over them.
pub(super) struct Lines {
    pub(super) requests: Line,
    pub(super) aside: Line,
    pub(super) calls: Calls,
    pub(super) shared: Arc<Shared>,
    pub(super) highest: Arc<AtomicI64>,
    pub(super) bell: Arc<Bell>,
}

impl Lines {
    /// The highest number of a transaction that is known. Numbers go on above it.
    pub(super) fn seen(&self) -> i64 {
        let seen = self.shared.seen();
        self.highest.fetch_max(seen, Ordering::Relaxed).max(seen)
    }
}

/// A session's connections to the primary, which has the schema.
struct PostgresWire {
    lines: Arc<Lines>,
    number: u64,
    facts: Facts,
    running: Mutex<Option<Running>>,
    loss: LossSender,
}

impl fmt::Debug for PostgresWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("facts", &self.facts).finish()
    }
}

impl Wire for PostgresWire {
    fn number(&self) -> u64 {
        self.number
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn in_flight_max(&self) -> usize {
        // What waits meanwhile shares a commit.
        1
    }

    fn beats_apart(&self) -> bool {
        true
    }

    fn leaves_anywhere(&self) -> bool {
        true
    }

    fn open(&self, open: Open) -> Called<Opened> {
        let lines = Arc::clone(&self.lines);
        async move { lines.open(&open).await }.boxed()
    }

    fn resume(&self, resume: Resume) -> Called<Option<Resumed>> {
        let lines = Arc::clone(&self.lines);
        async move { lines.resume(&resume).await }.boxed()
    }

    fn requests(&self, caller: &Arc<Caller>, asked: &Arc<[Asked]>) -> Called<Option<Answers>> {
        let lines = Arc::clone(&self.lines);
        let (caller, asked) = (Arc::clone(caller), Arc::clone(asked));
        async move { lines.carry_out(&caller, &asked).await }.boxed()
    }

    fn beat(&self, caller: &Arc<Caller>) -> Called<bool> {
        let (lines, caller) = (Arc::clone(&self.lines), Arc::clone(caller));
        async move { lines.asked_beat(&caller).await }.boxed()
    }

    fn close(&self, caller: &Arc<Caller>) -> Called<bool> {
        let (lines, caller) = (Arc::clone(&self.lines), Arc::clone(caller));
        async move { lines.close(&caller).await }.boxed()
    }

    fn lost(&self) -> BoxFuture<'_, Loss> {
        until_lost(&self.loss)
    }

    fn started(&self, session: &Arc<Caller>) {
        let running = aside::run(
            Arc::new(Side::new(Arc::clone(&self.lines), session)),
            Arc::clone(&self.lines.shared),
            session,
            Arc::clone(&self.lines.bell),
            Arc::clone(&self.loss),
        );
        let mut place = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(running);
    }
}
