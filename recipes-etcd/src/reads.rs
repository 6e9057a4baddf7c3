//! A connection of somebody who only reads.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, Txn};
use futures::TryStreamExt;
use futures::future::{self, BoxFuture, FutureExt};
use futures::stream::{self, StreamExt};
use recipes_core::NodesError;
use recipes_keeper::{Asked, CallError, Facts, Loss, ReadNode, Reads, Said, Silence, is_long};

use crate::answers::{Reading, by};
use crate::keys::Keys;
use crate::queues::Queues;
use crate::refusals::call_error;
use crate::session::ANSWER_MAX;
use crate::wire::Route;
use crate::words;

/// Leases that are asked for at a time.
const LEASES_AT_ONCE: usize = 32;

pub(crate) struct EtcdReads {
    client: Client,
    keys: Keys,
    facts: Facts,
}

impl fmt::Debug for EtcdReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reads")
            .field("facts", &self.facts)
            .finish_non_exhaustive()
    }
}

impl EtcdReads {
    pub(crate) async fn open(route: &Route) -> Result<Arc<dyn Reads>, NodesError> {
        let (client, facts) = route.connect().await?;
        let keys = route.keys.clone();
        Ok(Arc::new(Self {
            client,
            keys,
            facts,
        }))
    }

    /// The answer to a request; `None` if there is no such node.
    async fn ask(&self, asked: &Asked) -> Result<Option<Said>, CallError> {
        let txn = Txn::new().and_then(words::operations(&self.keys, 0, asked, None));
        let mut kv = self
            .client
            .kv_client()
            .max_decoding_message_size(ANSWER_MAX);
        let done = kv.txn(txn).await.map_err(call_error)?;
        let (_, revision) = by(done.header())?;
        let mut reading = Reading {
            keys: &self.keys,
            queues: &mut Queues::default(),
            lease: 0,
            revision,
            read_at: revision,
            parts: done.op_responses().into_iter(),
            created: &mut BTreeMap::new(),
            is_flat: false,
            asks: &mut Vec::new(),
        };
        Ok(reading.outcome(asked, None)?.ok())
    }
}

/// How long a lease was not kept alive for, in whole seconds, if that is long. A lease that is gone has a `left` below 0.
fn silence(granted: i64, left: i64) -> Option<Duration> {
    let [granted, left] = [granted, left].map(|it| u64::try_from(it).ok());
    let granted = Duration::from_secs(granted?);
    // What is left is a part of a second more.
    let silence = granted.checked_sub(Duration::from_secs(left? + 1))?;
    is_long(silence, granted).then_some(silence)
}

impl Reads for EtcdReads {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn names<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<Vec<String>>, CallError>> {
        async move {
            Ok(match self.ask(&Asked::List(path.to_owned())).await? {
                Some(Said::Names(names, _)) => Some(names),
                _ => None,
            })
        }
        .boxed()
    }

    fn node<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<ReadNode>, CallError>> {
        async move {
            Ok(match self.ask(&Asked::Read(path.to_owned())).await? {
                Some(Said::Node(data, stat)) => Some((data, stat)),
                _ => None,
            })
        }
        .boxed()
    }

    fn silent<'a>(&'a self, sessions: &'a [i64]) -> BoxFuture<'a, Result<Vec<Silence>, CallError>> {
        let lives = stream::iter(sessions).map(move |id| async move {
            let mut leases = self.client.lease_client();
            let lease = leases.time_to_live(*id, None).await.map_err(call_error)?;
            Ok::<_, CallError>(silence(lease.granted_ttl(), lease.ttl()).map(|it| (*id, it)))
        });
        let silent = lives.buffered(LEASES_AT_ONCE).try_filter_map(future::ok);
        silent.try_collect().boxed()
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), CallError>> {
        async { self.ask(&Asked::Stat("/".to_owned())).await.map(drop) }.boxed()
    }

    fn lost(&self) -> BoxFuture<'_, Loss> {
        // The client connects again by itself, and nothing is kept over a connection.
        future::pending().boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_told_in_whole_seconds_that_have_passed() {
        let told = |granted, left| silence(granted, left).map(|it| it.as_secs());
        assert_eq!(told(15, 14), None);
        assert_eq!(told(15, 7), None, "it may be 7 s");
        assert_eq!(told(15, 6), None, "it may be 8 s, which is too little");
        assert_eq!(told(15, 5), Some(9));
        assert_eq!(told(15, 0), Some(14));
        assert_eq!(told(15, -1), None, "it is gone");
        assert_eq!(told(0, -1), None);
        // Go's clients keep it alive each third of it.
        assert_eq!(told(60, 40), None);
        assert_eq!(told(1, 1), None);
    }
}
