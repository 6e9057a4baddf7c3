//! Clients of Curator, behind the same proxies.

use std::time::{Duration, SystemTime};

use futures::future::join_all;
use test_rig::CuratorPeer;
use tokio::time::{sleep, timeout};

use super::{PATIENCE, Returned};

pub(super) struct Curators {
    peer: CuratorPeer,
    /// The name and the first session of each.
    clients: Vec<(String, i64)>,
}

impl Curators {
    pub(super) async fn start(addresses: &str, count: usize, timeout: Duration) -> Self {
        let peer = CuratorPeer::start().await.unwrap();
        let open = (0..count).map(async |number| {
            let name = format!("c{number}");
            let id = peer.open(&name, addresses, timeout).await.unwrap();
            (name, id)
        });
        let clients = join_all(open).await;
        Self { peer, clients }
    }

    /// How the clients have come back: when they told their listeners.
    pub(super) async fn returned(&self, back: SystemTime) -> Returned {
        let returns = self.clients.iter().map(async |(name, id)| {
            let connected = async {
                loop {
                    // Not yet told of the last moments of the outage.
                    sleep(Duration::from_millis(100)).await;
                    let (state, since) = self.peer.state_since(name).await.unwrap();
                    if state == "RECONNECTED" || state == "CONNECTED" {
                        return since.duration_since(back).unwrap_or_default();
                    }
                }
            };
            let after = timeout(PATIENCE, connected).await.unwrap();
            let is_kept = self.peer.session(name).await.unwrap() == *id;
            is_kept.then_some(after)
        });
        Returned::of(join_all(returns).await)
    }
}
