//! The calls that a connection carries.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use etcd_client::{
    Client, Compare, CompareOp, KeyValue, LeaseTimeToLiveOptions, PutOptions, Txn, TxnOp,
    TxnOpResponse,
};
use recipes_core::NodeEvent;
use recipes_core::internal::log::SessionId;
use recipes_keeper::{
    Answers, Asked, CallError, Caller, Facts, Loss, LossSender, Moment, Open, Opened, Outcome,
    Resume, Resumed, Rewatch, Shared,
};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::debug;

use crate::STORE;
use crate::answers::Reading;
use crate::keys::Keys;
use crate::news::{Ask, SharedWatching};
use crate::queues::Queues;
use crate::refusals::{Failed, call_error, refused, without_right};
use crate::session::{Kept, ttl};
use crate::watching::Wanted;
use crate::words::{self, ByKeys};

/// Nodes that are compared in one transaction when a session goes on.
const COMPARED_MAX: usize = 100;

/// What the connection and the tasks on it share.
pub(crate) struct Calls {
    pub(crate) client: Client,
    pub(crate) keys: Keys,
    pub(crate) facts: Facts,
    pub(crate) number: u64,
    pub(crate) shared: Arc<Shared>,
    pub(crate) kept: OnceLock<Kept>,
    pub(crate) watched: Arc<SharedWatching>,
    pub(crate) queues: Mutex<Queues>,
    pub(crate) loss: LossSender,
}

impl Calls {
    pub(crate) fn kept(&self) -> Result<&Kept, CallError> {
        let kept = self.kept.get();
        kept.ok_or_else(|| CallError::unexpected("a session that is not open"))
    }

    pub(crate) async fn open(&self, open: &Open) -> Result<Opened, CallError> {
        let sent = Moment::now();
        let granted = self
            .client
            .lease_client()
            .grant(ttl(open.timeout), None)
            .await;
        let granted = granted.map_err(call_error)?;
        let caller = Caller {
            id: granted.id(),
            secret: open.secret.clone(),
            connection: self.number,
            timeout: open.timeout,
            container_rest: Duration::ZERO,
        };
        let key = self.keys.session(caller.id);
        let lease = PutOptions::new().with_lease(caller.id);
        let value = words::connection(self.number);
        let mut kv = self.client.kv_client();
        let put = kv.put(key.as_str(), value, Some(lease)).await;
        put.map_err(|error| match without_right(&error, &self.keys) {
            Some(refusal) => CallError::Refused(Arc::new(refusal)),
            None => call_error(error),
        })?;
        let lives = Duration::from_secs(u64::try_from(granted.ttl()).unwrap_or_default());
        drop(self.kept.set(Kept::new(&caller, key, lives, Some(sent))));
        Ok(Opened {
            id: caller.id,
            quarantine: Duration::ZERO,
            doubt: Duration::ZERO,
        })
    }

    pub(crate) async fn resume(&self, resume: &Resume) -> Result<Option<Resumed>, CallError> {
        let caller = &resume.caller;
        let is_first = self.kept.get().is_none();
        // Nothing is known of the lease before its first keep-alive.
        let kept = self.kept.get_or_init(|| {
            let lives = Duration::from_secs(u64::try_from(ttl(caller.timeout)).unwrap_or_default());
            let key = self.keys.session(caller.id);
            Kept::new(caller, key, lives, None)
        });
        if is_first && !self.take_over(kept).await? {
            return Ok(None);
        }
        let sent = Moment::now();
        let mut resumed = Resumed::default();
        for watches in resume.watches.chunks(COMPARED_MAX) {
            match self.compare(kept, watches).await? {
                Some(news) => resumed.news.extend(news),
                None => return Ok(None),
            }
        }
        if resume.wants_nodes {
            match self.nodes(kept).await? {
                Some(nodes) => resumed.nodes = nodes,
                None => return Ok(None),
            }
        }
        Ok(self.proven(kept, sent).await?.then_some(resumed))
    }

    /// From now on the session is used over this connection alone. False if it is over.
    async fn take_over(&self, kept: &Kept) -> Result<bool, CallError> {
        let key = kept.key.as_str();
        let ours = Compare::value(key, CompareOp::Less, words::connection(self.number + 1));
        let options = PutOptions::new().with_ignore_lease();
        let put = TxnOp::put(key, words::connection(self.number), Some(options));
        let txn = Txn::new()
            .when([ours])
            .and_then([put])
            .or_else([TxnOp::get(key, None)]);
        let taken = kept.commit(&self.client, txn).await;
        Ok(taken.or_else(Failed::or_over)?.is_some())
    }

