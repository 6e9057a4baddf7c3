//! The stream of events.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etcd_client::{
    Client, EventType, GetOptions, KvClient, Txn, TxnOp, TxnOpResponse, WatchOptions,
    WatchRequestSender, WatchResponse, WatchResponseStream,
};
use futures::future::{Fuse, FusedFuture, FutureExt};
use recipes_core::NodesError;
use recipes_keeper::{CallError, Loss, Shared};
use tokio::sync::Notify;
use tracing::debug;

use crate::STORE;
use crate::answers::by;
use crate::keys::NodeKey;
use crate::refusals::{call_error, refusal_of_session};
use crate::watching::{Do, Event, Found, Wanted, Watching};

/// The watch on the session's own key.
const OWN: i64 = 1;

/// Keys that are looked at in one transaction.
const LOOKED_MAX: usize = 100;

/// What is asked of the stream.
#[derive(Debug)]
pub(crate) enum Ask {
    Watch(Wanted),
    Unwatch(NodeKey),
}

/// What is watched over one connection. Whoever changes that does so at once, and the task of the stream is woken only if
/// there is something for it to do.
#[derive(Debug)]
pub(crate) struct SharedWatching {
    watching: Mutex<Watching>,
    changed: Notify,
}

impl Default for SharedWatching {
    fn default() -> Self {
        Self {
            watching: Mutex::new(Watching::after(OWN)),
            changed: Notify::new(),
        }
    }
}

impl SharedWatching {
    fn lock(&self) -> MutexGuard<'_, Watching> {
        self.watching.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn with(&self, change: impl FnOnce(&mut Watching)) {
        let mut watching = self.lock();
        change(&mut watching);
        if watching.has_work() {
            self.changed.notify_one();
        }
    }

    pub(crate) fn ask(&self, asks: impl IntoIterator<Item = Ask>) {
        self.with(|watching| {
            for ask in asks {
                match ask {
                    Ask::Watch(wanted) => watching.watch(wanted),
                    Ask::Unwatch(node) => watching.unwatch(&node),
                }
            }
        });
    }
}

/// The stream of one connection.
pub(crate) struct News {
    kv: KvClient,
    requests: WatchRequestSender,
    responses: WatchResponseStream,
    watched: Arc<SharedWatching>,
    shared: Arc<Shared>,
    number: u64,
}

impl News {
    /// Begins with the key of the session.
    pub(crate) async fn open(
        client: &Client,
        session_key: &str,
        watched: &Arc<SharedWatching>,
        (shared, number): (&Arc<Shared>, u64),
    ) -> Result<Self, NodesError> {
        let own = WatchOptions::new().with_watch_id(OWN);
        let stream = client.watch_client().watch(session_key, Some(own)).await;
        let (requests, responses) = stream.map_err(refusal_of_session)?.split();
        Ok(Self {
            kv: client.kv_client(),
            requests,
            responses,
            watched: Arc::clone(watched),
            shared: Arc::clone(shared),
            number,
        })
    }

    /// Tells what happens, until the stream or the session is over.
    pub(crate) async fn tell(mut self) -> Loss {
        match self.told().await {
            Ok(loss) => loss,
            Err(error) => {
                debug!(target: STORE, ?error, "no news any more");
                Loss::Connection
            }
        }
    }

    async fn told(&mut self) -> Result<Loss, CallError> {
        let mut looking = Fuse::terminated();
        loop {
            tokio::select! {
                biased;
                () = self.watched.changed.notified() => {}
                first = self.responses.message() => {
                    let mut next = Some(first);
                    // What has come with it may be of the same revision.
                    while let Some(response) = next {
                        let response = response.map_err(call_error)?;
                        let response = response.ok_or_else(|| CallError::unexpected("the end of the stream"))?;
                        if self.heard(&response)? {
                            return Ok(Loss::Session);
                        }
                        next = self.responses.message().now_or_never();
                    }
                }
                found = &mut looking => {
                    let (revision, found) = found?;
                    self.watched.lock().looked(revision, found);
                }
            }
            self.act().await?;
            if looking.is_terminated() {
                let keys = self.watched.lock().look();
                if !keys.is_empty() {
                    looking = look(self.kv.clone(), keys).boxed().fuse();
                }
            }
        }
    }

    /// Notes what the member has said. Whether the session is over.
    fn heard(&mut self, response: &WatchResponse) -> Result<bool, CallError> {
        let id = response.watch_id();
        if response.created() {
            let header = response.header();
            let revision = header.ok_or_else(|| CallError::unexpected("a watch from nowhere"))?;
            self.watched.lock().created(id, revision.revision());
        }
        if response.canceled() && !response.cancel_reason().is_empty() {
            return Err(CallError::unexpected(response.cancel_reason()));
        }
        let mut events = Vec::new();
        for event in response.events() {
            let kv = event.kv();
            let kv = kv.ok_or_else(|| CallError::unexpected("an event without a key"))?;
            // Who watches a node knows that it was made.
            if kv.mod_revision() == kv.create_revision() {
                continue;
            }
            events.push(Event {
                id,
                revision: kv.mod_revision(),
                is_deletion: event.event_type() == EventType::Delete,
            });
        }
        if id == OWN {
            return Ok(events.iter().any(|it| it.is_deletion));
        }
        self.watched.lock().happened(events);
        Ok(false)
    }

    /// Does what there is to do.
    async fn act(&mut self) -> Result<(), CallError> {
        let work = self.watched.lock().take();
        for what in work {
            match what {
                Do::Watch(id, key) => {
                    let options = WatchOptions::new().with_watch_id(id);
                    let sent = self.requests.watch(key, Some(options)).await;
                    sent.map_err(call_error)?;
                }
                Do::Cancel(id) => self.requests.cancel(id).await.map_err(call_error)?,
                Do::Tell(path, up_to, event) => {
                    self.shared.watches.fire(self.number, &path, up_to, event);
                }
            }
        }
        Ok(())
    }
}

/// What keys are like at the member that watches them, which is not asked what others know.
async fn look(
    mut kv: KvClient,
    mut keys: Vec<(i64, String)>,
) -> Result<(i64, Vec<(i64, Found)>), CallError> {
    let (mut found, mut as_of) = (Vec::with_capacity(keys.len()), i64::MAX);
    while !keys.is_empty() {
        let now: Vec<_> = keys.drain(..keys.len().min(LOOKED_MAX)).collect();
        let get = |key: &str| {
            // An answer of keys alone has the revisions, whether or not it has the leases.
            let options = GetOptions::new().with_serializable().with_keys_only();
            TxnOp::get(key, Some(options))
        };
        let gets: Vec<_> = now.iter().map(|(_, key)| get(key)).collect();
        let done = kv.txn(Txn::new().and_then(gets)).await;
        let done = done.map_err(call_error)?;
        let (_, revision) = by(done.header())?;
        as_of = as_of.min(revision);
        let answers = done.op_responses();
        if answers.len() != now.len() {
            return Err(CallError::unexpected("other keys than were looked at"));
        }
        for ((id, _), answer) in now.iter().zip(&answers) {
            let TxnOpResponse::Get(got) = answer else {
                return Err(CallError::unexpected(format!("{answer:?}")));
            };
            let kv = got.kvs().first();
            found.push((*id, kv.map(|kv| (kv.create_revision(), kv.mod_revision()))));
        }
    }
    Ok((as_of, found))
}
