//! Sessions of an operator, who creates nodes and sees what is left.

use std::sync::Arc;
use std::time::Duration;

use lock_recipes::Guarantee;
use recipes_core::{NewNode, NodeMode, Nodes, NodesError, Store};
use tokio::time::{Instant, sleep};

use crate::servers::LEFT_MAX;
use crate::stage::PATIENCE;

const POLL: Duration = Duration::from_millis(5);

/// One who takes no locks, and so need not wait for holders.
pub(crate) struct Operator(pub(crate) Arc<dyn Store>);

impl Operator {
    async fn connect(&self) -> Arc<dyn Nodes> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.0.connect().await {
                Ok(nodes) => return nodes,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
        }
    }

    /// Creates these nodes. Returns what the store promises its sessions.
    pub(crate) async fn create(&self, paths: &[String]) -> Guarantee {
        let mut nodes = self.connect().await;
        for path in paths {
            let node = NewNode {
                path: path.clone(),
                data: [].into(),
                mode: NodeMode::Persistent,
            };
            // A busy machine may lose its session.
            while let Err(error) = nodes.create(&node).await {
                match error {
                    NodesError::NodeExists => break,
                    NodesError::Unknown(_) | NodesError::SessionEnded => {
                        nodes = self.connect().await;
                    }
                    error => panic!("{error}"),
                }
            }
        }
        nodes.guarantee()
    }

    /// The nodes of these locks that are left when sessions of dead processes have expired.
    pub(crate) async fn left(&self, locks: &[String]) -> Vec<String> {
        // On some stores, its requests let them expire.
        let mut operator = self.connect().await;
        let until = Instant::now() + LEFT_MAX;
        let mut left = Vec::new();
        for lock in locks {
            loop {
                let nodes = match operator.list(lock).await {
                    Ok(nodes) => nodes,
                    Err(NodesError::NoNode) => Vec::new(),
                    Err(error) => {
                        assert!(Instant::now() < until + PATIENCE, "{error}");
                        operator = self.connect().await;
                        continue;
                    }
                };
                if nodes.is_empty() || Instant::now() > until {
                    left.extend(nodes.iter().map(|node| format!("{lock}/{node}")));
                    break;
                }
                sleep(POLL).await;
            }
        }
        left
    }
}
