//! The ensembles on which a behaviour is tested, in memory and real.
//!
//! | file | noun |
//! |---|---|
//! | `test_ensemble` (this file) | `TestEnsemble`: its sessions, and faults for them |
//! | `operator` | what its operator sees and changes |
//! | `shared`, `own`, `place` | a place of the test's own on a server that others use, or a server |
//! | `on_every_ensemble` | how a behaviour becomes a test on each ensemble |
//! | `served`, `on_etcd`, `on_redis`, `on_databases` | what differs between servers that are no ZooKeeper |

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use recipes_core::{Nodes, Session, SessionOptions, Store};
use recipes_zookeeper::{ZooKeeper, ZooKeeperBuilder};

use recipes_testing::contract::Stage;
use recipes_testing::{
    EtcdServer, MariaDbServer, MemoryEnsemble, PostgresServer, RedisServer, ZooKeeperServer,
};
use served::Served;
use zookeeper_client::Client;

pub use place::Place;

mod on_databases;
mod on_etcd;
mod on_every_ensemble;
mod on_redis;
mod operator;
pub mod own;
mod place;
mod served;
pub mod shared;

/// Long enough that a busy machine loses no session. Tests expire sessions explicitly. A client
/// that connects to a server while it starts may get no answer, and tries again after two fifths of
/// this. A guard, which is valid for half of it, must outlast that and a restart.
const SESSION_TIMEOUT: Duration = Duration::from_secs(40);

/// An ensemble on which a behaviour is tested: in memory, or a real server.
///
/// Most methods act as an operator would, outside the sessions under test. They panic if the
/// operator is refused, because a test that cannot set its stage has failed.
///
/// Write such tests with [`on_every_ensemble!`](crate::on_every_ensemble), or with
/// [`on_ensembles_of_their_own!`](crate::on_ensembles_of_their_own) if they stop the ensemble, or count
/// what all of its sessions do.
#[derive(Debug)]
pub enum TestEnsemble {
    /// Runs on tokio's paused clock.
    Memory(MemoryEnsemble),
    /// Runs on the machine's clock.
    Real(Place<ZooKeeperServer, Client>),
    /// Runs on the machine's clock.
    Etcd(Place<EtcdServer, dyn Nodes>),
    /// Runs on the machine's clock.
    Redis(Place<RedisServer, dyn Nodes>),
    /// Runs on the machine's clock.
    Postgres(Place<PostgresServer, dyn Nodes>),
    /// Runs on the machine's clock.
    MariaDb(Place<MariaDbServer, dyn Nodes>),
}

