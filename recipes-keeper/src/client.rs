//! [`Nodes`] of one session.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{self, FutureExt, join_all};
use futures::stream::BoxStream;
use recipes_core::{
    Connection, Created, Fence, Guarantee, Listing, MultiError, NewNode, NodeEvent, NodeOp,
    NodeOpDone, NodeStat, NodeWatch, Nodes, NodesError, Reply, connection_changes,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::answers::{Trouble, present, whole};
use crate::asked::Asked;
use crate::kept::Kept;
use crate::queue::Answer;
use crate::shared::Shared;
use crate::wire::{Outcome, Said};

/// The operations of one session.
#[derive(Debug)]
pub(crate) struct KeptNodes {
    kept: Arc<Kept>,
    /// Its keeper closes the session when this is dropped.
    _used: oneshot::Sender<()>,
}

impl KeptNodes {
    pub(crate) fn new(kept: Arc<Kept>, used: oneshot::Sender<()>) -> Self {
        Self { kept, _used: used }
    }

    /// Lists for a contender, which will then watch its own node and the two ahead of it. The answer
    /// has those watches with it. Its node is `own`, or the one that this call has created there.
    fn look(&self, path: &str, own: Option<&str>) -> Reply<'_, Vec<String>> {
        let shared = &self.kept.shared;
        let (mut anywhere, answer) = self.kept.with(|waiting| {
            let (first, anywhere) = shared.watches.enter_anywhere(3);
            let look = Asked::Look {
                directory: path.to_owned(),
                own: own.map(str::to_owned),
                first,
            };
            (anywhere, waiting.ask(look))
        });
        let path = path.to_owned();
        async move {
            let (names, watched) = done(answer).await?.names()?;
            for it in watched {
                shared.saw_node(&it.stat);
                anywhere.bind(it.number, &format!("{path}/{}", it.name), it.data, it.stat);
            }
            Ok(names)
        }
        .boxed()
    }

    fn transact(&self, operations: impl Into<Arc<[NodeOp]>>) -> Answer {
        self.ask(Asked::Multi(operations.into()))
    }

    fn ask(&self, asked: Asked) -> Answer {
        self.kept.ask(asked)
    }
}

async fn answered(answer: Answer) -> Outcome {
    // Without an answer it went with its connection.
    answer.await.unwrap_or(Err(whole(Trouble::Lost)))
}

/// What a transaction has done.
async fn transacted(shared: &Shared, answer: Answer) -> Result<Vec<NodeOpDone>, MultiError> {
    let done = answered(answer).await?.multi()?;
    for done in &done {
        match done {
            NodeOpDone::Created(created) => shared.saw(created.czxid.unwrap_or_default()),
            NodeOpDone::Set(stat) => shared.saw_node(stat),
            _ => {}
        }
    }
    Ok(done)
}

async fn done(answer: Answer) -> Result<Said, NodesError> {
    answered(answer).await.map_err(|error| error.source)
}

/// A watch that somebody wants. Dropping it removes the watch, on the server too.
struct Wanted {
    kept: Arc<Kept>,
    path: String,
    number: u64,
}

impl Wanted {
    fn event(self, news: oneshot::Receiver<NodeEvent>) -> NodeWatch {
        let event = async move {
            let event = news.await.unwrap_or(NodeEvent::SessionEnded);
            // A holder may keep its guard, and then nobody deletes the node: it is gone.
            if matches!(event, NodeEvent::Deleted | NodeEvent::DeletedAsFirst) {
                self.kept.owned().all_gone(&self.path);
            }
            drop(self);
            event
        };
        event.boxed()
    }
}

impl Drop for Wanted {
    fn drop(&mut self) {
        let Self { kept, path, number } = self;
        // In one step: a watch that somebody sets meanwhile is asked for after this.
        kept.with(|waiting| {
            if kept.shared.watches.remove(path, *number) {
                // Nobody waits for the answer.
                drop(waiting.ask(Asked::Unwatch(path.clone())));
            }
        });
    }
}

impl Nodes for KeptNodes {
    fn session(&self) -> i64 {
        self.kept.id
    }

    fn session_timeout(&self) -> Option<Duration> {
        Some(self.kept.terms.session_timeout)
    }

    fn guarantee(&self) -> Guarantee {
        self.kept.promise().guarantee
    }

    fn grants_from(&self) -> Option<Instant> {
        self.kept.promise().grants_from
    }

    fn trouble(&self) -> Option<NodesError> {
        self.kept.trouble().clone()
    }

