//! The ensembles on which a behaviour is tested, in memory and real.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use recipes_core::{NodeStat, Session, SessionOptions, Store};
use recipes_zookeeper::{Acls, ZooKeeper, ZooKeeperBuilder};
use zookeeper_client::{CreateMode, Error};

use crate::memory::MemoryEnsemble;
use crate::server::{MariaDbServer, PostgresServer, RedisServer, ZooKeeperServer};
use served::Served;

mod on_databases;
mod on_redis;
mod served;

/// Long enough that a busy machine loses no session. Tests expire sessions explicitly. A client
/// that connects to a server while it starts may get no answer, and tries again after two fifths of
/// this. A guard, which is valid for half of it, must outlast that and a restart.
const SESSION_TIMEOUT: Duration = Duration::from_secs(40);

/// An awaited event that takes longer never happens.
const PATIENCE: Duration = Duration::from_secs(120);

/// How often to poll a real server for what no watch reports.
const ASK_AGAIN: Duration = Duration::from_millis(5);

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

/// What an operator can see and change.
impl TestEnsemble {
    /// Names of the children, sorted; empty if the node does not exist.
    ///
    /// # Panics
    /// If the ensemble refuses.
    pub async fn children(&self, path: &str) -> Vec<String> {
        match self {
            Self::Memory(ensemble) => ensemble.children(path),
            Self::Real(server) => {
                let operator = must("connect", server.client().await);
                let mut children = match operator.list_children(path).await {
                    Err(Error::NoNode) => Vec::new(),
                    children => must("list", children),
                };
                children.sort_unstable();
                children
            }
            other => served::children(other.served(), path).await,
        }
    }

    /// Waits until a node has exactly `count` children, and returns their names, sorted.
    ///
    /// # Panics
    /// If that does not happen.
    pub async fn await_children(&self, path: &str, count: usize) -> Vec<String> {
        let what = format!("{count} children of {path}");
        self.until(&what, async || {
            let children = self.children(path).await;
            (children.len() == count).then_some(children)
        })
        .await
    }

    /// Gives pending requests time to be answered, all or some of them.
    pub async fn let_something_happen(&self) {
        match self {
            Self::Memory(_) => tokio::task::yield_now().await,
            _ => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }

    /// Polls until there is an answer, and returns it.
    ///
    /// # Panics
    /// If there is none for a long time.
    pub async fn until<T>(&self, what: &str, mut answer: impl AsyncFnMut() -> Option<T>) -> T {
        let asked = async {
            loop {
                match answer().await {
                    Some(answer) => return answer,
                    None => tokio::time::sleep(ASK_AGAIN).await,
                }
            }
        };
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(answer) => answer,
            Err(_) => panic!("{what}: not after {PATIENCE:?}"),
        }
    }

    /// Data and stat of a node; `None` if it does not exist.
    ///
    /// # Panics
    /// If the ensemble refuses.
    pub async fn read(&self, path: &str) -> Option<(Vec<u8>, NodeStat)> {
        match self {
            Self::Memory(ensemble) => ensemble.data(path).zip(ensemble.stat(path)),
            Self::Real(server) => {
                let session = ZooKeeper::from_client(must("connect", server.client().await));
                must("read", session.read(path).await)
            }
            other => served::read(other.served(), path).await,
        }
    }

    /// Creates a persistent node that everyone may use, and its missing parents.
    ///
    /// # Panics
    /// If the ensemble refuses.
    pub async fn create(&self, path: &str, data: &[u8]) {
        match self {
            Self::Memory(ensemble) => must("create", ensemble.create(path, data)),
            Self::Real(server) => {
                let operator = must("connect", server.client().await);
                let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
                if let Some((parent, _)) = path.rsplit_once('/').filter(|(it, _)| !it.is_empty()) {
                    must("create parents", operator.mkdir(parent, &options).await);
                }
                must("create", operator.create(path, data, &options).await);
            }
            other => served::create(other.served(), path, data).await,
        }
    }

    /// Replaces the data of a node.
    ///
    /// # Panics
    /// If the ensemble refuses.
    pub async fn set(&self, path: &str, data: &[u8]) {
        match self {
            Self::Memory(ensemble) => must("set", ensemble.set_data(path, data)),
            Self::Real(server) => {
                let operator = must("connect", server.client().await);
                must("set", operator.set_data(path, data, None).await);
            }
            other => served::set(other.served(), path, data).await,
        }
    }

