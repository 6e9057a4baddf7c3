//! The first contender of a lock's queue, now and from now on.
//!
//! Its node is watched, and only that: the contenders behind it wait as ever, and are not woken. A
//! store has no watch on the children of a node, so an empty queue is listed again after a pause.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use futures::stream::{self, StreamExt, TryStreamExt};
use tokio::time::sleep;

use crate::driver::internals::LockInternals;
use crate::error::QueryError;
use crate::inspect::participants::{Participant, REQUESTS_AT_ONCE};
use crate::names::node_name::{self, LockKind};
use crate::names::order;
use crate::names::token::FencingToken;
use crate::session::epoch::{Epoch, Link};
use crate::store::nodes::{NodeWatch, Nodes, NodesError};
use crate::store::retry::{self, Backoff};

/// Pause after the first look that finds an empty queue: the next contender may be on its way.
const PAUSE_MIN: Duration = Duration::from_millis(50);

/// Pause while the queue stays empty. Whoever comes is seen after this time.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A contender of a queue, as it was read.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Queued {
    /// Its node.
    pub participant: Participant,
    /// The token of the grant that rests on this node, now or later.
    pub token: FencingToken,
    /// Whether nothing is ahead of it.
    pub is_first: bool,
}

impl LockInternals {
    /// Lists the contenders in the order of admission. Other nodes are left out; one that sorts
    /// ahead of contenders keeps them waiting, so that none is the first.
    ///
    /// # Errors
    /// As [`Session::read`](crate::Session::read).
    pub async fn queued(&self) -> Result<Vec<Queued>, QueryError> {
        let query = async |epoch: Arc<Epoch>| {
            let nodes = &epoch.nodes()?;
            let names = retry::persist(|| nodes.list(self.path())).await;
            let names = queue(self.kind(), names)?;
            let reads = stream::iter(names).map(|name| self.read(&**nodes, name));
            let mut reads = reads.buffered(REQUESTS_AT_ONCE);
            let (mut queued, mut is_first) = (Vec::new(), true);
            while let Some(found) = reads.try_next().await? {
                match found {
                    FoundFirst::Gone => {}
                    FoundFirst::Stranger => is_first = false,
                    FoundFirst::Contender(contender) => {
                        queued.push(Queued {
                            is_first,
                            ..*contender
                        });
                        is_first = false;
                    }
                }
            }
            Ok(queued)
        };
        self.session().core().query(self.path(), query).await
    }

    /// Reads the contender that nothing is ahead of, if there is one. Sends a list and a read.
    ///
    /// # Errors
    /// As [`Session::read`](crate::Session::read).
    pub async fn first(&self) -> Result<Option<Queued>, QueryError> {
        let query = async |epoch: Arc<Epoch>| {
            let nodes = &epoch.nodes()?;
            // Ends with the patience of the query: each round needs another contender to leave.
            loop {
                let names = retry::persist(|| nodes.list(self.path())).await;
                let Some(name) = queue(self.kind(), names)?.into_iter().next() else {
                    return Ok(None);
                };
                match self.read(&**nodes, name).await? {
                    FoundFirst::Gone => {}
                    FoundFirst::Stranger => return Ok(None),
                    FoundFirst::Contender(contender) => return Ok(Some(*contender)),
                }
            }
        };
        self.session().core().query(self.path(), query).await
    }

    /// Follows who is the first from now on.
    #[must_use]
    pub fn watch_first(&self) -> FirstWatcher {
        FirstWatcher {
            lock: self.clone(),
            reported: None,
            watched: None,
            pause: PAUSE_MIN,
        }
    }

    async fn read(&self, nodes: &dyn Nodes, name: String) -> Result<FoundFirst, NodesError> {
        if !contends(self.kind(), &name) {
            return Ok(FoundFirst::Stranger);
        }
        let path = self.target.lock.node_path(&name);
        let read = retry::persist(|| nodes.read(&path)).await?;
        Ok(match read {
            Some((data, stat)) => FoundFirst::Contender(Box::new(Queued {
                participant: Participant::new(path, data, &stat),
                token: FencingToken::new(stat.czxid),
                is_first: true,
            })),
            None => FoundFirst::Gone,
        })
    }
}

/// What a name of a queue turned out to be.
enum FoundFirst {
    Contender(Box<Queued>),
    /// A node of no contender, which contenders do not pass.
    Stranger,
    /// Deleted between the list and the read.
    Gone,
}

/// The contenders among these names, and what is ahead of them, in the order of admission.
fn queue(
    kind: LockKind,
    names: Result<Vec<String>, NodesError>,
) -> Result<Vec<String>, NodesError> {
    let mut names = match names {
        Err(NodesError::NoNode) => Vec::new(),
        names => names?,
    };
    names.retain(|name| contends(kind, name) || order::precedes_newcomers(kind, name));
    order::sort(kind, &mut names);
    Ok(names)
}

