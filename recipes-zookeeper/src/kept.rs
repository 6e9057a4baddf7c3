//! A session over one wire after the other: who sends requests, and who waits for news.

use std::collections::BTreeMap;
use std::fmt;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{self, BoxFuture};
use recipes_core::internal::log::STORE;
use recipes_core::{Connection, EndReason, NodeEvent, NodeStat, Reliant};
use tokio::sync::{oneshot, watch};
use tracing::warn;

use crate::watch::{Entry, News, Watch};
use crate::wire::{Up, Watcher};

/// A request that waits for a connection.
type Unsent = Box<dyn FnOnce(&Up) + Send>;

enum Way {
    Up(Up),
    Down(Vec<Unsent>),
    Over,
}

struct Line {
    way: Way,
    watches: BTreeMap<u64, Entry>,
    last_watch: u64,
}

/// What keeps a session, and those who use it.
pub(crate) struct Kept {
    pub(crate) id: i64,
    pub(crate) link: watch::Sender<Connection>,
    line: Mutex<Line>,
    /// The least that a server has granted.
    timeout: Mutex<Duration>,
    reliant: OnceLock<Weak<dyn Reliant>>,
}

/// The transactions that created a node and last changed its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) czxid: i64,
    pub(crate) mzxid: i64,
}

impl From<&NodeStat> for Seen {
    fn from(stat: &NodeStat) -> Self {
        Self {
            czxid: stat.czxid,
            mzxid: stat.mzxid,
        }
    }
}

/// What has become of a watch over another connection.
pub(crate) enum Again {
    Happened(NodeEvent),
    Set(Watcher),
}

impl Kept {
    pub(crate) fn new(up: Up) -> Self {
        let (link, _) = watch::channel(Connection::Connected);
        Self {
            id: up.client.session_id().0,
            link,
            timeout: Mutex::new(up.client.session_timeout()),
            line: Mutex::new(Line {
                way: Way::Up(up),
                watches: BTreeMap::new(),
                last_watch: 0,
            }),
            reliant: OnceLock::new(),
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request, now or as soon as there is a connection, in the order of the calls. `None` if the
    /// session is over.
    pub(crate) fn ask<F>(
        &self,
        send: impl FnOnce(&Up) -> F + Send + 'static,
    ) -> BoxFuture<'static, Option<F::Output>>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        match &mut self.line().way {
            Way::Up(up) => sent(send(up)).map(Some).boxed(),
            Way::Down(unsent) => {
                let (sender, receiver) = oneshot::channel();
                // Whoever no longer waits does not want the answer; the request is sent.
                unsent.push(Box::new(move |up| drop(sender.send(sent(send(up))))));
                let answer = async move { Some(receiver.await.ok()?.await) };
                answer.boxed()
            }
            Way::Over => future::ready(None).boxed(),
        }
    }

    /// A watch that was set on a node which looked like this. `None` if its connection is lost.
    pub(crate) fn watch(
        self: &Arc<Self>,
        path: String,
        seen: Seen,
        watcher: Watcher,
    ) -> Option<Watch> {
        let mut line = self.line();
        match &line.way {
            Way::Up(up) if watcher.is_of(&up.open) => {}
            _ => return None,
        }
        line.last_watch += 1;
        let number = line.last_watch;
        let (news, receiver) = oneshot::channel();
        line.watches.insert(number, Entry { path, seen, news });
        Some(Watch::new(Arc::clone(self), number, watcher, receiver))
    }

    pub(crate) fn unwatch(&self, number: u64) {
        let entry = self.line().watches.remove(&number);
        drop(entry);
    }

    /// What is watched, in the order in which it was asked for.
    pub(crate) fn watched(&self) -> Vec<(u64, String, Seen)> {
        let line = self.line();
        let watched = line.watches.iter();
        let watched = watched.map(|(number, it)| (*number, it.path.clone(), it.seen));
        watched.collect()
    }

