//! The handle that tests hold.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use recipes_core::{EndReason, Session, SessionOptions, Store};
use tokio::time::Instant;

use super::acl::AuthId;
use super::builder::MemoryBuilder;
use super::faults::{Ambush, Faults, Lost};
use super::options::MemoryOptions;
use super::seam::store::MemoryStore;
use super::state::request::{Operation, Request};
use super::state::shared::Shared;

/// A ZooKeeper ensemble in this process, for tests: what `TestingServer` is to users of Curator.
///
/// A cheap handle; clones are the same ensemble. Its methods act as an operator would: they bypass
/// access control, faults and the request log, and work while the ensemble is stopped.
///
/// # Guarantees
///
/// Znodes, sequences, ephemeral nodes, containers, one-shot watches, transactions, sessions and
/// access control behave as in ZooKeeper 3.8. A request takes effect when it arrives, which is when
/// it is made unless [`Faults`] delay it. Its reply is never there at the first poll. It is lost if
/// the connection breaks before the reply, or a later one of the same session, was picked up. After
/// a reconnection, watches report what they have missed, in any order, and before any reply. A
/// refused write uses up a transaction number. The same seed and the same calls in the same order
/// give the same run, whatever the machine. Time is tokio's, so a paused clock works, and the
/// machine never sleeps unless [a test says so](Self::suspend_machine).
///
/// # Differs
///
/// It is one process and not an ensemble: nothing is written to disk and nobody votes. Leaders
/// change only on request, see [`depose`](Self::depose). What a deposed leader has not committed is
/// never found by the next one; a real leader may find it in the log of a follower. A client whose
/// requests are not answered keeps its connection; a real one gives it up after two thirds of its
/// timeout. A request that was in flight when the connection broke arrives at that moment or never;
/// on a real server it may arrive until the client is connected again. There is no `/zookeeper`
/// subtree. A path that ends in `/.` or `/..` is refused; a server takes it for the name of no
/// node. Only lists lag behind, and only where [`Faults`] say so. Reads and watches are answered
/// from the latest state that the session's leader knows. A client learns at once that its session
/// has ended, even while it is disconnected, but not while it is connected to a deposed leader. It
/// waits for a stopped ensemble however long that takes; a real one gives its session up after 7/5
/// of the timeout. Digest identities are compared as plain `user:password`, not hashed.
///
/// # Examples
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # mod lock_recipes { pub use recipes_testing as testing; }
/// let ensemble = lock_recipes::testing::MemoryEnsemble::new();
/// ensemble.create("/services/orders", b"v1")?;
/// assert!(ensemble.exists("/services"));
/// assert_eq!(ensemble.data("/services/orders").as_deref(), Some(&b"v1"[..]));
/// # Ok(())
/// # }
/// ```
///
/// The first page of `lock_recipes` has a lock whose session is lost.
///
/// The double is no database: `guard.fence()` is refused, as on ZooKeeper. So what a service writes under a fence is tested on a
/// server, such as `PostgresServer`.
#[derive(Clone)]
pub struct MemoryEnsemble {
    pub(super) shared: Arc<Shared>,
}

/// Set-up and sessions.
impl MemoryEnsemble {
    /// Starts an ensemble with the default options: no faults, no latency, and a session timeout of
    /// 12 s.
    #[must_use]
    pub fn new() -> Self {
        MemoryBuilder::default().build()
    }

    /// Returns a builder with the default options.
    pub fn builder() -> MemoryBuilder {
        MemoryBuilder::default()
    }

    pub(super) fn start(options: &MemoryBuilder) -> Self {
        Self {
            shared: Shared::new(options),
        }
    }

    /// Opens a session with default options; must be called on a tokio runtime.
    #[must_use]
    pub fn session(&self) -> Session {
        self.session_with(SessionOptions::new())
    }