fn contends(kind: LockKind, name: &str) -> bool {
    node_name::kind(name).is_some_and(|it| it.queue() == kind.queue())
}

/// Follows who is the first in a queue. Keeps the session open.
#[doc(hidden)]
pub struct FirstWatcher {
    lock: LockInternals,
    /// The token of the first that was reported last, if anything was reported.
    reported: Option<Option<FencingToken>>,
    watched: Option<WatchedFirst>,
    pause: Duration,
}

impl FirstWatcher {
    /// Waits until another contender is the first than was reported last, or none is. The first
    /// call returns who is the first now. Goes on over reconnects and the end of the store's
    /// session.
    ///
    /// # Errors
    /// [`QueryError`], and only if the session is closed or the store refuses for good. In
    /// an outage it waits.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping the future.
    pub async fn changed(&mut self) -> Result<Option<Queued>, QueryError> {
        // Ends with a change, or with the session.
        loop {
            if let Some(watched) = &mut self.watched {
                (&mut watched.over).await;
                // No await in between: what is over must not be polled again.
                self.watched = None;
            }
            let first = self.look().await?;
            let token = first.as_ref().map(|first| first.token);
            // A term has one token: a candidate may lead twice in a row, and its data may change.
            if self.reported != Some(token) {
                self.reported = Some(token);
                return Ok(first);
            }
        }
    }

    /// Finds the first, and watches it.
    async fn look(&mut self) -> Result<Option<Queued>, QueryError> {
        let path = self.lock.path().to_owned();
        let mut backoff = Backoff::default();
        // Ends with an answer, or with the session.
        loop {
            let core = self.lock.session().core();
            let epoch = core.open_epoch(&path).await.map_err(|_| {
                let path = path.clone();
                QueryError::SessionClosed { path }
            })?;
            let looked = tokio::select! {
                biased;
                _ = epoch.ended() => Err(NodesError::SessionEnded),
                looked = look(&self.lock, &epoch, self.pause) => looked,
            };
            match looked {
                Ok((first, watched)) => {
                    self.watched = Some(watched);
                    self.pause = match first {
                        Some(_) => PAUSE_MIN,
                        None => (self.pause * 2).min(PAUSE_MAX),
                    };
                    return Ok(first);
                }
                Err(error) if error.is_lasting() => {
                    return Err(QueryError::failed(&path, error));
                }
                Err(_) => backoff.wait().await,
            }
        }
    }
}

impl fmt::Debug for FirstWatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FirstWatcher")
            .field("path", &self.lock.path())
            .field("reported", &self.reported)
            .finish_non_exhaustive()
    }
}

/// Finds the first, and what will tell that it is not any more.
async fn look(
    lock: &LockInternals,
    epoch: &Arc<Epoch>,
    pause: Duration,
) -> Result<(Option<Queued>, WatchedFirst), NodesError> {
    // Before any request: what is seen over this connection is not known over the next one.
    let link = epoch.link();
    let nodes = epoch.nodes()?;
    // Ends with a first that is there, or with none.
    loop {
        let names = retry::persist(|| nodes.list(lock.path())).await;
        let first = queue(lock.kind(), names)?.into_iter().next();
        let Some(name) = first.filter(|it| contends(lock.kind(), it)) else {
            return Ok((None, WatchedFirst::new(epoch, link, sleep(pause).boxed())));
        };
        let path = lock.target.lock.node_path(&name);
        // Gone since the list: another is the first.
        let Some((data, stat, watch)) = retry::persist(|| nodes.watch(&path)).await? else {
            continue;
        };
        let first = Queued {
            participant: Participant::new(path, data, &stat),
            token: FencingToken::new(stat.czxid),
            is_first: true,
        };
        return Ok((Some(first), WatchedFirst::new(epoch, link, changed(watch))));
    }
}

fn changed(watch: NodeWatch) -> BoxFuture<'static, ()> {
    watch.map(drop).boxed()
}

/// What was seen, as long as it is known.
struct WatchedFirst {
    /// Completes when it is not known any more.
    over: BoxFuture<'static, ()>,
}

impl WatchedFirst {
    fn new(epoch: &Arc<Epoch>, link: Link, changed: BoxFuture<'static, ()>) -> Self {
        let epoch = Arc::clone(epoch);
        let over = async move {
            tokio::select! {
                biased;
                () = changed => {}
                () = reconnected(&epoch, link) => {}
                _ = epoch.ended() => {}
            }
        };
        Self { over: over.boxed() }
    }
}

/// Completes when another connection is up than at first.
async fn reconnected(epoch: &Epoch, first: Link) {
    let mut changes = epoch.link_changes();
    loop {
        let link = epoch.link();
        if matches!(link, Link::Connected(_)) && link != first {
            return;
        }
        if changes.next().await.is_none() {
            // The task of the epoch is gone, and with it the epoch.
            return epoch.ended().map(drop).await;
        }
    }
}