    /// What has happened to what is watched, and watches it on.
    async fn compare(
        &self,
        kept: &Kept,
        watches: &[Rewatch],
    ) -> Result<Option<Vec<Option<NodeEvent>>>, CallError> {
        let node = |watch: &Rewatch| self.keys.node(&watch.path);
        let gets = watches.iter().map(|it| TxnOp::get(node(it).key, None));
        let Some((parts, revision)) = self.read(kept, gets.collect()).await? else {
            return Ok(None);
        };
        if parts.len() != watches.len() {
            return Err(CallError::unexpected("other nodes than were compared"));
        }
        let mut news = Vec::with_capacity(watches.len());
        let mut asks = Vec::new();
        for (watch, part) in watches.iter().zip(&parts) {
            let TxnOpResponse::Get(got) = part else {
                return Err(CallError::unexpected(format!("{part:?}")));
            };
            let seen = watch.seen;
            let same = |kv: &&KeyValue| kv.create_revision() == seen.czxid;
            let now = got.kvs().first().filter(same);
            news.push(match now.map(KeyValue::mod_revision) {
                None => Some(NodeEvent::Deleted),
                Some(changed) if changed != seen.mzxid => Some(NodeEvent::Changed),
                Some(_) => {
                    asks.push(Ask::Watch(Wanted {
                        key: node(watch).key,
                        path: watch.path.clone(),
                        number: watch.number,
                        made_at: seen.czxid,
                        read_at: revision,
                        is_own: seen.owner == kept.id,
                    }));
                    None
                }
            });
        }
        self.watched.ask(asks);
        Ok(Some(news))
    }

    /// The nodes of the session.
    async fn nodes(&self, kept: &Kept) -> Result<Option<Vec<String>>, CallError> {
        let mut lease = self.client.lease_client();
        let options = LeaseTimeToLiveOptions::new().with_keys();
        let attached = lease.time_to_live(kept.id, Some(options)).await;
        let attached = attached.map_err(call_error)?;
        let mut nodes = Vec::new();
        for keys in attached.keys().chunks(COMPARED_MAX) {
            let gets = keys.iter().map(|key| TxnOp::get(key.as_slice(), None));
            let Some((parts, _)) = self.read(kept, gets.collect()).await? else {
                return Ok(None);
            };
            for part in parts {
                let TxnOpResponse::Get(got) = part else {
                    return Err(CallError::unexpected(format!("{part:?}")));
                };
                let paths = got.kvs().iter();
                nodes.extend(paths.filter_map(|kv| {
                    let path = self.keys.path(kv.key(), kv.lease(), kv.create_revision());
                    path.filter(|_| kv.lease() == kept.id)
                }));
            }
        }
        Ok(Some(nodes))
    }

    /// Reads for the session. `None` if it is over.
    async fn read(
        &self,
        kept: &Kept,
        operations: Vec<TxnOp>,
    ) -> Result<Option<(Vec<TxnOpResponse>, i64)>, CallError> {
        let txn = words::of_session(&kept.key, self.number, Vec::new(), operations);
        let done = kept.commit(&self.client, txn).await;
        let done = done.or_else(Failed::or_over)?;
        Ok(done.map(|(done, revision)| (done.op_responses(), revision)))
    }

    /// An answer to what was sent then is not handed out before the session certainly lives for its timeout after
    /// that. False if it is over.
    async fn proven(&self, kept: &Kept, sent: Moment) -> Result<bool, CallError> {
        match kept.covers(sent) {
            true => Ok(true),
            false => kept.beat(&self.client).await,
        }
    }

