//! Where a service begins.

use recipes_core::{Error, Session};

use crate::builder::EtcdBuilder;

/// etcd as the store of locks.
///
/// A lock's path, behind the prefix of the address, is also the name under which Go's `concurrency.NewMutex` and
/// `etcdctl lock` take it: all wait in one queue.
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), recipes_core::Error> {
/// # use recipes_etcd as lock_recipes;
/// use lock_recipes::Etcd;
///
/// let session = Etcd::connect("etcd://etcd1:2379,etcd2:2379,etcd3:2379").await?;
/// // ... take locks ...
/// session.close().await;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub enum Etcd {}

impl Etcd {
    /// What the addresses of etcd begin with, in front of `://`.
    #[doc(hidden)]
    pub const SCHEMES: &[&str] = &["etcd", "etcds"];

    /// Opens a session with default options on the members of a URL. See
    /// [`EtcdBuilder::connect`] for its forms.
    ///
    /// # Errors
    /// As [`EtcdBuilder::connect`].
    pub async fn connect(url: &str) -> Result<Session, Error> {
        Self::builder().connect(url).await
    }

    /// Starts with default options.
    pub fn builder() -> EtcdBuilder {
        EtcdBuilder::default()
    }
}
