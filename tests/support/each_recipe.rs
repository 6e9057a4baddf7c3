//! Every recipe, as a contender of any of them: for tests of paths that are shared.

use std::time::Duration;

use lock_recipes::{
    Acquire, AcquireError, ElectionLayout, Error, InterProcessMutex, InterProcessReadWriteLock,
    InterProcessSemaphore, InterProcessSemaphoreMutex, LeaderElection, LockGuard, LockKind,
    Session, TryAcquire,
};

const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recipe {
    Mutex,
    Selector,
    Reader,
    Writer,
    Semaphore,
    SemaphoreMutex,
    Latch,
}

pub(crate) const RECIPES: [Recipe; 7] = [
    Recipe::Mutex,
    Recipe::Selector,
    Recipe::Reader,
    Recipe::Writer,
    Recipe::Semaphore,
    Recipe::SemaphoreMutex,
    Recipe::Latch,
];

/// What a second contender meets on the path of a first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meets {
    Refusal,
    Exclusion,
    Company,
}

/// The table of pairs. A semaphore mutex is a semaphore with one permit; that of the test has two.
pub(crate) fn meets(first: Recipe, second: Recipe) -> Meets {
    use Recipe::{Latch, Mutex, Reader, Selector, Semaphore, SemaphoreMutex, Writer};
    match (first, second) {
        (Reader, Reader) | (Semaphore | SemaphoreMutex, Semaphore) => Meets::Company,
        (Mutex | Selector, Mutex | Selector)
        | (Reader | Writer, Writer)
        | (Writer, Reader)
        | (Semaphore | SemaphoreMutex, SemaphoreMutex)
        | (Latch, Latch) => Meets::Exclusion,
        _ => Meets::Refusal,
    }
}

impl Recipe {
    /// What a refusal because of its nodes names.
    pub(crate) fn kind(self) -> LockKind {
        match self {
            Self::Mutex | Self::Selector => LockKind::Mutex,
            Self::Reader => LockKind::Read,
            Self::Writer => LockKind::Write,
            Self::Semaphore | Self::SemaphoreMutex => LockKind::Permit,
            Self::Latch => LockKind::Latch,
        }
    }

    /// Acquires within this time, or else only tries. `None` if a try finds it busy. A store that has not answered
    /// by then, as on a busy machine, has said nothing of the lock, and is asked again with more time.
    pub(crate) async fn ask(
        self,
        session: &Session,
        path: &str,
        mut patience: Option<Duration>,
    ) -> Result<Option<LockGuard>, Error> {
        loop {
            let asked = self.ask_once(session, path, patience).await;
            match (&asked, &mut patience) {
                (Err(late @ Error::Acquire(_)), Some(given))
                    if late.is_transient() && *given < PATIENCE =>
                {
                    *given *= 4;
                }
                _ => return asked,
            }
        }
    }

    async fn ask_once(
        self,
        session: &Session,
        path: &str,
        patience: Option<Duration>,
    ) -> Result<Option<LockGuard>, Error> {
        let election =
            |layout| LeaderElection::with_layout(session, path, "somebody", layout).unwrap();
        let read_write = || InterProcessReadWriteLock::new(session, path).unwrap();
        match self {
            Self::Mutex => {
                let it = InterProcessMutex::new(session, path).unwrap();
                ask(it.acquire(), it.try_acquire(), patience).await
            }
            Self::Selector => {
                let it = election(ElectionLayout::LeaderSelector);
                ask(it.campaign(), it.try_campaign(), patience).await
            }
            Self::Latch => {
                let it = election(ElectionLayout::LeaderLatch);
                ask(it.campaign(), it.try_campaign(), patience).await
            }
            Self::Reader => {
                let it = read_write();
                ask(it.read(), it.try_read(), patience).await
            }
            Self::Writer => {
                let it = read_write();
                ask(it.write(), it.try_write(), patience).await
            }
            Self::Semaphore => {
                let it = InterProcessSemaphore::new(session, path, 2).unwrap();
                ask(it.acquire(), it.try_acquire(), patience).await
            }
            Self::SemaphoreMutex => {
                let it = InterProcessSemaphoreMutex::new(session, path).unwrap();
                ask(it.acquire(), it.try_acquire(), patience).await
            }
        }
    }

    pub(crate) async fn hold(self, session: &Session, path: &str) -> LockGuard {
        let held = self.ask(session, path, Some(PATIENCE)).await;
        held.unwrap().unwrap()
    }
}

async fn ask<G: Into<LockGuard> + Send + 'static>(
    acquire: Acquire<G>,
    attempt: TryAcquire<G>,
    patience: Option<Duration>,
) -> Result<Option<LockGuard>, Error> {
    match patience {
        Some(patience) => Ok(Some(acquire.timeout(patience).await?.into())),
        None => Ok(attempt.await?.map(Into::into)),
    }
}

pub(crate) fn assert_refused(refusal: &Error, first: Recipe, path: &str) {
    let Error::Acquire(AcquireError::RecipeDiffers { node, found, .. }) = refusal else {
        panic!("{refusal}");
    };
    assert_eq!(*found, first.kind(), "{refusal}");
    assert!(node.starts_with(&format!("{path}/")), "{refusal}");
    assert!(!refusal.is_busy() && !refusal.is_transient());
    assert!(
        refusal.to_string().contains("use another path"),
        "{refusal}"
    );
}