    fn runs(&self) -> u64 {
        self.kept.owned().runs()
    }

    fn in_doubt_until(&self) -> Option<Instant> {
        self.kept.in_doubt_until
    }

    fn gone(&self, path: &str) {
        self.kept.owned().all_gone(path);
    }

    fn fence(&self, held: &[(&str, i64)]) -> Option<Fence> {
        self.kept.terms.server.fence(held)
    }

    fn connection(&self) -> BoxStream<'static, Connection> {
        connection_changes(self.kept.link.subscribe())
    }

    fn create<'a>(&'a self, node: &'a NewNode) -> Reply<'a, Created> {
        let answer = self.transact([NodeOp::Create(node.clone())]);
        async move {
            let done = transacted(&self.kept.shared, answer).await;
            let done = done.map_err(|error| error.source)?;
            match done.into_iter().next() {
                Some(NodeOpDone::Created(created)) => Ok(created),
                _ => Err(Trouble::Unexpected("no node".to_owned()).into()),
            }
        }
        .boxed()
    }

    fn delete(&self, path: &str) -> Reply<'static, ()> {
        let answer = self.transact([NodeOp::Delete {
            path: path.to_owned(),
            version: None,
        }]);
        async move { done(answer).await.map(drop) }.boxed()
    }

    fn list(&self, path: &str) -> Reply<'_, Vec<String>> {
        let answer = self.ask(Asked::List(path.to_owned()));
        async move { Ok(done(answer).await?.names()?.0) }.boxed()
    }

    fn read(&self, path: &str) -> Reply<'_, Option<(Vec<u8>, NodeStat)>> {
        let answer = self.ask(Asked::Read(path.to_owned()));
        let read = async move {
            let (data, stat) = done(answer).await?.node()?;
            self.kept.shared.saw_node(&stat);
            Ok((data, stat))
        };
        read.map(present).boxed()
    }

    fn stat(&self, path: &str) -> Reply<'_, Option<NodeStat>> {
        let answer = self.ask(Asked::Stat(path.to_owned()));
        let read = async move {
            let stat = done(answer).await?.stat()?;
            self.kept.shared.saw_node(&stat);
            Ok(stat)
        };
        read.map(present).boxed()
    }

    fn watch(&self, path: &str) -> Reply<'_, Option<(Vec<u8>, NodeStat, NodeWatch)>> {
        let wanted = |number| Wanted {
            kept: Arc::clone(&self.kept),
            path: path.to_owned(),
            number,
        };
        if let Some(spare) = self.kept.shared.watches.take_spare(path) {
            let event = wanted(spare.number).event(spare.news);
            return future::ready(Ok(Some((spare.data, spare.stat, event)))).boxed();
        }
        let (number, news, answer) = self.kept.with(|waiting| {
            let (number, news) = self.kept.shared.watches.enter(path);
            let watch = Asked::Watch(path.to_owned(), number);
            (number, news, waiting.ask(watch))
        });
        let wanted = wanted(number);
        let watched = async move {
            let (data, stat) = done(answer).await?.node()?;
            wanted.kept.shared.saw_node(&stat);
            Ok((data, stat, wanted.event(news)))
        };
        watched.map(present).boxed()
    }

    fn list_entered(&self, paths: &[&str]) -> Reply<'_, Vec<Listing>> {
        let asked: Vec<_> = paths.iter().map(|path| self.look(path, None)).collect();
        async move { Ok(join_all(asked).await) }.boxed()
    }

    fn list_again(&self, path: &str, own: &str) -> Reply<'_, Vec<String>> {
        self.look(path, Some(own))
    }

    fn together(&self) -> Box<dyn Send + '_> {
        Box::new(self.kept.together())
    }

    fn silent<'a>(&'a self, sessions: &'a [i64]) -> Reply<'a, Vec<(i64, Duration)>> {
        self.kept.terms.silent(&self.kept.shared, sessions).boxed()
    }

    fn sync(&self, _path: &str) -> Reply<'_, ()> {
        // There is one server that answers, and its answers are of the moment.
        let answer = self.kept.ask_beat();
        async move { done(answer).await.map(drop) }.boxed()
    }

    fn multi(&self, operations: Vec<NodeOp>) -> Reply<'_, Vec<NodeOpDone>, MultiError> {
        if operations.is_empty() {
            // As a client of ZooKeeper: there is nothing to ask, even when the session has ended.
            return future::ready(Ok(Vec::new())).boxed();
        }
        let answer = self.transact(operations);
        async move { transacted(&self.kept.shared, answer).await }.boxed()
    }
}
