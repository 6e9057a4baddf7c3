//! Distributed locks on ZooKeeper for async Rust, shared safely with Apache Curator.
//!
//! ```no_run
//! use zookeeper_recipes::{InterProcessMutex, Session};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let session = Session::connect("zk1:2181,zk2:2181,zk3:2181").await?;
//! let orders = InterProcessMutex::new(&session, "/locks/orders")?;
//! let guard = orders.acquire().await?;
//! // ... one process at a time, with a token for the store: guard.fencing_token() ...
//! guard.release().await?;
//! session.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! Start with [`Session`] (a connection that outlives ZooKeeper sessions), then take a recipe:
//! [`InterProcessMutex`], [`InterProcessReadWriteLock`], [`MultiLock`] for several at once, or a
//! [`LockFactory`] that makes them by key. [`Owner`] says who re-enters. Guards are the proof of
//! holding; [`LockGuard`] is that of any lock, taken through [`DistributedLock`].
//!
//! [`inspect`] and [`scan`] show the locks of an ensemble, whoever takes them, and
//! [`WaitForGraph`] who waits for whom.
//!
//! # Features
//! - `testing`: module `testing`, doubles and real servers for the tests of your service.
//! - `tls`, `sasl-digest-md5`, `sasl-gssapi`: passed through to the ZooKeeper client.

mod factory;
mod shards;

pub use factory::LockFactory;
#[cfg(feature = "sasl-digest-md5")]
pub use recipes_core::DigestMd5SaslOptions;
#[cfg(feature = "sasl-gssapi")]
pub use recipes_core::GssapiSaslOptions;
#[cfg(any(feature = "sasl-digest-md5", feature = "sasl-gssapi"))]
pub use recipes_core::SaslOptions;
pub use recipes_core::{
    Acl, Acls, AcquireError, AuthId, Basis, Client, ConfigError, ConnectError, Contender,
    DistributedLock, Edge, FencingToken, GuardMember, GuardState, HealthWatcher, Identity,
    InspectError, Inspection, LockGuard, LockKind, LockOptions, LostError, LostReason, NodeStat,
    NodesError, Owner, ParentMode, Participant, Party, Permission, QueryError, Recipe,
    ReleaseError, RevokeError, Scan, Session, SessionBuilder, SessionHealth, Standing, Step,
    Transaction, TransactionError, TransactionResult, VerifyError, WaitForGraph, escape_key,
    inspect, scan, unescape_key,
};
#[cfg(feature = "tls")]
pub use recipes_core::{TlsCa, TlsCerts, TlsDynamicCerts, TlsIdentity, TlsOptions};
pub use recipes_multilock::{Member, MultiGuard, MultiLock};
pub use recipes_mutex::{InterProcessMutex, MutexGuard};
pub use recipes_rwlock::{
    DowngradeError, InterProcessReadWriteLock, ReadGuard, ReadLock, WriteGuard, WriteLock,
};

#[cfg(feature = "testing")]
pub use recipes_testing as testing;
