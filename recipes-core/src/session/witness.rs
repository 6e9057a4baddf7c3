//! [`Nodes`] with a record of what every answer proves.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock::{Clock, Moment};
use crate::rules::evidence::{Evidence, Proof};
use crate::session::silence::Silence;
use crate::store::Guarantee;
use crate::store::fence::Fence;
use crate::store::nodes::{
    Connection, Created, Listing, MultiError, NewNode, NodeOp, NodeOpDone, NodeStat, NodeWatch,
    Nodes, NodesError, Reliant, Reply,
};
use crate::sync::{Mutex, lock};

/// The highest transaction number that a session has seen, over all its epochs.
#[derive(Debug, Default)]
pub(crate) struct HighestNumber(AtomicI64);

impl HighestNumber {
    pub(crate) fn get(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }

    fn see(&self, number: i64) {
        self.0.fetch_max(number, Ordering::SeqCst);
    }

    fn see_created(&self, created: &Created) {
        // Servers that do not return the number show it when the node is read.
        self.see(created.czxid.unwrap_or_default());
    }

    fn see_stat(&self, stat: &NodeStat) {
        self.see(stat.czxid.max(stat.mzxid).max(stat.pzxid));
    }
}

/// What the answers of one store session prove.
#[derive(Debug)]
pub(crate) struct Ledger {
    pub(crate) clock: Clock,
    pub(crate) evidence: Mutex<Evidence>,
    pub(crate) silence: Mutex<Silence>,
    pub(crate) highest: Arc<HighestNumber>,
    /// Notified when a lapse is noticed.
    pub(crate) lapsed: Arc<Notify>,
}

impl Ledger {
    fn note(&self, proof: Option<Proof>, sent: Moment) {
        let Some(proof) = proof else {
            return;
        };
        if lock(&self.evidence).note(proof, sent, self.clock.now()) {
            self.lapsed.notify_one();
        }
    }

    /// Notes that a request is over: with an answer, if only a refusal, or with an error of another
    /// kind.
    fn heard(&self, error: Option<&NodesError>) {
        let mut silence = lock(&self.silence);
        match error {
            Some(error) if error.is_unanswered() => silence.failed(error, Instant::now()),
            Some(_) | None => silence.answered(Instant::now()),
        }
    }
}

/// What the answer to a write proves. A refusal by the tree is committed as well, in its place
/// among the transactions (`PrepRequestProcessor` makes it an error transaction). A refusal by a
/// server that did not forward the request to the leader is not.
fn proof_of_write(error: Option<&NodesError>) -> Option<Proof> {
    match error {
        None
        | Some(
            NodesError::NoNode
            | NodesError::NodeExists
            | NodesError::BadVersion
            | NodesError::NoAuth,
        ) => Some(Proof::Quorum),
        Some(_) => None,
    }
}

/// The operations of one session, with a record of what its answers prove. Every request of the
/// session goes through it.
#[derive(Debug)]
pub(crate) struct Witness {
    nodes: Arc<dyn Nodes>,
    ledger: Arc<Ledger>,
}

impl Witness {
    pub(crate) fn new(nodes: Arc<dyn Nodes>, ledger: Arc<Ledger>) -> Self {
        Self { nodes, ledger }
    }

    /// Sends a write and notes its answer: what it proves, and the numbers that it shows.
    fn write<'a, T, E>(
        &self,
        send: impl FnOnce() -> BoxFuture<'a, Result<T, E>>,
        source: impl Fn(&E) -> &NodesError + Send + 'a,
        show: impl Fn(&HighestNumber, &T) + Send + 'a,
    ) -> BoxFuture<'a, Result<T, E>>
    where
        T: Send + 'a,
        E: Send + 'a,
    {
        let ledger = Arc::clone(&self.ledger);
        // Read before the request is sent.
        let sent = ledger.clock.now();
        let noted = send().inspect(move |answer| {
            let error = answer.as_ref().err().map(&source);
            ledger.note(proof_of_write(error), sent);
            ledger.heard(error);
            if let Ok(answer) = answer {
                show(&ledger.highest, answer);
            }
        });
        noted.boxed()
    }

    /// Sends a read, which proves nothing, and notes the numbers that it shows.
    fn read_with<'a, T: Send + 'a>(
        &self,
        reply: Reply<'a, T>,
        stat: impl Fn(&T) -> Option<&NodeStat> + Send + 'a,
    ) -> Reply<'a, T> {
        let ledger = Arc::clone(&self.ledger);
        let noted = reply.inspect(move |answer| {
            ledger.heard(answer.as_ref().err());
            if let Some(stat) = answer.as_ref().ok().and_then(&stat) {
                ledger.highest.see_stat(stat);
            }
        });
        noted.boxed()
    }
}

