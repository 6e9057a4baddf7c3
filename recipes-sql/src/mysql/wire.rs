//! The two connections of a session.

use std::fmt;
use std::sync::atomic::AtomicI64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, try_join};
use recipes_core::{Dialect, Fence, NodesError};
use recipes_keeper::{
    Answers, Asked, CallError, Called, Caller, Facts, Loss, LossSender, Open, Opened, Reads,
    Resume, Resumed, Server, Shared, Source, Wire, until_lost,
};
use tokio::sync::watch;

use crate::aside::{self, Running};
use crate::bell::Bell;

use super::address::Address;
use super::checks::{Allowed, MySqlRefusal};
use super::connecting::connect;
use super::errors::{Unexpected, refused};
use super::fence;
use super::lane::Lane;
use super::reads::MySqlReads;
use super::schema;
use super::side::{Side, SideOf};

/// How to connect.
#[derive(Clone, Debug)]
pub(super) struct Route {
    pub(super) address: Address,
    pub(super) prefix: String,
    pub(super) allowed: Allowed,
    pub(super) may_create: bool,
    pub(super) session_timeout: Duration,
    /// The highest number of a transaction that any session has seen.
    pub(super) highest: Arc<AtomicI64>,
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

    fn read(&self) -> BoxFuture<'_, Result<Arc<dyn Reads>, NodesError>> {
        MySqlReads::open(self).boxed()
    }

    fn may_pass(&self, refusal: &Source) -> bool {
        let refusal = refusal.downcast_ref();
        matches!(
            refusal,
            Some(MySqlRefusal::Replica { .. } | MySqlRefusal::ReadOnly)
        )
    }

    fn fence(&self, held: &[(&str, i64)]) -> Option<Fence> {
        let sql = fence::statement(&self.address.database, &self.prefix, held);
        Some(Fence::new(Dialect::MySql, sql))
    }
}

/// A session's connections to the primary.
struct MySqlWire {
    number: u64,
    facts: Facts,
    lines: Arc<Lines>,
    running: Mutex<Option<Running>>,
    loss: LossSender,
}

/// Both connections, and what is said over them.
struct Lines {
    lane: Arc<Lane>,
    side: Arc<Side>,
    shared: Arc<Shared>,
    bell: Arc<Bell>,
}

impl fmt::Debug for MySqlWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").field("facts", &self.facts).finish()
    }
}

impl MySqlWire {
    async fn open(route: &Route, shared: &Arc<Shared>, number: u64) -> Result<Self, NodesError> {
        let both = try_join(connect(route), connect(route)).await;
        let ((mut one, facts), (other, beside)) = both?;
        if beside.run != facts.run {
            return Err(NodesError::Unknown(Arc::new(Unexpected::TwoServers)));
        }
        schema::prepare(&mut one, &route.prefix, route.may_create).await?;
        let (prefix, bell) = (&route.prefix, Arc::new(Bell::default()));
        let lane = Lane::new(one, prefix, number, shared, &route.highest, &bell).await;
        let lane = Arc::new(lane.map_err(refused)?);
        let side = Side::new(other, prefix, Arc::clone(&lane)).await;
        let lines = Lines {
            lane,
            side: Arc::new(side.map_err(refused)?),
            shared: Arc::clone(shared),
            bell,
        };
        Ok(Self {
            number,
            facts,
            lines: Arc::new(lines),
            running: Mutex::default(),
            loss: Arc::new(watch::channel(None).0),
        })
    }
}

impl Lines {
    /// Carries out requests.
    async fn requests(&self, caller: &Caller, all: &[Asked]) -> Result<Option<Answers>, CallError> {
        if !self.lane.is_fresh(caller.timeout) && self.side.beat(caller).await?.is_none() {
            return Ok(None);
        }
        self.lane.carry_out(caller, all).await
    }

    /// A beat that somebody asks for. Whoever asks has heard all news when the answer comes.
    async fn beat(&self, caller: &Caller) -> Result<bool, CallError> {
        let lives = self.side.beat(caller).await?.is_some();
        if lives {
            self.bell.look().await;
        }
        Ok(lives)
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
        async move { lines.lane.open(&open).await }.boxed()
    }

    fn resume(&self, resume: Resume) -> Called<Option<Resumed>> {
        let lines = Arc::clone(&self.lines);
        async move { lines.lane.resume(&resume).await }.boxed()
    }

    fn requests(&self, caller: &Arc<Caller>, asked: &Arc<[Asked]>) -> Called<Option<Answers>> {
        let lines = Arc::clone(&self.lines);
        let (caller, asked) = (Arc::clone(caller), Arc::clone(asked));
        async move { lines.requests(&caller, &asked).await }.boxed()
    }

    fn beat(&self, caller: &Arc<Caller>) -> Called<bool> {
        let (lines, caller) = (Arc::clone(&self.lines), Arc::clone(caller));
        async move { lines.beat(&caller).await }.boxed()
    }

    fn close(&self, caller: &Arc<Caller>) -> Called<bool> {
        let (lines, caller) = (Arc::clone(&self.lines), Arc::clone(caller));
        async move { lines.lane.close(&caller).await }.boxed()
    }

    fn lost(&self) -> BoxFuture<'_, Loss> {
        until_lost(&self.loss)
    }

    fn started(&self, session: &Arc<Caller>) {
        let side = SideOf {
            side: Arc::clone(&self.lines.side),
            caller: Arc::clone(session),
        };
        let running = aside::run(
            Arc::new(side),
            Arc::clone(&self.lines.shared),
            session,
            Arc::clone(&self.lines.bell),
            Arc::clone(&self.loss),
        );
        let mut place = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(running);
    }
}