    /// Deletes a node.
    ///
    /// # Panics
    /// If the ensemble refuses.
    pub async fn delete(&self, path: &str) {
        match self {
            Self::Memory(ensemble) => must("delete", ensemble.delete(path)),
            Self::Real(server) => {
                let operator = must("connect", server.client().await);
                must("delete", operator.delete(path, None).await);
            }
            other => served::delete(other.served(), path).await,
        }
    }

    /// Waits until the server has reaped a container and its parents.
    ///
    /// # Panics
    /// If that does not happen.
    pub async fn await_reaper(&self, path: &str) {
        let top = path.split('/').nth(1).unwrap_or_default();
        self.until("reaped containers", async || {
            match self {
                Self::Memory(ensemble) => drop(ensemble.reap_containers()),
                Self::Real(_) => {}
                other => served::reap(other.served()).await,
            }
            self.read(&format!("/{top}")).await.is_none().then_some(())
        })
        .await;
    }

    /// Number of watches of all sessions.
    ///
    /// # Panics
    /// If the server does not report it.
    pub async fn watch_count(&self) -> usize {
        match self {
            Self::Memory(ensemble) => ensemble.watch_count(),
            Self::Real(server) => must("count watches", server.watch_count().await),
            other => other.served().watch_count().await,
        }
    }

    /// The number of the last transaction.
    ///
    /// # Panics
    /// If the server does not report it.
    pub async fn zxid(&self) -> i64 {
        match self {
            Self::Memory(ensemble) => ensemble.zxid(),
            Self::Real(server) => must("read the last zxid", server.zxid().await),
            other => other.served().zxid().await,
        }
    }
}

fn must<T, E: fmt::Display>(what: &str, outcome: Result<T, E>) -> T {
    match outcome {
        Ok(value) => value,
        Err(error) => panic!("cannot {what}: {error}"),
    }
}

/// Tests behaviours in memory, on a paused clock, and on a real server of each store.
///
/// A behaviour is an `async fn` of this file that takes a [`TestEnsemble`] of its own. The macro
/// registers it: the tests are `behaviour::in_memory`, `behaviour::on_a_real_server`,
/// `behaviour::on_redis`, `behaviour::on_postgres` and `behaviour::on_mariadb`. Behaviours of ZooKeeper
/// alone come after `zookeeper:`. Those that count watches on the server come after `watches:`: sessions
/// on MariaDB only look. One that is not registered is dead code, of which the compiler warns.
///
/// ```ignore
/// on_every_ensemble!(holder_excludes_others, waiter_is_next);
///
/// async fn holder_excludes_others(ensemble: TestEnsemble) {
///     let session = ensemble.session().await;
///     // ...
/// }
/// ```
#[macro_export]
macro_rules! on_every_ensemble {
    (zookeeper: $($behaviour:ident),+ $(,)?) => {
        $crate::on_every_ensemble!(@each [$($behaviour)+] [on_a_real_server]);
    };
    (watches: $($behaviour:ident),+ $(,)?) => {
        $crate::on_every_ensemble!(@each [$($behaviour)+] [on_a_real_server on_redis on_postgres]);
    };
    (@each [$($behaviour:ident)+] $servers:tt) => {
        $($crate::on_every_ensemble!(@one $behaviour $servers);)+
    };
    (@one $behaviour:ident $servers:tt) => {
        mod $behaviour {
            use super::$behaviour;

            $crate::on_every_ensemble!(@tests $behaviour $servers);
        }
    };
    (@tests $behaviour:ident [$($server:ident)+]) => {
        #[tokio::test(start_paused = true)]
        async fn in_memory() {
            $behaviour($crate::TestEnsemble::in_memory()).await;
        }

        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $server() {
                $behaviour($crate::TestEnsemble::$server().await).await;
            }
        )+
    };
    ($($behaviour:ident),+ $(,)?) => {
        $crate::on_every_ensemble!(
            @each [$($behaviour)+] [on_a_real_server on_redis on_postgres on_mariadb]
        );
    };
}
