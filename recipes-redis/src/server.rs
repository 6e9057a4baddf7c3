//! The server, or the Sentinels that name it, and where sessions come from.

use std::error::Error as StdError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use recipes_core::{ConnectError, Nodes, NodesError, Session, Store, Traits};

use crate::builder::RedisBuilder;
use crate::checks::RedisRefusal;
use crate::client::RedisNodes;
use crate::keeper::Keeper;
use crate::kept::Terms;
use crate::wire::Wire;

/// How long it may take to find out why there is no session.
const DIAGNOSIS_MAX: Duration = Duration::from_secs(3);

/// What the session has to know about Redis.
#[doc(hidden)]
pub const TRAITS: Traits = Traits {
    // The library counts microseconds in numbers of 53 bits; this is 24 days, as with ZooKeeper.
    session_timeout_max: Duration::from_millis(0x7fff_ffff),
    reopens: true,
    closes: true,
    pings_rarely: false,
    // An acquire's create and listing are one request, so a watch on a directory saves nothing.
    watches_directories: false,
    watch_bytes: usize::MAX,
    path_prefix_bytes: 0,
};

/// Redis as the store of locks.
///
/// What it promises depends on the server: see
/// [`Session::guarantee`](recipes_core::Session::guarantee).
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), recipes_core::ConnectError> {
/// use recipes_redis::Redis;
///
/// let session = Redis::connect("redis://cache:6379/0").await?;
/// // ... take locks ...
/// session.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Redis {
    terms: Terms,
    /// Why no session was opened.
    failed: Mutex<Option<NodesError>>,
    /// There was a session, so the server is not new.
    was_opened: AtomicBool,
}

impl Redis {
    /// Opens a session with default options on the server of a URL. See
    /// [`RedisBuilder::connect`] for its forms.
    ///
    /// # Errors
    /// As [`RedisBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Session, ConnectError> {
        Self::builder().connect(url).await
    }

    /// Starts with default options.
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }

    pub(crate) fn new(terms: Terms) -> Self {
        Self {
            terms,
            failed: Mutex::default(),
            was_opened: AtomicBool::default(),
        }
    }

    fn failed(&self) -> MutexGuard<'_, Option<NodesError>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where the primary may be another in a moment, a replica that answers is no reason to give up.
fn lasting(error: NodesError, may_move: bool) -> NodesError {
    match error {
        NodesError::Refused(source) if may_move => match source.downcast_ref::<RedisRefusal>() {
            Some(RedisRefusal::Replica { .. }) => NodesError::Unknown(source),
            _ => NodesError::Refused(source),
        },
        error => error,
    }
}

impl Store for Redis {
    fn traits(&self) -> Traits {
        TRAITS
    }

    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Nodes>, NodesError>> {
        let opened = async {
            let secret = self.new_uuid().simple().to_string();
            let is_first = !self.was_opened.load(Ordering::Relaxed);
            match Keeper::open(self.terms.clone(), is_first, &secret).await {
                Ok((kept, used)) => {
                    self.was_opened.store(true, Ordering::Relaxed);
                    Ok(Arc::new(RedisNodes::new(kept, used)) as Arc<dyn Nodes>)
                }
                Err(error) => {
                    *self.failed() = Some(error.clone());
                    let is_again = self.was_opened.load(Ordering::Relaxed);
                    Err(lasting(
                        error,
                        is_again || self.terms.route.servers.may_move(),
                    ))
                }
            }
        };
        opened.boxed()
    }

    fn diagnose(&self) -> BoxFuture<'_, Option<Arc<dyn StdError + Send + Sync>>> {
        let diagnosed = async {
            let failed = self.failed().take();
            let error = match failed {
                Some(error) => error,
                // Nobody has tried yet.
                None => {
                    let mut route = self.terms.route.clone();
                    route.connect_timeout = DIAGNOSIS_MAX.min(route.connect_timeout);
                    Wire::open(&route, &Arc::default(), 1).await.err()?
                }
            };
            Some(match error {
                NodesError::Unknown(source) => source,
                error => Arc::new(error) as Arc<dyn StdError + Send + Sync>,
            })
        };
        diagnosed.boxed()
    }
}