impl Nodes for Witness {
    fn session(&self) -> i64 {
        self.nodes.session()
    }

    fn session_timeout(&self) -> Option<Duration> {
        self.nodes.session_timeout()
    }

    fn relied_on_by(&self, reliant: Weak<dyn Reliant>) {
        self.nodes.relied_on_by(reliant);
    }

    fn guarantee(&self) -> Guarantee {
        self.nodes.guarantee()
    }

    fn grants_from(&self) -> Option<Instant> {
        self.nodes.grants_from()
    }

    fn trouble(&self) -> Option<NodesError> {
        self.nodes.trouble()
    }

    fn runs(&self) -> u64 {
        self.nodes.runs()
    }

    fn in_doubt_until(&self) -> Option<Instant> {
        self.nodes.in_doubt_until()
    }

    fn gone(&self, path: &str) {
        self.nodes.gone(path);
    }

    fn fence(&self, held: &[(&str, i64)]) -> Option<Fence> {
        self.nodes.fence(held)
    }

    fn connection(&self) -> BoxStream<'static, Connection> {
        self.nodes.connection()
    }

    fn create<'a>(&'a self, node: &'a NewNode) -> Reply<'a, Created> {
        self.write(
            || self.nodes.create(node),
            |error| error,
            HighestNumber::see_created,
        )
    }

    fn delete(&self, path: &str) -> Reply<'static, ()> {
        self.write(|| self.nodes.delete(path), |error| error, |_, ()| {})
    }

    fn list(&self, path: &str) -> Reply<'_, Vec<String>> {
        self.nodes.list(path)
    }

    fn list_all(&self, paths: &[&str]) -> Reply<'_, Vec<Listing>> {
        self.nodes.list_all(paths)
    }

    fn list_entered(&self, paths: &[&str]) -> Reply<'_, Vec<Listing>> {
        self.nodes.list_entered(paths)
    }

    fn list_again(&self, path: &str, own: &str) -> Reply<'_, Vec<String>> {
        self.nodes.list_again(path, own)
    }

    fn together(&self) -> Box<dyn Send + '_> {
        self.nodes.together()
    }

    fn read(&self, path: &str) -> Reply<'_, Option<(Vec<u8>, NodeStat)>> {
        self.read_with(self.nodes.read(path), |found| {
            found.as_ref().map(|(_, stat)| stat)
        })
    }

    fn stat(&self, path: &str) -> Reply<'_, Option<NodeStat>> {
        self.read_with(self.nodes.stat(path), Option::as_ref)
    }

    fn watch(&self, path: &str) -> Reply<'_, Option<(Vec<u8>, NodeStat, NodeWatch)>> {
        self.read_with(self.nodes.watch(path), |found| {
            found.as_ref().map(|(_, stat, _)| stat)
        })
    }

    fn silent<'a>(&'a self, sessions: &'a [i64]) -> Reply<'a, Vec<(i64, Duration)>> {
        self.nodes.silent(sessions)
    }

    fn sync(&self, path: &str) -> Reply<'_, ()> {
        let sent = self.ledger.clock.now();
        let ledger = &self.ledger;
        let synced = self.nodes.sync(path);
        synced
            .inspect(move |answer| {
                let proof = answer.is_ok().then_some(Proof::Leader);
                ledger.note(proof, sent);
                ledger.heard(answer.as_ref().err());
            })
            .boxed()
    }

    fn multi(&self, operations: Vec<NodeOp>) -> Reply<'_, Vec<NodeOpDone>, MultiError> {
        let show = |highest: &HighestNumber, done: &Vec<NodeOpDone>| {
            for done in done {
                match done {
                    NodeOpDone::Created(created) => highest.see_created(created),
                    NodeOpDone::Set(stat) => highest.see_stat(stat),
                    NodeOpDone::Deleted | NodeOpDone::Checked => {}
                }
            }
        };
        self.write(|| self.nodes.multi(operations), |error| &error.source, show)
    }
}

#[cfg(test)]
mod tests;
