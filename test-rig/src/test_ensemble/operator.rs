//! The operator of an ensemble on which a behaviour is tested.

use std::time::Duration;

use recipes_core::NodeStat;
use recipes_zookeeper::{Acls, ZooKeeper};
use tokio::time::Instant;
use zookeeper_client::{Client, CreateMode, Error};

use super::{TestEnsemble, must, served};

/// An awaited event that takes longer never happens.
const PATIENCE: Duration = Duration::from_secs(120);

/// The shortest and the longest pause before a real server is polled again for what no watch reports. A
/// tenth of the time that it has taken so far, so what takes seconds costs the machine little.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

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
                let operator = server.client_of_place().await;
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
        let start = Instant::now();
        let asked = async {
            loop {
                if let Some(answer) = answer().await {
                    return answer;
                }
                let (shortest, longest) = ASK_AGAIN;
                let pause = (start.elapsed() / 10).clamp(shortest, longest);
                tokio::time::sleep(pause).await;
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
                let session =
                    ZooKeeper::from_client(Client::clone(&*server.client_of_place().await));
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
                let operator = server.client_of_place().await;
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
                let operator = server.client_of_place().await;
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
                let operator = server.client_of_place().await;
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
    /// If the server does not report it, or is a ZooKeeper that others use too.
    pub async fn watch_count(&self) -> usize {
        match self {
            Self::Memory(ensemble) => ensemble.watch_count(),
            Self::Real(server) => {
                assert!(!self.is_shared(), "others set watches on this server");
                must("count watches", server.watch_count().await)
            }
            other => other.served().watch_count().await,
        }
    }

    /// Waits until all sessions have exactly `count` watches.
    ///
    /// # Panics
    /// As [`watch_count`](Self::watch_count), and if that does not happen.
    pub async fn await_watches(&self, count: usize) {
        let what = format!("{count} watches");
        let counted = async || (self.watch_count().await == count).then_some(());
        self.until(&what, counted).await;
    }

    /// Changes a watched node, and waits until whoever watches it has heard of it and watches again: until there
    /// are so many watches. A session on a database looks, and a watch stays until then.
    ///
    /// # Panics
    /// As [`watch_count`](Self::watch_count), and if nobody watches again.
    pub async fn heard_of(&self, change: impl Future<Output = ()>, watches: usize) {
        let numbers = async || match self {
            Self::Memory(_) | Self::Real(_) => 0,
            other => other.served().watch_numbers().await,
        };
        let before = numbers().await;
        change.await;
        let heard = async || {
            let is_new = before == 0 || numbers().await != before;
            (is_new && self.watch_count().await == watches).then_some(())
        };
        self.until("news of a change", heard).await;
    }

    /// The number of the last transaction.
    ///
    /// # Panics
    /// If the server does not report it, or is a ZooKeeper that others use too.
    pub async fn zxid(&self) -> i64 {
        match self {
            Self::Memory(ensemble) => ensemble.zxid(),
            Self::Real(server) => {
                assert!(!self.is_shared(), "others change nodes of this server");
                must("read the last zxid", server.zxid().await)
            }
            other => other.served().zxid().await,
        }
    }
}
