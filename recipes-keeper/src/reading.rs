//! Who only reads: there is no session that a server would know of, so the right to read is enough.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{self, BoxFuture, FutureExt, try_join_all};
use recipes_core::{NodeStat, NodesError};

use crate::answers::{Trouble, whole};
use crate::asked::Asked;
use crate::wire::{
    Answers, CallError, Called, Caller, Facts, Loss, Open, Opened, Outcome, Resume, Resumed, Said,
    Wire,
};

/// No server gives this number to a session.
const NOBODY: i64 = -1;

/// Data and stat of a node.
pub type ReadNode = (Vec<u8>, NodeStat);

/// One connection of somebody who only reads. Dropping it closes it.
pub trait Reads: Send + Sync + Debug {
    /// What the server has said about itself.
    fn facts(&self) -> &Facts;

    /// The names in a directory, if it is there.
    fn names<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<Vec<String>>, CallError>>;

    /// Data and stat of a node, if it is there.
    fn node<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<ReadNode>, CallError>>;

    /// Asks for an answer, and for nothing else.
    fn ping(&self) -> BoxFuture<'_, Result<(), CallError>>;

    /// Completes when the connection is of no more use.
    fn lost(&self) -> BoxFuture<'_, Loss>;
}

/// Such a connection, as that of a session.
#[derive(Debug)]
pub(crate) struct Reading {
    number: u64,
    reads: Arc<dyn Reads>,
}

impl Reading {
    /// Whether it may read is found out at once.
    pub(crate) async fn open(number: u64, reads: Arc<dyn Reads>) -> Result<Self, NodesError> {
        drop(reads.node("/").await?);
        Ok(Self { number, reads })
    }
}

/// Carries out a request, or refuses it.
async fn outcome(reads: &dyn Reads, asked: &Asked) -> Result<Outcome, CallError> {
    let said = match asked {
        Asked::List(path) => {
            let names = reads.names(path).await?;
            names.map(|names| Said::Names(names, Vec::new()))
        }
        Asked::Read(path) => {
            let node = reads.node(path).await?;
            node.map(|(data, stat)| Said::Node(data, stat))
        }
        Asked::Stat(path) => reads.node(path).await?.map(|(_, stat)| Said::Stat(stat)),
        Asked::Beat => {
            reads.ping().await?;
            Some(Said::Nothing)
        }
        Asked::Multi(_) | Asked::Look { .. } | Asked::Watch(..) | Asked::Unwatch(_) => {
            return Ok(Err(whole(Trouble::OnlyReads)));
        }
    };
    Ok(said.ok_or_else(|| whole(NodesError::NoNode)))
}

impl Wire for Reading {
    fn number(&self) -> u64 {
        self.number
    }

    fn facts(&self) -> &Facts {
        self.reads.facts()
    }

    fn in_flight_max(&self) -> usize {
        1
    }

    fn open(&self, _: Open) -> Called<Opened> {
        let opened = Opened {
            id: NOBODY,
            quarantine: Duration::ZERO,
            doubt: Duration::ZERO,
        };
        future::ready(Ok(opened)).boxed()
    }

    fn resume(&self, _: Resume) -> Called<Option<Resumed>> {
        // Nothing is watched.
        future::ready(Ok(Some(Resumed::default()))).boxed()
    }

    fn requests(&self, _: &Arc<Caller>, asked: &Arc<[Asked]>) -> Called<Option<Answers>> {
        let (reads, asked) = (Arc::clone(&self.reads), Arc::clone(asked));
        async move {
            let outcomes = asked.iter().map(|asked| outcome(&*reads, asked));
            Ok(Some(Answers {
                outcomes: try_join_all(outcomes).await?,
                step: None,
            }))
        }
        .boxed()
    }

    fn close(&self, _: &Arc<Caller>) -> Called<bool> {
        future::ready(Ok(false)).boxed()
    }

    fn lost(&self) -> BoxFuture<'_, Loss> {
        self.reads.lost()
    }

    fn subscribe(&self, _: i64) -> BoxFuture<'_, Result<(), NodesError>> {
        future::ready(Ok(())).boxed()
    }
}
