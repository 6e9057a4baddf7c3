//! What a worker requests: which lock, how long it waits, and when the future is dropped.

use std::task::Poll;
use std::time::Duration;

use futures::future::poll_fn;
use lock_recipes::{
    DistributedLock, Error, InterProcessMutex, InterProcessReadWriteLock, LockKind, LockOptions,
    Member, MultiLock, Owner, Session, WriteGuard,
};
use tokio::time::timeout;

use super::Held;
use crate::plan::Plan;

#[derive(Clone, Debug)]
pub(super) enum Want {
    Mutex(&'static str),
    Read(&'static str),
    Write(&'static str),
    Set(Vec<(&'static str, LockKind)>),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    Forever,
    AtMost(Duration),
    Try,
}

/// When a future is dropped.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cut {
    Never,
    Polls(u32),
    After(Duration),
}

pub(super) fn options(plan: &Plan) -> LockOptions {
    LockOptions::new()
        .local_handoffs(plan.local_handoffs)
        .shared_reads(plan.shared_reads)
}

/// A random lock of a path.
pub(crate) fn lock_of(
    session: &Session,
    index: usize,
    path: &'static str,
    plan: &Plan,
) -> Box<dyn DistributedLock> {
    let options = options(plan);
    match plan.reads_and_writes(path, index) {
        true => {
            let lock = InterProcessReadWriteLock::with_options(session, path, &options);
            Box::new(lock.unwrap().read_lock())
        }
        false => Box::new(InterProcessMutex::with_options(session, path, &options).unwrap()),
    }
}

/// Drops a future before it is done. `None` if it was dropped.
pub(super) async fn cut_short<F: Future>(future: F, cut: Cut) -> Option<F::Output> {
    let mut future = Box::pin(future);
    match cut {
        Cut::Never => Some(future.await),
        Cut::After(pause) => timeout(pause, future).await.ok(),
        Cut::Polls(polls) => {
            let mut left = polls;
            poll_fn(|cx| {
                if left == 0 {
                    return Poll::Ready(None);
                }
                left -= 1;
                future.as_mut().poll(cx).map(Some)
            })
            .await
        }
    }
}

pub(super) async fn ask(
    session: &Session,
    want: &Want,
    options: &LockOptions,
    owner: Option<&Owner>,
    wait: Wait,
) -> Result<Option<Held>, Error> {
    let read_write =
        |path| InterProcessReadWriteLock::with_options(session, path, options).unwrap();
    let mutex = |path| InterProcessMutex::with_options(session, path, options).unwrap();
    let lock: Box<dyn DistributedLock> = match want {
        Want::Mutex(path) => Box::new(mutex(path)),
        Want::Read(path) => Box::new(read_write(path).read_lock()),
        Want::Write(path) => {
            let writer = ask_writer(&read_write(path), owner, wait).await?;
            return Ok(writer.map(Held::Write));
        }
        Want::Set(members) => {
            let members = members.iter().map(|(path, kind)| match kind {
                LockKind::Read => Member::read(*path),
                LockKind::Write => Member::write(*path),
                _ => Member::mutex(*path),
            });
            let members = members.map(|member| member.options(options.clone()));
            Box::new(MultiLock::new(session, members).unwrap())
        }
    };
    let guard = match (wait, owner) {
        (Wait::Forever, None) => lock.acquire().await.map(Some),
        (Wait::Forever, Some(owner)) => lock.acquire().owner(owner).await.map(Some),
        (Wait::AtMost(limit), None) => lock.acquire().timeout(limit).await.map(Some),
        (Wait::AtMost(limit), Some(owner)) => {
            lock.acquire().owner(owner).timeout(limit).await.map(Some)
        }
        (Wait::Try, None) => lock.try_acquire().await,
        (Wait::Try, Some(owner)) => lock.try_acquire().owner(owner).await,
    };
    Ok(guard?.map(Held::Any))
}

async fn ask_writer(
    lock: &InterProcessReadWriteLock,
    owner: Option<&Owner>,
    wait: Wait,
) -> Result<Option<WriteGuard>, Error> {
    match (wait, owner) {
        (Wait::Forever, None) => lock.write().await.map(Some),
        (Wait::Forever, Some(owner)) => lock.write().owner(owner).await.map(Some),
        (Wait::AtMost(limit), None) => lock.write().timeout(limit).await.map(Some),
        (Wait::AtMost(limit), Some(owner)) => {
            lock.write().owner(owner).timeout(limit).await.map(Some)
        }
        (Wait::Try, None) => lock.try_write().await,
        (Wait::Try, Some(owner)) => lock.try_write().owner(owner).await,
    }
}