    /// The session goes on over another connection: first this is known, then what has happened to
    /// watches, then what waits is sent.
    pub(crate) fn up(&self, up: Up, watches: Vec<(u64, Again)>) {
        let mut line = self.line();
        let Line {
            way,
            watches: entries,
            ..
        } = &mut *line;
        let Way::Down(unsent) = mem::replace(way, Way::Over) else {
            return;
        };
        self.link.send_replace(Connection::Connected);
        for (number, again) in watches {
            // Nobody may wait for it any more.
            let Some(entry) = entries.remove(&number) else {
                continue;
            };
            let news = match again {
                Again::Happened(event) => News::Event(event),
                Again::Set(watcher) => {
                    let (news, receiver) = oneshot::channel();
                    let Entry { path, seen, .. } = &entry;
                    let (path, seen) = (path.clone(), *seen);
                    entries.insert(number, Entry { path, seen, news });
                    News::Watcher(watcher, receiver)
                }
            };
            drop(entry.news.send(news));
        }
        for send in unsent {
            send(&up);
        }
        *way = Way::Up(up);
    }

    /// The connection is lost. What is asked for from now on waits for another. The client that is
    /// returned must be dropped after its wire, which would close the session.
    pub(crate) fn down(&self) -> Option<Up> {
        let up = self.take();
        self.link.send_replace(Connection::Disconnected);
        up
    }

    /// Takes the connection away, to close the session over it.
    pub(crate) fn take(&self) -> Option<Up> {
        match mem::replace(&mut self.line().way, Way::Down(Vec::new())) {
            Way::Up(up) => Some(up),
            Way::Down(_) | Way::Over => None,
        }
    }

    /// The session is over: watches are told, and then this is known. The first reason stays.
    pub(crate) fn end(&self, reason: EndReason) {
        let mut line = self.line();
        let way = mem::replace(&mut line.way, Way::Over);
        let watches = mem::take(&mut line.watches);
        // Not under the lock: futures that they wake may ask for something.
        drop(line);
        drop((way, watches));
        self.link.send_if_modified(|link| {
            let is_new = !matches!(link, Connection::Ended(_));
            if is_new {
                *link = Connection::Ended(reason);
            }
            is_new
        });
    }

    /// The session timeout that counts.
    pub(crate) fn timeout(&self) -> Duration {
        *self.timeout.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on a server may end the session after this time of silence.
    pub(crate) fn counts(&self, granted: Duration) {
        let mut timeout = self.timeout.lock().unwrap_or_else(PoisonError::into_inner);
        if granted >= *timeout {
            return;
        }
        let before = mem::replace(&mut *timeout, granted);
        drop(timeout);
        warn!(
            target: STORE,
            session = format_args!("{:#x}", self.id),
            before_ms = before.as_millis(),
            granted_ms = granted.as_millis(),
            "a server grants a shorter session timeout than before: locks are trusted for less time from now on"
        );
        if let Some(reliant) = self.reliant() {
            reliant.shortened(granted);
        }
    }

    pub(crate) fn relied_on_by(&self, reliant: Weak<dyn Reliant>) {
        drop(self.reliant.set(reliant));
        if let Some(reliant) = self.reliant() {
            reliant.shortened(self.timeout());
        }
    }

    /// Whether a lock is held.
    pub(crate) fn is_held(&self) -> bool {
        self.reliant().is_some_and(|it| it.is_held())
    }

    fn reliant(&self) -> Option<Arc<dyn Reliant>> {
        self.reliant.get()?.upgrade()
    }
}

/// Polls a future once, at which a request is sent.
pub(crate) fn sent<F>(future: F) -> BoxFuture<'static, F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    let mut future = future.boxed();
    match future.poll_unpin(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => future::ready(output).boxed(),
        Poll::Pending => future,
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept")
            .field("id", &self.id)
            .field("link", &*self.link.borrow())
            .finish_non_exhaustive()
    }
}
