//! A place on a server: all of it, or a part that no other test sees.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, OnceCell};
use tokio::time::Instant;

/// An operator's session is used for this long at most. That is less than its timeout, so it need
/// not be kept alive.
const OPERATOR_MAX: Duration = Duration::from_secs(5);

/// A place on a server. It dereferences to the server.
#[derive(Debug)]
pub struct Place<S, O: ?Sized> {
    server: Arc<S>,
    /// Nodes of the place are below this name, or in keys and tables that begin so. None: the whole
    /// server.
    name: Option<String>,
    /// What acts as the operator of the place, and since when.
    operator: Mutex<Option<(Instant, Arc<O>)>>,
}

impl<S, O: ?Sized> Place<S, O> {
    fn new(server: Arc<S>, name: Option<String>) -> Self {
        Self {
            server,
            name,
            operator: Mutex::default(),
        }
    }

    /// A place of the test's own on this server, which is started for the first one.
    pub(super) async fn on(shared: &'static Shared<S>, start: impl AsyncFnOnce() -> S) -> Self {
        let server = shared
            .server
            .get_or_init(async || Arc::new(start().await))
            .await;
        let number = shared.places.fetch_add(1, Ordering::Relaxed);
        Self::new(Arc::clone(server), Some(format!("place{number}")))
    }

    /// The server, to halt it or to configure it.
    ///
    /// # Panics
    /// If other tests use it, too.
    pub fn own_server(&self) -> &S {
        assert!(
            self.name.is_none(),
            "other tests use this server: start one with `own::`"
        );
        &self.server
    }

    pub(super) fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The operator of the place. That of a shared server is used again for some seconds; on a server
    /// of the test's own, each time is the first, as servers end and sessions are counted there.
    pub(super) async fn operator<E>(
        &self,
        connect: impl AsyncFnOnce() -> Result<Arc<O>, E>,
    ) -> Result<Arc<O>, E> {
        if self.name.is_none() {
            return connect().await;
        }
        let mut operator = self.operator.lock().await;
        match &*operator {
            Some((since, operator)) if since.elapsed() < OPERATOR_MAX => Ok(Arc::clone(operator)),
            _ => {
                let connected = connect().await?;
                *operator = Some((Instant::now(), Arc::clone(&connected)));
                Ok(connected)
            }
        }
    }
}

/// All of a server.
impl<S, O: ?Sized> From<S> for Place<S, O> {
    fn from(server: S) -> Self {
        Self::new(Arc::new(server), None)
    }
}

impl<S, O: ?Sized> Deref for Place<S, O> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.server
    }
}

/// A server that the tests of a program share. It ends with the program.
#[derive(Debug)]
pub(super) struct Shared<S> {
    server: OnceCell<Arc<S>>,
    places: AtomicUsize,
}

impl<S> Shared<S> {
    pub(super) const fn new() -> Self {
        Self {
            server: OnceCell::const_new(),
            places: AtomicUsize::new(0),
        }
    }
}
