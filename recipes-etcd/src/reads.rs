//! A connection of somebody who only reads.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use etcd_client::{Client, Txn};
use futures::future::{self, BoxFuture, FutureExt};
use recipes_core::NodesError;
use recipes_keeper::{Asked, CallError, Facts, Loss, ReadNode, Reads, Said};

use crate::answers::{Reading, by, call_error};
use crate::keys::Keys;
use crate::session::ANSWER_MAX;
use crate::wire::Route;
use crate::words;

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
        let txn = Txn::new().and_then(words::operations(&self.keys, 0, asked));
        let mut kv = self
            .client
            .kv_client()
            .max_decoding_message_size(ANSWER_MAX);
        let done = kv.txn(txn).await.map_err(call_error)?;
        let (_, revision) = by(done.header())?;
        let mut reading = Reading {
            keys: &self.keys,
            lease: 0,
            revision,
            read_at: revision,
            parts: done.op_responses().into_iter(),
            created: &mut BTreeMap::new(),
            asks: &mut Vec::new(),
        };
        Ok(reading.outcome(asked)?.ok())
    }
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

    fn ping(&self) -> BoxFuture<'_, Result<(), CallError>> {
        async { self.ask(&Asked::Stat("/".to_owned())).await.map(drop) }.boxed()
    }

    fn lost(&self) -> BoxFuture<'_, Loss> {
        // The client connects again by itself, and nothing is kept over a connection.
        future::pending().boxed()
    }
}