    pub(crate) async fn requests(&self, asked: &[Asked]) -> Result<Option<Answers>, CallError> {
        let (kept, sent) = (self.kept()?, Moment::now());
        let (mut outcomes, mut created) = (Vec::with_capacity(asked.len()), BTreeMap::new());
        // How many of the next are sent alone, to find out which of them is refused.
        let (mut rest, mut alone) = (asked, 0_usize);
        // Whoever is ahead in a later transaction is now, too.
        let by_keys = self.by_keys(asked);
        let mut by_keys = &*by_keys;
        while !rest.is_empty() {
            let count = match alone {
                0 => words::together(&self.keys, rest, by_keys),
                _ => 1,
            };
            alone = alone.saturating_sub(1);
            let (now, later) = rest.split_at(count);
            match self.carry_out(kept, now, by_keys, &mut created).await {
                Ok(done) => outcomes.extend(done),
                Err(Failed::NoLease) => return Ok(None),
                Err(Failed::Unmet) => return Err(CallError::unexpected("a refusal of nothing")),
                Err(Failed::Lost(error)) => return Err(error),
                Err(Failed::Refused(error)) if count == 1 => outcomes.push(Err(refused(error))),
                Err(Failed::Refused(_)) => {
                    alone = count;
                    continue;
                }
            }
            rest = later;
            by_keys = by_keys.get(count..).unwrap_or_default();
        }
        let answers = Answers {
            outcomes,
            step: None,
        };
        Ok(self.proven(kept, sent).await?.then_some(answers))
    }

    /// Carries out requests in one transaction. If one is refused that was sent flat, in two.
    async fn carry_out(
        &self,
        kept: &Kept,
        asked: &[Asked],
        by_keys: &[ByKeys],
        created: &mut BTreeMap<String, String>,
    ) -> Result<Vec<Outcome>, Failed> {
        if words::may_be_flat(asked) {
            let done = self.transact(kept, asked, by_keys, true, created).await;
            if !matches!(done, Err(Failed::Unmet)) {
                return done;
            }
        }
        self.transact(kept, asked, by_keys, false, created).await
    }

    async fn transact(
        &self,
        kept: &Kept,
        asked: &[Asked],
        by_keys: &[ByKeys],
        is_flat: bool,
        created: &mut BTreeMap<String, String>,
    ) -> Result<Vec<Outcome>, Failed> {
        let (compared, sent) = words::requests(&self.keys, kept.id, asked, by_keys, is_flat);
        let txn = words::of_session(&kept.key, self.number, compared, sent);
        let deleted = words::deleted(&self.keys, asked);
        if !deleted.is_empty() {
            self.watched.with(|watching| watching.leaving(&deleted));
        }
        let done = kept.commit(&self.client, txn).await;
        if !deleted.is_empty() {
            let revision = done.as_ref().ok().and_then(|done| Some(done.as_ref()?.1));
            self.queues().left(&deleted);
            self.watched.with(|it| it.left(&deleted, revision));
        }
        let (done, revision) = done?.ok_or(Failed::NoLease)?;
        let mut asks = Vec::new();
        let mut queues = self.queues();
        let mut reading = Reading {
            keys: &self.keys,
            queues: &mut queues,
            lease: kept.id,
            revision,
            read_at: revision,
            parts: done.op_responses().into_iter(),
            created,
            is_flat,
            asks: &mut asks,
        };
        let outcomes = asked.iter().zip(by_keys).enumerate();
        let outcomes = outcomes.map(|(index, (it, by_keys))| {
            // What comes later in the transaction has the same revision, and was not seen.
            let later = asked.get(index + 1..).unwrap_or_default();
            reading.read_at = revision - i64::from(later.iter().any(Asked::tells));
            reading.outcome(it, by_keys.as_deref())
        });
        let outcomes: Result<Vec<_>, _> = outcomes.collect();
        let outcomes = outcomes.map_err(Failed::Lost)?;
        self.watched.ask(asks);
        Ok(outcomes)
    }

    fn by_keys(&self, asked: &[Asked]) -> Vec<ByKeys> {
        let queues = self.queues();
        let by_keys = asked.iter();
        let by_keys = by_keys.map(|it| words::by_keys(&self.keys, &queues, it));
        by_keys.collect()
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the session alive. Completes when it has ended, or cannot be kept over this connection.
    pub(crate) async fn keep(&self, session_timeout: Duration) -> Loss {
        let Ok(kept) = self.kept() else {
            return Loss::Connection;
        };
        let mut next = Instant::now() + session_timeout / 6;
        loop {
            sleep_until(next).await;
            next = Instant::now() + session_timeout / 6;
            let sent = Moment::now();
            match timeout(session_timeout / 4, kept.beat(&self.client)).await {
                Ok(Ok(true)) => self.shared.was_heard(sent),
                Ok(Ok(false)) => return Loss::Session,
                beaten => {
                    debug!(target: STORE, session = %SessionId(kept.id), ?beaten, "no beat");
                    return Loss::Connection;
                }
            }
        }
    }
}
