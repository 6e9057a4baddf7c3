//! The least that a hand-off by `NOTIFY` takes: who releases deletes its row and rings the next, with one
//! statement and one commit.
//!
//! It is no lock. Nobody looks whether a session lives, and the queue is in this process.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use futures::stream;
use tokio::sync::mpsc;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use super::Postgresql;
use crate::loops::Contender;
use crate::side::{InProcess, Lock, Locks, Side};
use crate::sql::Connection;
use crate::work::{Place, Work};

/// The heading of its column.
pub(super) const LEAST: &str = "least by NOTIFY";

/// With a key as that of a node of a lock.
pub(super) const SCHEMA: &str = "\
CREATE TABLE least (
    dir text COLLATE \"C\" NOT NULL, name text COLLATE \"C\" NOT NULL, PRIMARY KEY (dir, name));";

const ENTER: &str = "INSERT INTO least VALUES ('/bench/lock', $1)";

/// Rings the session of this number, if it is not ''.
const LEAVE: &str = "\
WITH gone AS (DELETE FROM least WHERE dir = '/bench/lock' AND name = $1 RETURNING 1)
SELECT pg_notify('least_' || $2, '') FROM gone WHERE $2 <> ''";

pub(super) fn side() -> Box<dyn Side> {
    InProcess::boxed(LEAST, Least::default())
}

#[derive(Default)]
struct Least {
    sessions: Vec<Arc<Session>>,
    queue: Arc<Mutex<VecDeque<usize>>>,
}

struct Session {
    requests: Postgresql,
    /// Rings, one for each grant that was waited for.
    rings: tokio::sync::Mutex<mpsc::UnboundedReceiver<()>>,
    /// The connection over which they come.
    listening: Client,
    number: usize,
}

/// A session listens as long as it takes part: every `NOTIFY` wakes all that listen, and other sides would pay for it.
struct Listens(Arc<Session>);

impl Listens {
    async fn begin(session: &Arc<Session>) -> Self {
        let listen = format!("LISTEN least_{}", session.number);
        session.listening.batch_execute(&listen).await.unwrap();
        Self(Arc::clone(session))
    }
}

impl Drop for Listens {
    fn drop(&mut self) {
        let session = Arc::clone(&self.0);
        tokio::spawn(async move { session.listening.batch_execute("UNLISTEN *").await });
    }
}

impl Session {
    async fn open(number: usize, url: &str) -> Self {
        let (listening, mut connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        let (ring, rings) = mpsc::unbounded_channel();
        // It ends when the client is dropped.
        tokio::spawn(async move {
            let mut messages = stream::poll_fn(move |cx| connection.poll_message(cx));
            while let Some(Ok(message)) = messages.next().await {
                if let AsyncMessage::Notification(_) = message {
                    ring.send(()).ok();
                }
            }
        });
        Self {
            requests: Postgresql::open(url).await,
            rings: tokio::sync::Mutex::new(rings),
            listening,
            number,
        }
    }
}

impl Locks for Least {
    type Lock = Turn;

    fn does(&self, work: Work) -> bool {
        matches!(work, Work::Paced { .. } | Work::Saturated { .. })
    }

    async fn lock(&mut self, client: usize, _name: &str, place: &Place) -> Turn {
        while self.sessions.len() <= client {
            let opened = Session::open(self.sessions.len(), &place.url).await;
            self.sessions.push(Arc::new(opened));
        }
        Turn {
            listens: Arc::new(Listens::begin(&self.sessions[client]).await),
            queue: Arc::clone(&self.queue),
        }
    }

    async fn close(self) {}
}

#[derive(Clone)]
struct Turn {
    listens: Arc<Listens>,
    queue: Arc<Mutex<VecDeque<usize>>>,
}

impl Contender for Turn {
    /// The name of its row, as long as that of a node.
    type Held = String;

    async fn take(&mut self) -> String {
        let session = &self.listens.0;
        let name = format!("_c_{:032x}-lock-{:010}", fastrand::u128(..), session.number);
        assert!(session.requests.agrees(ENTER, &name, "").await);
        let is_first = {
            let mut queue = self.queue.lock().unwrap();
            queue.push_back(session.number);
            queue.len() == 1
        };
        if !is_first {
            let rung = session.rings.lock().await.recv().await;
            rung.expect("a connection");
        }
        name
    }

    async fn give_back(&mut self, name: String) {
        let session = &self.listens.0;
        let next = {
            let mut queue = self.queue.lock().unwrap();
            assert_eq!(queue.pop_front(), Some(session.number));
            queue.front().map(usize::to_string)
        };
        let has_rung = session
            .requests
            .agrees(LEAVE, &name, next.as_deref().unwrap_or_default())
            .await;
        assert_eq!(has_rung, next.is_some());
    }
}

impl Lock for Turn {
    async fn is_refused(&self) -> bool {
        unreachable!("it does not take part in this")
    }
}
