//! What a behaviour is tried on.

use std::fmt;
use std::time::Duration;

use recipes_core::{Acls, NodeStat, Session, SessionBuilder};
use zookeeper_client::{CreateMode, Error};

use crate::memory::MemoryEnsemble;
use crate::server::ZooKeeperServer;

/// Long enough that a busy machine loses no session; what shall expire is told to. A client that
/// connects to a server while it starts may get no answer, and tries again after two fifths of this:
/// a guard, which is good for half of it, has to outlive that and a restart.
const SESSION_TIMEOUT: Duration = Duration::from_secs(40);

/// Within this, what a test waits for has happened or never will.
const PATIENCE: Duration = Duration::from_secs(30);

/// How often a real server is asked about what no watch tells.
const ASK_AGAIN: Duration = Duration::from_millis(5);

/// An ensemble that a behaviour is tried on: in memory, or a real server.
///
/// Most methods are an operator's hands, outside the sessions under test. They panic where the
/// operator is refused: a test that cannot set its stage has failed.
///
/// Write such tests with [`on_every_ensemble!`](crate::on_every_ensemble).
#[derive(Debug)]
pub enum TestEnsemble {
    /// Runs on tokio's paused clock.
    Memory(MemoryEnsemble),
    /// Runs on the machine's clock.
    Real(ZooKeeperServer),
}

/// Sessions under test, and what happens to them.
impl TestEnsemble {
    /// An ensemble in memory.
    #[must_use]
    pub fn in_memory() -> Self {
        Self::Memory(MemoryEnsemble::new())
    }

    /// A real server of its own, which reaps empty containers after 200 ms.
    ///
    /// # Panics
    /// Where it cannot be started.
    pub async fn on_a_real_server() -> Self {
        // As good as at once, instead of once a minute: what locks must be able to live with.
        let reaps = ZooKeeperServer::builder().property("znode.container.checkIntervalMs", "200");
        Self::Real(must("start a server", reaps.start().await))
    }

    /// Opens a session under test.
    ///
    /// # Panics
    /// Where it cannot be opened.
    pub async fn session(&self) -> Session {
        let options = Session::builder().session_timeout(SESSION_TIMEOUT);
        self.session_with(options).await
    }

    /// Opens a session under test with options; in memory, credentials and time-outs of the
    /// connection mean nothing.
    ///
    /// # Panics
    /// Where it cannot be opened.
    pub async fn session_with(&self, options: SessionBuilder) -> Session {
        self.session_below("", options).await
    }

    /// Opens a session under test that sees the nodes below `chroot` only; on a real server.
    ///
    /// # Panics
    /// Where it cannot be opened, and for a chroot in memory.
    pub async fn session_below(&self, chroot: &str, options: SessionBuilder) -> Session {
        match self {
            Self::Memory(_) if !chroot.is_empty() => panic!("no chroot in memory"),
            Self::Memory(ensemble) => ensemble.session_with(options),
            Self::Real(server) => {
                let connect_string = format!("{}{chroot}", server.connect_string());
                must("connect", options.connect(&connect_string).await)
            }
        }
    }

    /// Ends the ZooKeeper session behind a session under test, as if it had timed out; when this
    /// returns, the client of a real server knows.
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
                // A client that is back before the close is not answered on that connection, and
                // gives it up after two fifths of the session timeout.
                let is_over = async || (session.session_id() != Some(id)).then_some(());
                self.until("the end of a session", is_over).await;
            }
        }
    }

    /// Stops the ensemble; what it knows stays.
    ///
    /// # Panics
    /// Where it cannot be stopped.
    pub async fn stop(&self) {
        match self {
            Self::Memory(ensemble) => ensemble.stop(),
            Self::Real(server) => must("stop the server", server.stop().await),
        }
    }

    /// Starts it again.
    ///
    /// # Panics
    /// Where it cannot be started.
    pub async fn start_again(&self) {
        match self {
            Self::Memory(ensemble) => ensemble.restart(),
            Self::Real(server) => must("start the server again", server.start_again().await),
        }
    }
}

