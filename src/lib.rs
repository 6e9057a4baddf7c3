//! Distributed locks for async Rust: on ZooKeeper, shared safely with Apache Curator, on etcd, shared with Go's own
//! locks, on Redis, PostgreSQL, MySQL and MariaDB.
//!
//! ```no_run
//! use lock_recipes::{InterProcessMutex, ZooKeeper};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! // Or `lock_recipes::connect("postgres://app:secret@db/shop")`: any store by its address.
//! let session = ZooKeeper::connect("zk1:2181,zk2:2181,zk3:2181").await?;
//! let order = InterProcessMutex::new(&session, "/locks/orders/4711")?;
//! let guard = order.acquire().await?;
//! // ... one process at a time, with a token for the store: guard.fencing_token() ...
//! guard.release().await?;
//! session.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! Start with the store, [`ZooKeeper`] or [`connect`](fn@connect), which opens a
//! [`Session`] (a connection that outlives sessions of the store). Then take a recipe:
//! [`InterProcessMutex`], [`InterProcessReadWriteLock`], [`MultiLock`] for several at once,
//! [`InterProcessSemaphore`] for a number of holders, [`LeaderElection`] or [`LeaderLatch`], or a
//! [`LockFactory`] that makes them by key. [`Acquire`] says what an acquire waits for, how it fails,
//! and what is left if it is dropped. An [`Owner`] re-enters the locks that it holds. Guards are the
//! proof of holding. [`Acquire::run`] does work under a lock in one call. A [`LockGuard`] is the guard of any lock, acquired through
//! [`DistributedLock`].
//!
//! [`inspect`] and [`scan`] show the locks of a store, whichever client takes them.
//! [`WaitForGraph`] shows which contender waits for which.
//!
//! # Errors
//! Each operation has an error of its own. [`Error`] is any of them, for services that use `?`
//! everywhere; [`is_busy`](Error::is_busy), [`is_transient`](Error::is_transient),
//! [`is_lost`](Error::is_lost) and [`is_closed`](Error::is_closed) say what to do.
//!
//! # Tests of a service
//! With the feature `testing`, `MemoryEnsemble` is a store in the process of a test. With a paused clock no test waits. A
//! holder that loses its session, and the next one:
//! ```
//! # mod lock_recipes { pub use ::lock_recipes::*; pub use recipes_testing as testing; }
//! use lock_recipes::InterProcessMutex;
//! use lock_recipes::testing::MemoryEnsemble;
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // In #[tokio::test(start_paused = true)]
//! let ensemble = MemoryEnsemble::new();
//! let [ours, theirs] = [ensemble.session(), ensemble.session()];
//! let held = InterProcessMutex::new(&ours, "/locks/orders")?.acquire().await?;
//!
//! ensemble.expire(ours.session_id().ok_or("no session")?);
//! held.lost().await;
//! assert!(held.release().await.is_err_and(|error| error.is_lost()));
//!
//! let next = InterProcessMutex::new(&theirs, "/locks/orders")?.acquire().await?;
//! next.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//! - `zookeeper` (default): locks on Apache ZooKeeper.
//! - `etcd`: locks on etcd, in one queue with Go's and `etcdctl`. It builds with `protoc`.
//! - `redis`, `postgres`, `mysql`: locks on Redis, PostgreSQL, and MySQL or MariaDB.
//! - `testing`: module `testing`, with `MemoryEnsemble` for the tests of your service, and the contract of
//!   all locks. It brings no client.
//! - `zookeeper-server`, `etcd-server`, `redis-server`, `postgres-server`, `mysql-server`: real servers in that
//!   module. Each turns `testing` and its store on.
//! - `tls`: TLS for the stores that are turned on. It turns none on.
//! - `sasl-digest-md5`, `sasl-gssapi`: passed through to the ZooKeeper client. Each turns `zookeeper` on.
//! - `metrics`: counts, waits and holds for the recorder of the [`metrics`] ecosystem that your
//!   service installs, for example that of `metrics-exporter-prometheus`.
//! - `blocking`: module `blocking`, for tools and tests that are not async. It brings no crate.
//!
//! # Metrics
//! Install the recorder before the first session. `kind` is `mutex`, `read`, `write` or
//! `latch` (an election with the nodes of `LeaderLatch`), and `set` for several locks that are
//! acquired together. No label contains paths, keys, nodes or sessions.
//!
//! | metric | type | labels | what |
//! |---|---|---|---|
//! | `lock_recipes_acquires_total` | counter | `kind`, `outcome` | acquires that ended |
//! | `lock_recipes_acquires_pending` | gauge | `kind` | acquires that were polled and have not ended: they wait, or the store does not answer |
//! | `lock_recipes_wait_seconds` | histogram | `kind`, `outcome` | from the first poll of an acquire to its end |
//! | `lock_recipes_queue_length` | histogram | `kind` | nodes ahead of a contender, the holder's too, when its node is made |
//! | `lock_recipes_grants_total` | counter | `kind` | locks that an owner came to hold; each member of a set counts |
//! | `lock_recipes_local_handoffs_total` | counter | `kind` | grants on a node that was [kept within the process](LockOptions::local_handoffs) |
//! | `lock_recipes_hold_seconds` | histogram | `kind` | from a grant to the call of the last release, or to the loss |
//! | `lock_recipes_releases_total` | counter | `kind`, `outcome` | releases that were awaited, of the last guard of an owner; each member of a set counts |
//! | `lock_recipes_losses_total` | counter | `kind`, `reason` | locks that were lost while they were held |
//! | `lock_recipes_sessions` | gauge | `health` | sessions that are not closed and have not ended for good |
//! | `lock_recipes_sessions_lost_total` | counter | `reason` | store sessions that ended without having been closed by their service |
//! | `lock_recipes_cleanups_pending` | gauge | | deletions of lock nodes that go on in the background |
//!
//! - `outcome` of an acquire: `granted`; `reentered` if the owner held everything already; `busy`
//!   for a try; `timed_out`; `dropped` if its future was dropped; `failed` with any other error.
//! - `outcome` of a release: `released`; `pending` if it was [not confirmed](ReleaseOutcome::Pending)
//!   in time; `lost` or `refused`, as [`ReleaseError`].
//! - `reason` of a loss: `session_expired`, `session_closed`, `deadline_passed`, `node_removed`, as
//!   [`LostReason`]. `reason` of the end of a session: `expired`, `closed` (by the owner of its
//!   client), `auth_failed`, `store_forgot`, as [`SessionHealth::StoreForgot`].
//! - `health`: `connecting`, `connected`, `disconnected`, as [`SessionHealth`].
//! - The first session shows losses, lost sessions, and releases that are `lost` or `refused`, with
//!   zeros: a monitor sees no increase when a counter appears with its first event.
//! - The length of the queue is read from the listing that is sent with the create. It is not
//!   known, and not recorded, if a reply was lost or if a reader goes next to a writer of its
//!   owner.
//!
//! # Traces
//! Spans of `tracing`, of level `DEBUG` and target `lock_recipes::lock`.
//!
//! | span | lasts | fields |
//! |---|---|---|
//! | `acquire` | from the first poll to the end | `lock`, `kind`, and once known `node`, `token`, `outcome` |
//! | `wait`, in `acquire` | until the node that it waits for is gone, or not waited for any more; one for each watched node, often two | `lock`, `node`, `predecessor` |
//! | `hold`, follows from `acquire` | as `lock_recipes_hold_seconds` | `lock`, `node`, `token`, `kind`, and finally `end`: `released`, or the reason of the loss |
//! | `release` | as the call | `lock`, `node`, `token` |
//!
//! `hold` has no parent, because a span does not end before its children.
//!
//! [`metrics`]: https://docs.rs/metrics

