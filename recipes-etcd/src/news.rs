//! The stream of events.

use std::sync::Arc;

use etcd_client::{
    Client, EventType, GetOptions, KvClient, Txn, TxnOp, TxnOpResponse, WatchOptions,
    WatchRequestSender, WatchResponse, WatchResponseStream,
};
use futures::future::{Fuse, FutureExt};
use recipes_core::NodesError;
use recipes_keeper::{CallError, Loss, Shared};
use tokio::sync::mpsc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tracing::debug;

use crate::STORE;
use crate::answers::by;
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
    /// By its key.
    Unwatch(String),
    /// The session is about to delete these keys.
    Leaving(Vec<String>),
    /// It has, by this revision, if that is known.
    Left(Vec<String>, Option<i64>),
}

/// The stream of one connection.
pub(crate) struct News {
    kv: KvClient,
    requests: WatchRequestSender,
    responses: WatchResponseStream,
    asked: UnboundedReceiver<Ask>,
    watching: Watching,
    shared: Arc<Shared>,
    number: u64,
}

impl News {
    /// Begins with the key of the session. Returns what takes requests, too.
    pub(crate) async fn open(
        client: &Client,
        session_key: &str,
        shared: &Arc<Shared>,
        number: u64,
    ) -> Result<(Self, UnboundedSender<Ask>), NodesError> {
        let own = WatchOptions::new().with_watch_id(OWN);
        let stream = client.watch_client().watch(session_key, Some(own)).await;
        let (requests, responses) = stream.map_err(refusal_of_session)?.split();
        let (ask, asked) = mpsc::unbounded_channel();
        let news = Self {
            kv: client.kv_client(),
            requests,
            responses,
            asked,
            watching: Watching::after(OWN),
            shared: Arc::clone(shared),
            number,
        };
        Ok((news, ask))
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
                // First: whoever deletes a key says so before.
                asked = self.asked.recv() => match asked {
                    Some(asked) => self.asked(asked),
                    None => return Ok(Loss::Connection),
                },
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
                    self.watching.looked(revision, found);
                }
            }
            self.act().await?;
            if futures::future::FusedFuture::is_terminated(&looking) {
                let keys = self.watching.look();
                if !keys.is_empty() {
                    looking = look(self.kv.clone(), keys).boxed().fuse();
                }
            }
        }
    }

    fn asked(&mut self, asked: Ask) {
        match asked {
            Ask::Watch(wanted) => self.watching.watch(wanted),
            Ask::Unwatch(key) => self.watching.unwatch(&key),
            Ask::Leaving(keys) => self.watching.leaving(&keys),
            Ask::Left(keys, revision) => self.watching.left(&keys, revision),
        }
    }

    /// Notes what the member has said. Whether the session is over.
    fn heard(&mut self, response: &WatchResponse) -> Result<bool, CallError> {
        let id = response.watch_id();
        if response.created() {
            let header = response.header();
            let revision = header.ok_or_else(|| CallError::unexpected("a watch from nowhere"))?;
            self.watching.created(id, revision.revision());
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
        self.watching.happened(events);
        Ok(false)
    }

    /// Does what there is to do.
    async fn act(&mut self) -> Result<(), CallError> {
        for what in self.watching.take() {
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
