//! Where a service begins.

use recipes_core::{Error, Session};

use crate::builder::RedisBuilder;

/// Redis as the store of locks.
///
/// What it promises depends on the server: see
/// [`Session::guarantee`](recipes_core::Session::guarantee).
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), recipes_core::Error> {
/// # use recipes_redis as lock_recipes;
/// use lock_recipes::Redis;
///
/// let session = Redis::connect("redis://cache:6379/0").await?;
/// // ... take locks ...
/// session.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub enum Redis {}

impl Redis {
    /// What the addresses of Redis begin with, in front of `://`.
    #[doc(hidden)]
    pub const SCHEMES: &[&str] = &[
        "redis",
        "rediss",
        "redis+sentinel",
        "redis+cluster",
        "rediss+cluster",
        "redis+unix",
    ];

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
}
