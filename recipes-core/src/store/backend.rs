//! Where ZooKeeper sessions come from.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use uuid::Uuid;

use crate::clock;
use crate::store::nodes::{Nodes, NodesError};

/// Makes one [`Nodes`] for each epoch: on the ensemble, or on a double of it.
#[doc(hidden)]
pub trait Backend: fmt::Debug + Send + Sync + 'static {
    /// Opens a new ZooKeeper session.
    ///
    /// The future may be dropped at any time, and the method called again. It gives up by itself
    /// after about the session timeout, so that the caller can log and try again.
    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Nodes>, NodesError>>;

    /// A fresh random identifier for a lock node.
    ///
    /// Part of the backend so that a simulation can replay a run exactly.
    fn new_uuid(&self) -> Uuid;

    /// How long the machine has been suspended so far, which tokio's clock does not count.
    ///
    /// Part of the backend so that tests and simulations can suspend it.
    fn suspended(&self) -> Duration {
        clock::suspended()
    }

    /// Whether another session can be opened after one has ended.
    fn reconnects(&self) -> bool {
        true
    }
}
