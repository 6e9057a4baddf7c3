//! [`Nodes`] of one session on Redis.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::stream::{self, BoxStream, StreamExt};
use recipes_core::{
    Connection, Created, Guarantee, MultiError, NewNode, NodeEvent, NodeMode, NodeOp, NodeOpDone,
    NodeStat, NodeWatch, Nodes, NodesError, Reply,
};
use redis::Value;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::answers::{Parts, Trouble, multi, present};
use crate::keeper::Kept;
use crate::queue::Answer;
use crate::watches::Seen;

/// The operations of one session.
#[derive(Debug)]
pub(crate) struct RedisNodes {
    kept: Arc<Kept>,
    /// Its keeper closes the session when this is dropped.
    _used: oneshot::Sender<()>,
}

impl RedisNodes {
    pub(crate) fn new(kept: Arc<Kept>, used: oneshot::Sender<()>) -> Self {
        Self { kept, _used: used }
    }

    fn ask(&self, words: &[&[u8]]) -> Answer {
        let words = words.iter().map(|word| word.to_vec()).collect();
        self.kept.queue.ask(words)
    }

    fn transact(&self, operations: &[NodeOp]) -> Answer {
        let mut words = vec![b"multi".to_vec(), operations.len().to_string().into()];
        for operation in operations {
            add(&mut words, operation);
        }
        self.kept.queue.ask(words)
    }
}

fn add(words: &mut Vec<Vec<u8>>, operation: &NodeOp) {
    let number = |version: &Option<i32>| version.map(|it| it.to_string()).unwrap_or_default();
    let (word, path) = match operation {
        NodeOp::Create(node) => ("create", &node.path),
        NodeOp::Delete { path, .. } => ("delete", path),
        NodeOp::Set { path, .. } => ("set", path),
        NodeOp::Check { path, .. } => ("check", path),
    };
    words.extend([word.into(), path.as_str().into()]);
    match operation {
        NodeOp::Create(node) => {
            let kind = match node.mode {
                NodeMode::Persistent => "P",
                NodeMode::Container => "C",
                NodeMode::Ephemeral => "E",
                NodeMode::EphemeralSequential => "S",
            };
            words.extend([node.data.to_vec(), kind.into()]);
        }
        NodeOp::Set { data, version, .. } => words.extend([data.clone(), number(version).into()]),
        NodeOp::Delete { version, .. } | NodeOp::Check { version, .. } => {
            words.push(number(version).into());
        }
    }
}

async fn answered(answer: Answer) -> Result<Value, NodesError> {
    match answer.await {
        Ok(answer) => answer,
        // It went with its connection.
        Err(_) => Err(Trouble::Lost.into()),
    }
}

async fn done(answer: Answer) -> Result<Parts, NodesError> {
    Parts::done(answered(answer).await?)
}

/// A watch that somebody wants. Dropping it removes the watch, on the server too.
struct Wanted {
    kept: Arc<Kept>,
    path: String,
    number: u64,
}

impl Drop for Wanted {
    fn drop(&mut self) {
        if self.kept.watches.remove(&self.path, self.number) {
            let words = vec![b"unwatch".to_vec(), self.path.as_bytes().to_vec()];
            // Nobody waits for the answer.
            drop(self.kept.queue.ask(words));
        }
    }
}

impl Nodes for RedisNodes {
    fn session(&self) -> i64 {
        self.kept.id
    }

    fn session_timeout(&self) -> Option<Duration> {
        Some(self.kept.terms.session_timeout)
    }

    fn guarantee(&self) -> Guarantee {
        self.kept.guarantee()
    }

    fn grants_from(&self) -> Option<Instant> {
        self.kept.grants_from()
    }

    fn connection(&self) -> BoxStream<'static, Connection> {
        let mut link = self.kept.link.subscribe();
        let first = *link.borrow_and_update();
        let is_over = |it: Connection| matches!(it, Connection::Ended(_));
        let rest = (!is_over(first)).then_some(link);
        let changes = stream::unfold(rest, move |link| async move {
            let mut link = link?;
            // The sender lives in `Kept`, whose keeper ends it before it goes.
            link.changed().await.ok()?;
            let connection = *link.borrow_and_update();
            Some((connection, (!is_over(connection)).then_some(link)))
        });
        let first = Some(first).filter(|it| *it != Connection::Connected);
        stream::iter(first).chain(changes).boxed()
    }

    fn create<'a>(&'a self, node: &'a NewNode) -> Reply<'a, Created> {
        let operations = [NodeOp::Create(node.clone())];
        let answer = self.transact(&operations);
        async move {
            let done = multi(&operations, answered(answer).await).map_err(|error| error.source)?;
            match done.into_iter().next() {
                Some(NodeOpDone::Created(created)) => Ok(created),
                _ => Err(Trouble::Unexpected("no node".to_owned()).into()),
            }
        }
        .boxed()
    }

    fn delete(&self, path: &str) -> Reply<'static, ()> {
        let operations = [NodeOp::Delete {
            path: path.to_owned(),
            version: None,
        }];
        let answer = self.transact(&operations);
        async move {
            multi(&operations, answered(answer).await)
                .map(drop)
                .map_err(|error| error.source)
        }
        .boxed()
    }

    fn list(&self, path: &str) -> Reply<'_, Vec<String>> {
        let answer = self.ask(&[b"list", path.as_bytes()]);
        async move { done(answer).await?.texts() }.boxed()
    }

    fn read(&self, path: &str) -> Reply<'_, Option<(Vec<u8>, NodeStat)>> {
        let answer = self.ask(&[b"read", path.as_bytes()]);
        let read = async move {
            let mut parts = done(answer).await?;
            let stat = parts.stat()?;
            Ok((parts.bytes()?, stat))
        };
        read.map(present).boxed()
    }

    fn stat(&self, path: &str) -> Reply<'_, Option<NodeStat>> {
        let answer = self.ask(&[b"stat", path.as_bytes()]);
        async move { done(answer).await?.stat() }
            .map(present)
            .boxed()
    }

    fn watch(&self, path: &str) -> Reply<'_, Option<(Vec<u8>, NodeStat, NodeWatch)>> {
        let (number, news) = self.kept.watches.enter(path);
        let wanted = Wanted {
            kept: Arc::clone(&self.kept),
            path: path.to_owned(),
            number,
        };
        let answer = self.ask(&[b"watch", path.as_bytes(), number.to_string().as_bytes()]);
        let watched = async move {
            let mut parts = done(answer).await?;
            let stat = parts.stat()?;
            let data = parts.bytes()?;
            let seen = Seen {
                czxid: stat.czxid,
                mzxid: stat.mzxid,
            };
            wanted.kept.watches.confirm(&wanted.path, number, seen);
            let event = async move {
                let event = news.await.unwrap_or(NodeEvent::SessionEnded);
                drop(wanted);
                event
            };
            Ok((data, stat, event.boxed()))
        };
        watched.map(present).boxed()
    }

    fn sync(&self, _path: &str) -> Reply<'_, ()> {
        // There is one server that answers, and its answers are of the moment.
        let answer = self.ask(&[b"beat"]);
        async move { done(answer).await.map(drop) }.boxed()
    }

    fn multi(&self, operations: Vec<NodeOp>) -> Reply<'_, Vec<NodeOpDone>, MultiError> {
        let answer = self.transact(&operations);
        async move { multi(&operations, answered(answer).await) }.boxed()
    }
}
