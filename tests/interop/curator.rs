//! The same locks, acquired by this library and by Apache Curator.

mod election;
mod impatient;
mod inspect;
mod keys;
mod mixed;
mod multi_lock;
mod mutex;
mod read_write;
mod revocation;
mod semaphore;

use std::time::Duration;

use lock_recipes::{Acls, InterProcessMutex, Session};
use test_rig::{CuratorPeer, Place, TestEnsemble, ZooKeeperServer};
use zookeeper_client::{Client, CreateMode};

/// The path of the lock named `m` in the peer.
pub(crate) const PATH: &str = "/locks/orders";
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(20);
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A server, a session of ours and a client of Curator's named `c`.
pub(crate) struct Stage {
    pub(crate) ensemble: TestEnsemble,
    pub(crate) ours: Session,
    pub(crate) curator: CuratorPeer,
}

impl Stage {
    pub(crate) async fn set_up() -> Self {
        Self::on(test_rig::shared::on_a_real_server().await, SESSION_TIMEOUT).await
    }

    /// On a server whose watches are counted. Curator's session ends so late.
    pub(crate) async fn set_up_alone(session_timeout: Duration) -> Self {
        Self::on(test_rig::own::on_a_real_server().await, session_timeout).await
    }

    async fn on(ensemble: TestEnsemble, session_timeout: Duration) -> Self {
        let curator = CuratorPeer::start().await.unwrap();
        let ours = ensemble.session().await;
        let stage = Self {
            ensemble,
            ours,
            curator,
        };
        stage
            .curator
            .open("c", &stage.connect_string(), session_timeout)
            .await
            .unwrap();
        stage.curator.mutex("m", "c", PATH).await.unwrap();
        stage
    }

    fn place(&self) -> &Place<ZooKeeperServer, Client> {
        match &self.ensemble {
            TestEnsemble::Real(place) => place,
            _ => panic!("not a server"),
        }
    }

    pub(crate) fn connect_string(&self) -> String {
        self.place().connect_string()
    }

    pub(crate) fn mutex(&self) -> InterProcessMutex {
        InterProcessMutex::new(&self.ours, PATH).unwrap()
    }

    /// A client whose session a busy machine does not lose.
    pub(crate) async fn operator(&self) -> Client {
        Client::clone(&*self.place().client_of_place().await)
    }

    /// A counter that no lock guards, at zero, and a client for it.
    pub(crate) async fn counter(&self, path: &str) -> Client {
        let store = self.operator().await;
        let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
        store.create(path, b"0", &open).await.unwrap();
        store
    }
}

/// Reads a counter and writes it back plus one, without a version. Two at once lose an increment.
pub(crate) async fn increment(store: &Client, counter: &str) -> u64 {
    let value = count(store, counter).await;
    let next = (value + 1).to_string();
    store
        .set_data(counter, next.as_bytes(), None)
        .await
        .unwrap();
    value
}

pub(crate) async fn count(store: &Client, counter: &str) -> u64 {
    let (data, _) = store.get_data(counter).await.unwrap();
    String::from_utf8(data).unwrap().parse().unwrap()
}

pub(crate) fn sequence(node_path: &str) -> u32 {
    node_path[node_path.len() - 10..].parse().unwrap()
}