/// What an operator sees and changes.
impl TestEnsemble {
    /// Names of the children, sorted; none where the node does not exist.
    ///
    /// # Panics
    /// Where the ensemble refuses.
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
        }
    }

    /// Waits until a node has exactly so many children, and returns their names, sorted.
    ///
    /// # Panics
    /// If it does not come to that.
    pub async fn await_children(&self, path: &str, count: usize) -> Vec<String> {
        let what = format!("{count} children of {path}");
        self.until(&what, async || {
            let children = self.children(path).await;
            (children.len() == count).then_some(children)
        })
        .await
    }

    /// Gives what was asked for time to be answered, some or all of it.
    pub async fn let_something_happen(&self) {
        match self {
            Self::Memory(_) => tokio::task::yield_now().await,
            Self::Real(_) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }

    /// Asks until there is an answer, and returns it.
    ///
    /// # Panics
    /// If there is none for long.
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

    /// Data and stat of a node, `None` where it does not exist.
    ///
    /// # Panics
    /// Where the ensemble refuses.
    pub async fn read(&self, path: &str) -> Option<(Vec<u8>, NodeStat)> {
        match self {
            Self::Memory(ensemble) => ensemble.data(path).zip(ensemble.stat(path)),
            Self::Real(server) => {
                let session = Session::from_client(must("connect", server.client().await));
                must("read", session.read(path).await)
            }
        }
    }

    /// Creates a persistent node that everyone may use, and its missing parents.
    ///
    /// # Panics
    /// Where the ensemble refuses.
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
        }
    }

    /// Replaces the data of a node.
    ///
    /// # Panics
    /// Where the ensemble refuses.
    pub async fn set(&self, path: &str, data: &[u8]) {
        match self {
            Self::Memory(ensemble) => must("set", ensemble.set_data(path, data)),
            Self::Real(server) => {
                let operator = must("connect", server.client().await);
                must("set", operator.set_data(path, data, None).await);
            }
        }
    }

    /// Deletes a node.
    ///
    /// # Panics
    /// Where the ensemble refuses.
    pub async fn delete(&self, path: &str) {
        match self {
            Self::Memory(ensemble) => must("delete", ensemble.delete(path)),
            Self::Real(server) => {
                let operator = must("connect", server.client().await);
                must("delete", operator.delete(path, None).await);
            }
        }
    }

    /// Waits until the server has reaped a container and its parents.
    ///
    /// # Panics
    /// If it does not come to that.
    pub async fn await_reaper(&self, path: &str) {
        let top = path.split('/').nth(1).unwrap_or_default();
        self.until("reaped containers", async || {
            if let Self::Memory(ensemble) = self {
                ensemble.reap_containers();
            }
            self.read(&format!("/{top}")).await.is_none().then_some(())
        })
        .await;
    }

    /// Number of watches of all sessions.
    ///
    /// # Panics
    /// Where the server does not say.
    pub async fn watch_count(&self) -> usize {
        match self {
            Self::Memory(ensemble) => ensemble.watch_count(),
            Self::Real(server) => must("count watches", server.watch_count().await),
        }
    }

    /// The last transaction.
    ///
    /// # Panics
    /// Where the server does not say.
    pub async fn zxid(&self) -> i64 {
        match self {
            Self::Memory(ensemble) => ensemble.zxid(),
            Self::Real(server) => must("read the last zxid", server.zxid().await),
        }
    }
}

fn must<T, E: fmt::Display>(what: &str, outcome: Result<T, E>) -> T {
    match outcome {
        Ok(value) => value,
        Err(error) => panic!("cannot {what}: {error}"),
    }
}

/// Tries a behaviour in memory, on a paused clock, and on a real server.
///
/// Each function becomes a module with two tests. It takes a [`TestEnsemble`] that nobody else
/// uses.
#[macro_export]
macro_rules! on_every_ensemble {
    ($($(#[$meta:meta])* async fn $name:ident($($ensemble:tt)+) $body:block)+) => {$(
        $(#[$meta])*
        mod $name {
            #[allow(unused_imports, reason = "not every behaviour needs its file's imports")]
            use super::*;

            async fn behaviour($($ensemble)+) $body

            #[tokio::test(start_paused = true)]
            async fn in_memory() {
                behaviour($crate::TestEnsemble::in_memory()).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn on_a_real_server() {
                behaviour($crate::TestEnsemble::on_a_real_server().await).await;
            }
        }
    )+};
}
