//! [`Store`] in an ensemble.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::future::BoxFuture;
use recipes_core::{Nodes, NodesError, Store, Traits};
use recipes_keeper::{Sessions, Terms};
use tokio::time::timeout;
use uuid::{Builder, Uuid};

use super::nodes::MemoryNodes;
use super::traits::ZOOKEEPER;
use super::wire::MemoryServer;
use crate::memory::acl::AuthId;
use crate::memory::error::MemoryError;
use crate::memory::options::NodeRules;
use crate::memory::state::State;
use crate::memory::state::shared::Shared;

/// Opens sessions that have certain identities.
pub(crate) struct MemoryStore {
    shared: Arc<Shared>,
    identities: Arc<[AuthId]>,
    rules: NodeRules,
    only_reads: bool,
    /// Of a store as that on Redis.
    kept: OnceLock<Sessions>,
}

impl MemoryStore {
    pub(crate) fn new(
        shared: Arc<Shared>,
        identities: Arc<[AuthId]>,
        rules: NodeRules,
        only_reads: bool,
    ) -> Self {
        Self {
            shared,
            identities,
            rules,
            only_reads,
            kept: OnceLock::new(),
        }
    }

    async fn open(&self) -> Result<Arc<dyn Nodes>, NodesError> {
        let on_redis = |state: &mut State| {
            let redis = state.on_redis.as_ref()?;
            Some((redis.is_new(), redis.timeout))
        };
        if let Some((is_new, timeout)) = self.shared.with(on_redis) {
            let kept = self.kept.get_or_init(|| self.kept(is_new, timeout));
            return kept.open(&self.new_uuid().to_string()).await;
        }
        let opened = self.shared.admitted(|state| {
            let session = state.open(Arc::clone(&self.identities))?;
            Some((session, state.session_timeout))
        });
        let (session, timeout) = opened.await?;
        Ok(Arc::new(MemoryNodes::new(
            Arc::clone(&self.shared),
            session,
            timeout,
            self.rules.clone(),
        )))
    }

    /// As a service whose builder says that nobody was here before, until there was.
    fn kept(&self, is_new: bool, session_timeout: Duration) -> Sessions {
        Sessions::new(Terms {
            server: Arc::new(MemoryServer(Arc::clone(&self.shared))),
            connect_timeout: session_timeout / 4,
            session_timeout,
            is_new,
            container_rest: session_timeout,
            only_reads: self.only_reads,
        })
    }
}

impl Store for MemoryStore {
    fn traits(&self) -> Traits {
        match self.shared.with(|state| state.on_redis.is_some()) {
            true => recipes_keeper::TRAITS,
            false => ZOOKEEPER,
        }
    }

    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Nodes>, NodesError>> {
        Box::pin(async move {
            match self.shared.with(|state| state.session_timeout) {
                None => self.open().await,
                Some(limit) => match timeout(limit, self.open()).await {
                    Ok(opened) => opened,
                    Err(_) => Err(MemoryError::Unreachable.into()),
                },
            }
        })
    }

    fn new_uuid(&self) -> Uuid {
        let bytes = self.shared.with(|state| state.random.bytes());
        Builder::from_random_bytes(bytes).into_uuid()
    }

    // Never this machine's clock: two runs must see the same.
    fn suspended(&self) -> Duration {
        self.shared.with(|state| state.suspended)
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("identities", &self.identities)
            .finish_non_exhaustive()
    }
}
