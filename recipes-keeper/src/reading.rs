//! Who only reads: there is no session that a server would know of, so the right to read is enough.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{self, BoxFuture, FutureExt, try_join_all};
use recipes_core::NodesError;

use crate::answers::{Trouble, whole};
use crate::asked::Asked;
use crate::wire::{
    Answers, CallError, Called, Caller, Facts, Loss, Open, Opened, Outcome, Resume, Resumed, Wire,
};

/// No server gives this number to a session.
const NOBODY: i64 = -1;

/// One connection of somebody who only reads. Dropping it closes it.
pub trait Reads: Send + Sync + Debug {
    /// What the server has said about itself.
    fn facts(&self) -> &Facts;

    /// Carries out a [list](Asked::List), a [read](Asked::Read), a [stat](Asked::Stat) or a [beat](Asked::Beat),
    /// which only has to be answered.
    fn read<'a>(&'a self, asked: &'a Asked) -> BoxFuture<'a, Result<Outcome, CallError>>;

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
        let root = reads.read(&Asked::Stat("/".to_owned())).await?;
        drop(root.map_err(|refused| refused.source)?);
        Ok(Self { number, reads })
    }
}

/// Carries out requests, or refuses them one by one.
async fn outcome(reads: &dyn Reads, asked: &Asked) -> Result<Outcome, CallError> {
    match asked {
        Asked::List(_) | Asked::Read(_) | Asked::Stat(_) | Asked::Beat => reads.read(asked).await,
        Asked::Multi(_) | Asked::Look { .. } | Asked::Watch(..) | Asked::Unwatch(_) => {
            Ok(Err(whole(Trouble::OnlyReads)))
        }
    }
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
