//! One connection.

use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use etcd_client::{Client, GetOptions, ResponseHeader};
use futures::future::{BoxFuture, FutureExt};
use recipes_core::{Guarantee, NodesError, caught};
use recipes_keeper::{
    Answers, Asked, CallError, Called, Caller, Facts, Loss, Open, Opened, Reads, Resume, Resumed,
    Server, Shared, Source, Wire, first_of, until_lost,
};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::calls::Calls;
use crate::checks::EtcdRefusal;
use crate::keys::Keys;
use crate::news::News;
use crate::reads::EtcdReads;
use crate::refusals::{call_error, refusal_of_session, without_right};
use crate::servers::Servers;

/// How to connect.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) servers: Servers,
    pub(crate) keys: Keys,
}

impl Route {
    /// Connects to a member that has a quorum behind it.
    pub(crate) async fn connect(&self) -> Result<(Client, Facts), NodesError> {
        let first = self.servers.first();
        let members = (first..).take(self.servers.count());
        let tried = |member| async move { Ok((member, self.try_member(member).await?)) };
        // One without a quorum is silent. What one refuses, all do.
        let refuses = |error: &NodesError| matches!(error, NodesError::Refused(_));
        let (member, connected) = first_of(members, tried, refuses).await?;
        self.servers.is_good(member);
        Ok(connected)
    }

    async fn try_member(&self, member: usize) -> Result<(Client, Facts), NodesError> {
        let client = self.servers.client(member).await?;
        let below = self.keys.below("/");
        let options = GetOptions::new().with_prefix().with_count_only();
        let counted = client.kv_client().get(below.as_str(), Some(options)).await;
        let counted = counted.map_err(|error| match without_right(&error, &self.keys) {
            Some(refusal) => NodesError::Refused(Arc::new(refusal)),
            None => refusal_of_session(error),
        })?;
        let cluster = counted.header().map(ResponseHeader::cluster_id);
        let facts = Facts {
            run: format!("{:x}", cluster.unwrap_or_default()),
            guarantee: Guarantee::Consensus,
        };
        Ok((client, facts))
    }
}

impl Server for Route {
    fn open<'a>(
        &'a self,
        shared: &'a Arc<Shared>,
        number: u64,
    ) -> BoxFuture<'a, Result<Box<dyn Wire>, NodesError>> {
        async move {
            let (client, facts) = self.connect().await?;
            Ok(Box::new(EtcdWire::new(self, client, facts, shared, number)) as Box<dyn Wire>)
        }
        .boxed()
    }

    fn read(&self) -> BoxFuture<'_, Result<Arc<dyn Reads>, NodesError>> {
        EtcdReads::open(self).boxed()
    }

    fn keeps_directories(&self) -> bool {
        false
    }

    fn remembers_names(&self) -> bool {
        // A listing goes through the keys that are gone, too, until the cluster is compacted.
        true
    }

    fn silence(&self) -> &'static str {
        ": no member of the cluster is there, or it has no quorum"
    }

    fn may_pass(&self, refusal: &Source) -> bool {
        // A session that has ended meanwhile is followed by another once an operator has made room.
        matches!(refusal.downcast_ref(), Some(EtcdRefusal::NoSpace))
    }
}

/// A connection to a member.
struct EtcdWire {
    calls: Arc<Calls>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl fmt::Debug for EtcdWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire")
            .field("facts", &self.calls.facts)
            .finish_non_exhaustive()
    }
}

impl Drop for EtcdWire {
    fn drop(&mut self) {
        let tasks = self.tasks.get_mut().unwrap_or_else(PoisonError::into_inner);
        tasks.iter().for_each(JoinHandle::abort);
    }
}

impl EtcdWire {
    fn new(route: &Route, client: Client, facts: Facts, shared: &Arc<Shared>, number: u64) -> Self {
        let calls = Calls {
            client,
            keys: route.keys.clone(),
            facts,
            number,
            shared: Arc::clone(shared),
            kept: OnceLock::new(),
            watched: Arc::default(),
            queues: Mutex::default(),
            loss: Arc::new(watch::Sender::new(None)),
        };
        Self {
            calls: Arc::new(calls),
            tasks: Mutex::default(),
        }
    }

    /// Runs something until it says that the use of the connection is over.
    fn run(&self, until: impl Future<Output = Loss> + Send + 'static) {
        let calls = Arc::clone(&self.calls);
        let task = tokio::spawn(async move {
            let loss = caught(until).await.unwrap_or(Loss::Connection);
            calls.loss.send_if_modified(|it| {
                let is_first = it.is_none();
                *it = it.or(Some(loss));
                is_first
            });
        });
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.push(task);
    }

    fn call<T, F>(&self, call: impl FnOnce(Arc<Calls>) -> F) -> Called<T>
    where
        F: Future<Output = Result<T, CallError>> + Send + 'static,
    {
        call(Arc::clone(&self.calls)).boxed()
    }
}

impl Wire for EtcdWire {
    fn number(&self) -> u64 {
        self.calls.number
    }

    fn facts(&self) -> &Facts {
        &self.calls.facts
    }

    fn in_flight_max(&self) -> usize {
        // A member carries out what comes over one connection in any order.
        1
    }

    fn beats_apart(&self) -> bool {
        true
    }

    fn leaves_anywhere(&self) -> bool {
        // The client hands a call to a task of its own.
        true
    }

    fn open(&self, open: Open) -> Called<Opened> {
        self.call(async move |calls: Arc<Calls>| calls.open(&open).await)
    }

    fn resume(&self, resume: Resume) -> Called<Option<Resumed>> {
        self.call(async move |calls: Arc<Calls>| calls.resume(&resume).await)
    }

    fn requests(&self, _: &Arc<Caller>, asked: &Arc<[Asked]>) -> Called<Option<Answers>> {
        let asked = Arc::clone(asked);
        self.call(async move |calls: Arc<Calls>| calls.requests(&asked).await)
    }

    fn beat(&self, _: &Arc<Caller>) -> Called<bool> {
        self.call(async move |calls: Arc<Calls>| calls.kept()?.beat(&calls.client).await)
    }

    fn close(&self, caller: &Arc<Caller>) -> Called<bool> {
        let id = caller.id;
        self.call(async move |calls: Arc<Calls>| {
            let revoked = calls.client.lease_client().revoke(id).await;
            revoked.map_err(call_error)?;
            Ok(false)
        })
    }

    fn lost(&self) -> BoxFuture<'_, Loss> {
        until_lost(&self.calls.loss)
    }

    fn subscribe(&self, id: i64) -> BoxFuture<'_, Result<(), NodesError>> {
        async move {
            let Calls {
                client,
                keys,
                shared,
                number,
                watched,
                ..
            } = &*self.calls;
            let news = News::open(client, &keys.session(id), watched, (shared, *number)).await?;
            self.run(news.tell());
            Ok(())
        }
        .boxed()
    }

    fn started(&self, session: &Arc<Caller>) {
        let (calls, timeout) = (Arc::clone(&self.calls), session.timeout);
        self.run(async move { calls.keep(timeout).await });
    }
}