#[cfg(feature = "blocking")]
pub mod blocking;
mod connect;
mod factory;
mod key_member;
mod shards;

pub use connect::{connect, connect_with};
pub use factory::LockFactory;
pub use key_member::KeyMember;
pub use recipes_core::{
    Acquire, AcquireError, Basis, ConfigError, ConnectError, Contender, Dialect, DistributedLock,
    Done, Edge, Error, Fence, FenceError, FencingToken, Guarantee, GuardMember, GuardState,
    HealthWatcher, Identity, Inspection, LatchError, LockGuard, LockKind, LockOptions, LostError,
    LostReason, NodeStat, NodesError, Owner, ParentMode, Participant, Party, QueryError, Recipe,
    ReleaseError, ReleaseOutcome, Scan, Session, SessionHealth, SessionOptions, Standing, Step,
    TimeoutReason, Transaction, TransactionError, TransactionResult, TryAcquire, VerifyError,
    WaitForGraph, escape_key, inspect, scan, unescape_key,
};
pub use recipes_leader::{
    Candidate, ElectionLayout, LatchWatcher, LeaderElection, LeaderLatch, LeaderObserver,
    Leadership,
};
pub use recipes_multilock::{Member, MultiGuard, MultiLock};
pub use recipes_mutex::{InterProcessMutex, MutexGuard};
pub use recipes_rwlock::{InterProcessReadWriteLock, ReadGuard, ReadLock, WriteGuard, WriteLock};

pub use recipes_semaphore::{InterProcessSemaphore, InterProcessSemaphoreMutex, SemaphorePermit};

#[cfg(feature = "testing")]
pub use recipes_testing as testing;

#[cfg(feature = "etcd")]
pub use recipes_etcd::{Etcd, EtcdBuilder, EtcdRefusal};
#[cfg(feature = "redis")]
pub use recipes_redis::{Redis, RedisBuilder, RedisRefusal};
#[cfg(feature = "mysql")]
pub use recipes_sql::{MySql, MySqlBuilder, MySqlRefusal};
#[cfg(feature = "postgres")]
pub use recipes_sql::{Postgres, PostgresBuilder, PostgresRefusal};
#[cfg(feature = "sasl-digest-md5")]
pub use recipes_zookeeper::DigestMd5SaslOptions;
#[cfg(feature = "sasl-gssapi")]
pub use recipes_zookeeper::GssapiSaslOptions;
#[cfg(any(feature = "sasl-digest-md5", feature = "sasl-gssapi"))]
pub use recipes_zookeeper::SaslOptions;
#[cfg(feature = "zookeeper")]
pub use recipes_zookeeper::{Acl, Acls, AuthId, Client, Permission, ZooKeeper, ZooKeeperBuilder};
#[cfg(all(feature = "tls", feature = "zookeeper"))]
pub use recipes_zookeeper::{TlsCa, TlsCerts, TlsDynamicCerts, TlsIdentity, TlsOptions};