    /// Opens a session with options; must be called on a tokio runtime. They are
    /// [`SessionOptions`], or with the feature `zookeeper` a `ZooKeeperBuilder`, which adds access
    /// control lists. The session timeout and credentials have no effect here: see
    /// [`MemoryBuilder`] and [`session_as`](Self::session_as).
    ///
    /// # Panics
    /// For options that cannot be used.
    #[must_use]
    pub fn session_with(&self, options: impl Into<MemoryOptions>) -> Session {
        self.start_session(&[], options.into())
    }

    /// Opens a session that has given `user:password` in the scheme `digest`.
    ///
    /// # Panics
    /// For options that cannot be used.
    #[must_use]
    pub fn session_as(
        &self,
        user_and_password: &str,
        options: impl Into<MemoryOptions>,
    ) -> Session {
        self.start_session(&[digest(user_and_password)], options.into())
    }

    /// A store whose sessions have no credentials.
    #[doc(hidden)]
    #[must_use]
    pub fn store(&self) -> Arc<dyn Store> {
        self.store_with(None, SessionOptions::new())
    }

    /// A store that gives nodes the access control lists of these options. Its sessions have given
    /// `user:password` in the scheme `digest`, if any.
    #[doc(hidden)]
    #[must_use]
    pub fn store_with(
        &self,
        user_and_password: Option<&str>,
        options: impl Into<MemoryOptions>,
    ) -> Arc<dyn Store> {
        let identities: Vec<_> = user_and_password.map(digest).into_iter().collect();
        self.split(&identities, options.into()).1
    }

    fn start_session(&self, identities: &[AuthId], options: MemoryOptions) -> Session {
        let (options, store) = self.split(identities, options);
        options.start(store)
    }

    /// The options of a session, and a store with those of its nodes.
    fn split(
        &self,
        identities: &[AuthId],
        options: MemoryOptions,
    ) -> (SessionOptions, Arc<dyn Store>) {
        let MemoryOptions { options, rules } = options;
        let (shared, only_reads) = (Arc::clone(&self.shared), options.only_reads());
        let store = MemoryStore::new(shared, identities.into(), rules, only_reads);
        (options, Arc::new(store))
    }

    /// Ids of the sessions that the ensemble has not ended, oldest first.
    #[must_use]
    pub fn sessions(&self) -> Vec<i64> {
        self.shared.with(|state| state.live_sessions())
    }

    /// Expires a session at once. Returns whether it was alive. The news reach the client as those of a server do: code
    /// of the same task has to await something before it sees them. On a store as that on Redis, a client that is not
    /// connected learns of it when it is.
    pub fn expire(&self, session: i64) -> bool {
        self.shared.with(|state| {
            let live = state.is_live(session);
            state.end(session, EndReason::Expired);
            live
        })
    }

    /// Ends a session for its client only, as a client does if it was disconnected for too long or
    /// its credentials were refused. Returns whether the session was alive on the ensemble.
    ///
    /// Its requests fail and it never connects again, but its ephemeral nodes stay until
    /// [`expire`](Self::expire) or the session timeout.
    #[doc(hidden)]
    pub fn end_client(&self, session: i64, reason: EndReason) -> bool {
        self.shared.with(|state| {
            state.give_up(session, reason);
            state.is_live(session)
        })
    }

    /// Cuts a session off until [`reconnect`](Self::reconnect). Returns whether it was alive.
    ///
    /// Replies in flight are lost; later requests wait. With a session timeout, the session expires
    /// after it. A client that closes meanwhile cannot reach the server, so its session ends only
    /// at the timeout or on reconnection.
    pub fn disconnect(&self, session: i64) -> bool {
        self.shared.with(|state| {
            state.cut(session);
            state.is_live(session)
        })
    }

    /// Connects a session again. The requests that it has made meanwhile are carried out in order.
    /// Returns whether it was alive.
    pub fn reconnect(&self, session: i64) -> bool {
        let live = self.shared.with(|state| {
            let live = state.is_live(session);
            state.mend(session);
            live
        });
        self.shared.admits.send_replace(());
        live
    }

