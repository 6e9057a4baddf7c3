//! The world of a script on a real server that runs our functions.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use recipes_core::{NewNode, NodeMode, Nodes, NodesError, SessionOptions};
use test_rig::TestEnsemble;

use crate::client::{Client, Lists};
use crate::gate::Gate;
use crate::seen::Leaf;
use crate::world::SESSION_TIMEOUT;

/// Scripts do not know when a container is removed.
const CONTAINER_REST: Duration = Duration::from_secs(1_000_000);

#[derive(Clone)]
pub(crate) struct Served {
    ensemble: Arc<TestEnsemble>,
    operator: Arc<dyn Nodes>,
}

impl Served {
    pub(crate) async fn on(ensemble: TestEnsemble) -> Self {
        Self {
            operator: session(&ensemble, None).await,
            ensemble: Arc::new(ensemble),
        }
    }

    /// Whether events have no order among replies: on a database, whose sessions look for news, and on etcd, where
    /// they are another stream.
    pub(crate) fn tells_apart(&self) -> bool {
        !matches!(*self.ensemble, TestEnsemble::Redis(_))
    }

    pub(crate) fn is_etcd(&self) -> bool {
        matches!(*self.ensemble, TestEnsemble::Etcd(_))
    }

    pub(crate) async fn create(&self, directory: &str) {
        let node = NewNode {
            path: directory.to_owned(),
            data: Arc::from([]),
            mode: NodeMode::Persistent,
        };
        self.operator.create(&node).await.unwrap();
    }

    pub(crate) async fn open(&self, cut_off: bool) -> Client {
        let gate = match cut_off {
            true => Some(Gate::before(self.ensemble.port()).await.unwrap()),
            false => None,
        };
        let through = gate.as_ref().map(Gate::connect_string);
        let nodes = session(&self.ensemble, through.as_deref()).await;
        Client::new(nodes, Lists::default(), gate)
    }

    pub(crate) async fn expire(&self, session: i64) {
        self.ensemble.end_session(session).await;
    }

    pub(crate) async fn tree(&self, directory: &str) -> Vec<Leaf> {
        tree(&*self.operator, directory.to_owned()).await
    }
}

async fn session(ensemble: &TestEnsemble, through: Option<&str>) -> Arc<dyn Nodes> {
    let options = SessionOptions::new().session_timeout(SESSION_TIMEOUT);
    let store = ensemble.store_at(through, options, CONTAINER_REST);
    loop {
        match store.connect().await {
            // A busy member of etcd takes longer than a session waits for it. It is tried again, as by the options.
            Err(NodesError::Unknown(_)) if matches!(ensemble, TestEnsemble::Etcd(_)) => {}
            connected => return connected.unwrap(),
        }
    }
}

fn tree(operator: &dyn Nodes, path: String) -> BoxFuture<'_, Vec<Leaf>> {
    Box::pin(async move {
        let (read, listed) = (operator.read(&path), operator.list(&path));
        // A child that is listed and is no node shows up as a leaf of its own.
        let (data, stat) = read.await.unwrap().unzip();
        let mut names = listed.await.unwrap_or_default();
        names.sort_unstable();
        let leaf = stat.map(|stat| Leaf {
            path: path.clone(),
            owner: stat.ephemeral_owner,
            data: format!("{:?}", String::from_utf8_lossy(&data.unwrap_or_default())),
            czxid: stat.czxid,
            mzxid: stat.mzxid,
            pzxid: stat.pzxid,
            version: stat.version,
            cversion: stat.cversion,
        });
        let mut leaves = vec![leaf.unwrap_or_else(|| Leaf::missing(&path))];
        let children = names
            .iter()
            .map(|name| tree(operator, format!("{path}/{name}")));
        leaves.extend(join_all(children).await.into_iter().flatten());
        leaves
    })
}
