//! One create of an attempt, and what its directory is known to be. The only place that asks
//! [`Vacancy`](crate::lock::directory::Vacancy).

use std::sync::Arc;

use uuid::Uuid;

use crate::lock::directory::Watched;
use crate::lock::target::Target;
use crate::names::node_name;
use crate::rules::admission::Place;
use crate::store::nodes::Nodes;
use crate::sync::lock;

/// A member and the uuid of its create, which is in flight or of unknown outcome.
#[derive(Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) member: usize,
    pub(crate) target: &'a Target,
    pub(crate) uuid: Uuid,
}

impl Ask<'_> {
    fn queues(&self) -> bool {
        self.target.place() == Place::Tail
    }

    /// Whether a listing is needed to find the nodes ahead.
    pub(crate) fn needs_listing(&self) -> bool {
        self.queues() && !lock(&self.target.lock.vacancy).is_expected()
    }

    /// Watches the directory if that may save later acquires a listing.
    pub(crate) fn watch<'n>(
        &self,
        nodes: &'n dyn Nodes,
    ) -> Option<impl Future<Output = ()> + Send + use<'n>> {
        let known = Arc::clone(&self.target.lock);
        if !self.queues() || !lock(&known.vacancy).wants_watch() {
            return None;
        }
        if !known.session.core().store.traits().watches_directories {
            return None;
        }
        let (connection, watched) = (nodes.connection(), nodes.watch(&known.path));
        Some(async move {
            let watched = watched.await.ok().flatten();
            let watched = watched.map(|it| Watched::new(it, connection));
            lock(&known.vacancy).note_watch(watched);
        })
    }

    /// Whether everything created before this node is gone, judged by its sequence number.
    pub(crate) fn claim_as_first(&self, name: &str) -> bool {
        let sequence = node_name::count(name).filter(|_| self.queues());
        sequence.is_some_and(|it| lock(&self.target.lock.vacancy).claim_as_first(it))
    }
}