/// Sessions under test, and faults for them.
impl TestEnsemble {
    /// An ensemble in memory, whose sessions do not expire by time: tests expire them explicitly.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::Memory(MemoryEnsemble::builder().without_session_timeout().build())
    }

    /// The server, unless it is one of ZooKeeper.
    fn served(&self) -> &dyn Served {
        match self {
            Self::Memory(_) | Self::Real(_) => panic!("no server of ours: {self:?}"),
            Self::Etcd(server) => server,
            Self::Redis(server) => server,
            Self::Postgres(server) => server,
            Self::MariaDb(server) => server,
        }
    }

    /// Opens a session under test.
    ///
    /// # Panics
    /// If it cannot be opened.
    pub async fn session(&self) -> Session {
        let timeout = match self {
            Self::Memory(_) | Self::Real(_) => SESSION_TIMEOUT,
            _ => served::SESSION_TIMEOUT,
        };
        let options = ZooKeeper::builder().session_timeout(timeout);
        self.session_with(options).await
    }

    /// Opens a session under test with options. Credentials have an effect on ZooKeeper only;
    /// in memory, timeouts of the connection have none either.
    ///
    /// # Panics
    /// If it cannot be opened.
    pub async fn session_with(&self, options: impl Into<ZooKeeperBuilder>) -> Session {
        self.session_below("", options).await
    }

    /// Opens a session under test that sees only the nodes below `chroot`, on a real server.
    ///
    /// # Panics
    /// If it cannot be opened, and for a chroot in memory.
    pub async fn session_below(
        &self,
        chroot: &str,
        options: impl Into<ZooKeeperBuilder>,
    ) -> Session {
        let options = options.into();
        match self {
            Self::Memory(_) if !chroot.is_empty() => panic!("no chroot in memory"),
            Self::Memory(ensemble) => ensemble.session_with(options),
            Self::Real(place) => {
                let connect_string = format!("{}{chroot}", place.connect_string());
                must("connect", options.connect(&connect_string).await)
            }
            other if !chroot.is_empty() => panic!("no chroot on {other:?}"),
            other => {
                let (options, _, _) = options.into_parts();
                must("connect", served::session(other.served(), options).await)
            }
        }
    }

    /// Ends the ZooKeeper session of a session under test, as if it had timed out. When this
    /// returns, the client of a real server has been notified.
    ///
    /// # Panics
    /// If there is none.
    pub async fn expire(&self, session: &Session) {
        let Some(id) = session.session_id() else {
            panic!("no ZooKeeper session to expire")
        };
        match self {
            Self::Memory(ensemble) => assert!(ensemble.expire(id), "session has ended already"),
            Self::Real(server) => {
                must("expire a session", server.expire(id).await);
                // A client that reconnects before the close gets no answer on that connection, and
                // gives it up after two fifths of the session timeout.
                let is_over = async || (session.session_id() != Some(id)).then_some(());
                self.until("the end of a session", is_over).await;
            }
            other => {
                let was_alive = served::expire(other.served(), id).await;
                assert!(was_alive, "session has ended already");
                let is_over = async || (session.session_id() != Some(id)).then_some(());
                self.until("the end of a session", is_over).await;
            }
        }
    }

    /// As [`expire`](Self::expire), for the session with this id, on a server of a store that is no
    /// ZooKeeper. It does not wait.
    ///
    /// # Panics
    /// If the server refuses.
    #[doc(hidden)]
    pub async fn end_session(&self, id: i64) {
        served::expire(self.served(), id).await;
    }

    /// The URL of a server of the test's own that is no ZooKeeper.
    ///
    /// # Panics
    /// If there is no such server.
    #[doc(hidden)]
    #[must_use]
    pub fn url(&self) -> String {
        assert!(!self.is_shared(), "on a shared server a URL names no place");
        match self {
            Self::Memory(_) | Self::Real(_) => panic!("no server of ours: {self:?}"),
            Self::Etcd(server) => server.url(),
            Self::Redis(server) => server.url(),
            Self::Postgres(server) => server.url(),
            Self::MariaDb(server) => server.url(),
        }
    }

    /// Where clients of a server connect that is no ZooKeeper.
    ///
    /// # Panics
    /// If there is no such server.
    #[doc(hidden)]
    #[must_use]
    pub fn port(&self) -> u16 {
        match self {
            Self::Memory(_) | Self::Real(_) => panic!("no server of ours: {self:?}"),
            Self::Etcd(server) => server.port(),
            Self::Redis(server) => server.port(),
            Self::Postgres(server) => server.port(),
            Self::MariaDb(server) => server.port(),
        }
    }

    /// The store, at this host and port or its own, on a server of a store that is no ZooKeeper.
    ///
    /// # Panics
    /// If the options are refused.
    #[doc(hidden)]
    #[must_use]
    pub fn store_at(
        &self,
        address: Option<&str>,
        options: SessionOptions,
        container_rest: Duration,
    ) -> Arc<dyn Store> {
        let own = self.served().address();
        self.served()
            .store(address.unwrap_or(&own), options, container_rest)
    }

    /// Whether other tests use the server too.
    fn is_shared(&self) -> bool {
        match self {
            Self::Memory(_) => false,
            Self::Real(place) => place.name().is_some(),
            Self::Etcd(place) => place.name().is_some(),
            Self::Redis(place) => place.name().is_some(),
            Self::Postgres(place) => place.name().is_some(),
            Self::MariaDb(place) => place.name().is_some(),
        }
    }

    /// Stops the ensemble, which keeps its data.
    ///
    /// # Panics
    /// If it cannot be stopped, or is shared with other tests.
    pub async fn stop(&self) {
        assert!(
            !self.is_shared(),
            "others use this server: register the test by on_ensembles_of_their_own!"
        );
        match self {
            Self::Memory(ensemble) => ensemble.stop(),
            Self::Real(server) => must("stop the server", server.stop().await),
            other => must("stop the server", other.served().stop().await),
        }
    }

    /// Halts the ensemble: connections stay, and no request is answered.
    ///
    /// # Panics
    /// If it cannot be halted, or is shared with other tests.
    pub fn pause(&self) {
        let paused = match self {
            Self::Memory(ensemble) => {
                ensemble.pause();
                return;
            }
            Self::Real(server) => server.own_server().pause(),
            Self::Etcd(server) => server.own_server().pause(),
            Self::Redis(server) => server.own_server().pause(),
            Self::Postgres(server) => server.own_server().pause(),
            Self::MariaDb(server) => server.own_server().pause(),
        };
        must("halt the server", paused);
    }

    /// Lets a halted ensemble go on.
    ///
    /// # Panics
    /// If it cannot.
    pub fn resume(&self) {
        let resumed = match self {
            Self::Memory(ensemble) => {
                ensemble.resume();
                return;
            }
            Self::Real(server) => server.own_server().resume(),
            Self::Etcd(server) => server.own_server().resume(),
            Self::Redis(server) => server.own_server().resume(),
            Self::Postgres(server) => server.own_server().resume(),
            Self::MariaDb(server) => server.own_server().resume(),
        };
        must("let the server go on", resumed);
    }

    /// Starts the ensemble again.
    ///
    /// # Panics
    /// If it cannot be started.
    pub async fn start_again(&self) {
        match self {
            Self::Memory(ensemble) => ensemble.restart(),
            Self::Real(server) => must("start the server again", server.start_again().await),
            other => must("start the server again", other.served().start_again().await),
        }
    }
}

impl Stage for TestEnsemble {
    async fn session(&self) -> Session {
        self.session().await
    }

    async fn children(&self, path: &str) -> Vec<String> {
        self.children(path).await
    }

    async fn expire(&self, session: &Session) {
        self.expire(session).await;
    }

    async fn stop(&self) {
        self.stop().await;
    }

    async fn start_again(&self) {
        self.start_again().await;
    }

    async fn await_reaper(&self, path: &str) {
        self.await_reaper(path).await;
    }
}

impl Place<ZooKeeperServer, Client> {
    /// The connect string of the place: that of the server, with the place as its chroot.
    #[must_use]
    pub fn connect_string(&self) -> String {
        let server: &ZooKeeperServer = self;
        match self.name() {
            Some(name) => format!("{}/{name}", server.connect_string()),
            None => server.connect_string(),
        }
    }

    /// A client that sees what is below the place.
    ///
    /// # Panics
    /// If it cannot connect.
    pub async fn client_of_place(&self) -> Arc<Client> {
        let connected = self.operator(async || {
            let connector = Client::connector().with_session_timeout(SESSION_TIMEOUT);
            connector
                .connect(&self.connect_string())
                .await
                .map(Arc::new)
        });
        must("connect", connected.await)
    }
}

fn must<T, E: fmt::Debug>(what: &str, outcome: Result<T, E>) -> T {
    match outcome {
        Ok(value) => value,
        Err(error) => panic!("cannot {what}: {error:?}"),
    }
}
