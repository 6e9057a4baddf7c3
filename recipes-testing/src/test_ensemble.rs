//! The ensembles on which a behaviour is tested, in memory and real.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use recipes_core::{Session, SessionOptions, Store};
use recipes_zookeeper::{ZooKeeper, ZooKeeperBuilder};

use crate::memory::MemoryEnsemble;
use crate::server::{MariaDbServer, PostgresServer, RedisServer, ZooKeeperServer};
use served::Served;

mod on_databases;
mod on_every_ensemble;
mod on_redis;
mod operator;
mod served;

/// Long enough that a busy machine loses no session. Tests expire sessions explicitly. A client
/// that connects to a server while it starts may get no answer, and tries again after two fifths of
/// this. A guard, which is valid for half of it, must outlast that and a restart.
const SESSION_TIMEOUT: Duration = Duration::from_secs(40);

/// An ensemble on which a behaviour is tested: in memory, or a real server.
///
/// Most methods act as an operator would, outside the sessions under test. They panic if the
/// operator is refused, because a test that cannot set its stage has failed.
///
/// Write such tests with [`on_every_ensemble!`](crate::on_every_ensemble).
#[derive(Debug)]
pub enum TestEnsemble {
    /// Runs on tokio's paused clock.
    Memory(MemoryEnsemble),
    /// Runs on the machine's clock.
    Real(ZooKeeperServer),
    /// Runs on the machine's clock.
    Redis(RedisServer),
    /// Runs on the machine's clock.
    Postgres(PostgresServer),
    /// Runs on the machine's clock.
    MariaDb(MariaDbServer),
}

/// Sessions under test, and faults for them.
impl TestEnsemble {
    /// An ensemble in memory, whose sessions do not expire by time: tests expire them explicitly.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::Memory(MemoryEnsemble::builder().without_session_timeout().build())
    }

    /// A real server of its own, which reaps empty containers after 200 ms.
    ///
    /// # Panics
    /// If it cannot be started.
    pub async fn on_a_real_server() -> Self {
        // Nearly at once, instead of once a minute: locks must cope with it.
        let reaps = ZooKeeperServer::builder().property("znode.container.checkIntervalMs", "200");
        Self::Real(must("start a server", reaps.start().await))
    }

    /// A Redis server of its own, on which containers are removed when they have been empty for
    /// 200 ms.
    ///
    /// # Panics
    /// If it cannot be started.
    pub async fn on_redis() -> Self {
        Self::Redis(must("start a server", RedisServer::start().await))
    }

    /// As [`on_redis`](Self::on_redis), on PostgreSQL.
    ///
    /// # Panics
    /// If it cannot be started.
    pub async fn on_postgres() -> Self {
        Self::Postgres(must("start a server", PostgresServer::start().await))
    }

    /// As [`on_redis`](Self::on_redis), on MariaDB.
    ///
    /// # Panics
    /// If it cannot be started.
    pub async fn on_mariadb() -> Self {
        Self::MariaDb(must("start a server", MariaDbServer::start().await))
    }

    /// The server, unless it is one of ZooKeeper.
    fn served(&self) -> &dyn Served {
        match self {
            Self::Memory(_) | Self::Real(_) => panic!("no server of ours: {self:?}"),
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
            Self::Real(server) => {
                let connect_string = format!("{}{chroot}", server.connect_string());
                must("connect", options.connect(&connect_string).await)
            }
            other if !chroot.is_empty() => panic!("no chroot on {other:?}"),
            other => {
                let (options, _, _) = options.into_parts();
                must("connect", other.served().connect(options).await)
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

    /// The URL of a server that is no ZooKeeper.
    ///
    /// # Panics
    /// If there is no such server.
    #[doc(hidden)]
    #[must_use]
    pub fn url(&self) -> String {
        match self {
            Self::Memory(_) | Self::Real(_) => panic!("no server of ours: {self:?}"),
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

    /// Stops the ensemble, which keeps its data.
    ///
    /// # Panics
    /// If it cannot be stopped.
    pub async fn stop(&self) {
        match self {
            Self::Memory(ensemble) => ensemble.stop(),
            Self::Real(server) => must("stop the server", server.stop().await),
            other => must("stop the server", other.served().stop().await),
        }
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

fn must<T, E: fmt::Display>(what: &str, outcome: Result<T, E>) -> T {
    match outcome {
        Ok(value) => value,
        Err(error) => panic!("cannot {what}: {error}"),
    }
}