    /// Grants this session timeout from now on: to new sessions, and to present ones from their next
    /// connection on, as servers do after an operator has changed `maxSessionTimeout`. A session that gets
    /// less counts with that from the reconnect on.
    ///
    /// # Panics
    /// On a store as that on Redis, where each session keeps its timeout.
    pub fn grant_session_timeout(&self, timeout: Duration) {
        self.shared.with(|state| {
            assert!(
                state.on_redis.is_none(),
                "no server there has another timeout"
            );
            state.session_timeout = Some(timeout);
        });
    }

    /// Stops the ensemble: all sessions are disconnected, and new ones wait. Guards are suspended,
    /// and lost after about half of the [session timeout](MemoryBuilder::session_timeout), as in an
    /// outage of a real ensemble.
    ///
    /// Nobody is there to expire a session. See [`restart`](Self::restart).
    pub fn stop(&self) {
        self.shared.with(|state| state.stop());
    }

    /// Starts the stopped ensemble again, with all its nodes. Every session gets its full timeout
    /// again, as from a new leader, and guards that were lost stay lost. Sessions under
    /// [`disconnect`](Self::disconnect) stay cut off.
    pub fn restart(&self) {
        self.shared.with(|state| state.restart());
        self.shared.admits.send_replace(());
    }

    /// Lets the ensemble stand still: connections stay, and no request is answered. What is asked
    /// meanwhile takes effect when it [goes on](Self::resume), in the order of the calls.
    pub fn pause(&self) {
        self.shared.with(|state| state.paused = true);
    }

    /// Lets a paused ensemble go on.
    pub fn resume(&self) {
        self.shared.with(|state| {
            state.paused = false;
            state.let_arrive(Instant::now());
        });
        self.shared.admits.send_replace(());
    }
}

/// What sessions do, and what goes wrong for them.
impl MemoryEnsemble {
    /// All requests since the start or the last [`reset_requests`](Self::reset_requests), in the
    /// order of the calls.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.shared.with(|state| state.requests.clone())
    }

    /// Number of requests of one kind in the log.
    #[must_use]
    pub fn request_count(&self, operation: Operation) -> usize {
        let of_kind = |request: &&Request| request.operation == operation;
        self.shared
            .with(|state| state.requests.iter().filter(of_kind).count())
    }

    /// Empties the request log.
    pub fn reset_requests(&self) {
        self.shared.with(|state| state.requests.clear());
    }

    /// Number of watches of all sessions that are set and have not fired.
    #[must_use]
    pub fn watch_count(&self) -> usize {
        self.shared.with(|state| state.watch_count())
    }

    /// Refuses an operation on a node and all below it with `NoAuth`, until
    /// [`allow_all`](Self::allow_all).
    ///
    /// A create or delete inside a transaction counts as such. [`Operation::Multi`] refuses every
    /// operation of a transaction on these nodes.
    pub fn deny(&self, path: &str, operation: Operation) {
        self.shared
            .with(|state| state.denied.push((path.to_owned(), operation)));
    }

    /// Takes back every [`deny`](Self::deny).
    pub fn allow_all(&self) {
        self.shared.with(|state| state.denied.clear());
    }

    /// Breaks the connection under the next request of this kind, of one session or any. That
    /// request fails with `Unknown`, as do those whose replies are in flight. The connection is
    /// back at once.
    pub fn lose_reply(&self, session: Option<i64>, operation: Operation, lost: Lost) {
        self.shared.with(|state| {
            state.ambushes.push(Ambush {
                session,
                operation,
                lost,
            })
        });
    }

    /// Takes back every [`lose_reply`](Self::lose_reply) that has not met a request yet.
    pub fn keep_replies(&self) {
        self.shared.with(|state| state.ambushes.clear());
    }

    /// Replaces the faults that are drawn from the seed; `Faults::default()` ends them.
    pub fn set_faults(&self, faults: Faults) {
        self.shared.with(|state| state.faults = faults);
    }
}

fn digest(user_and_password: &str) -> AuthId {
    AuthId::new("digest", user_and_password)
}

impl Default for MemoryEnsemble {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryEnsemble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryEnsemble").finish_non_exhaustive()
    }
}
