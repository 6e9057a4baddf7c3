//! The server, or the Sentinels that name it, and where sessions come from.

use std::error::Error as StdError;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{self, BoxFuture};
use recipes_core::{Error, Nodes, NodesError, Session, Store, Traits};
use recipes_keeper::{Sessions, Terms};

use crate::builder::RedisBuilder;
use crate::checks::RedisRefusal;

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
};

/// Redis as the store of locks.
///
/// What it promises depends on the server: see
/// [`Session::guarantee`](recipes_core::Session::guarantee).
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), recipes_core::Error> {
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
    sessions: Sessions,
    /// The primary may be another in a moment.
    may_move: bool,
}

impl Redis {
    /// Opens a session with default options on the server of a URL. See
    /// [`RedisBuilder::connect`] for its forms.
    ///
    /// # Errors
    /// As [`RedisBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Session, Error> {
        Self::builder().connect(url).await
    }

    /// Starts with default options.
    pub fn builder() -> RedisBuilder {
        RedisBuilder::default()
    }

    pub(crate) fn new(terms: Terms, may_move: bool) -> Self {
        Self {
            sessions: Sessions::new(terms),
            may_move,
        }
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
            let opened = self.sessions.open(&secret).await;
            opened.map_err(|error| lasting(error, self.may_move || self.sessions.was_opened()))
        };
        opened.boxed()
    }

    fn diagnose(&self) -> BoxFuture<'_, Option<Arc<dyn StdError + Send + Sync>>> {
        future::ready(self.sessions.diagnose()).boxed()
    }
}
