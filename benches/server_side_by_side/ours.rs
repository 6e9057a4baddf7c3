//! The side of this library.

use std::sync::Arc;
use std::time::Duration;

use futures::future::LocalBoxFuture;
use lock_recipes::{
    DistributedLock, InterProcessMutex, InterProcessReadWriteLock, LockGuard, LockOptions, Member,
    MultiLock, Session,
};

use super::loops::Contender;
use super::side::{InProcess, Lock, Locks, Side, TaskOf};
use super::work::{Place, SHARED, Work};

/// The heading of its column.
pub(crate) const OURS: &str = "ours";

/// So heartbeats are so rare that hardly any is counted.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(600);

/// Opens a session with [`SESSION_TIMEOUT`] on the server with this URL, which is new: nothing was
/// granted by a server before it.
pub(crate) type Open = fn(String) -> LocalBoxFuture<'static, Session>;

/// This library's locks, in sessions that are opened so.
pub(crate) fn ours(open: Open) -> Box<dyn Side> {
    let sessions = Vec::new();
    InProcess::boxed(OURS, Ours { open, sessions })
}

struct Ours {
    open: Open,
    sessions: Vec<Session>,
}

impl Ours {
    async fn session(&mut self, client: usize, place: &Place) -> &Session {
        while self.sessions.len() <= client {
            self.sessions.push((self.open)(place.url.clone()).await);
        }
        &self.sessions[client]
    }
}

impl Locks for Ours {
    type Lock = OneLock;

    fn does(&self, work: Work) -> bool {
        work != Work::RoundTrip
    }

    async fn lock(&mut self, client: usize, name: &str, place: &Place) -> OneLock {
        let session = self.session(client, place).await;
        let lock = InterProcessMutex::new(session, &path(name)).unwrap();
        OneLock(Arc::new(lock))
    }

    async fn pair(&mut self, task: TaskOf, place: &Place) -> [OneLock; 2] {
        let session = self.session(task.client, place).await;
        let shared = if task.shares { SHARED } else { Duration::ZERO };
        let options = LockOptions::new().shared_reads(shared);
        let path = path(&place.lock);
        let lock = InterProcessReadWriteLock::with_options(session, &path, &options).unwrap();
        [
            OneLock(Arc::new(lock.read_lock())),
            OneLock(Arc::new(lock.write_lock())),
        ]
    }

    async fn set(&mut self, members: usize, place: &Place) -> OneLock {
        let session = self.session(0, place).await;
        let path = path(&place.lock);
        let members = (0..members).map(|member| Member::mutex(format!("{path}/{member}")));
        OneLock(Arc::new(MultiLock::new(session, members).unwrap()))
    }

    async fn contenders(&mut self, place: &Place) -> usize {
        let session = self.session(0, place).await;
        let lock = InterProcessMutex::new(session, &path(&place.lock)).unwrap();
        lock.participants().await.unwrap().len()
    }

    async fn close(self) {
        for session in self.sessions {
            session.close().await;
        }
    }
}

fn path(name: &str) -> String {
    format!("/bench/{name}")
}

#[derive(Clone)]
struct OneLock(Arc<dyn DistributedLock>);

impl Lock for OneLock {
    async fn is_refused(&self) -> bool {
        self.0.try_acquire().await.unwrap().is_none()
    }
}

impl Contender for OneLock {
    type Held = LockGuard;

    async fn take(&mut self) -> LockGuard {
        self.0.acquire().await.unwrap()
    }

    async fn give_back(&mut self, held: LockGuard) {
        held.release().await.unwrap();
    }
}
