//! The members of a cluster, one of which is connected to at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use etcd_client::{Client, ConnectOptions};
use recipes_core::NodesError;

use crate::refusals::refusal_of_session;

/// The members that a URL names.
#[derive(Clone, Debug)]
pub(crate) struct Servers {
    /// `http://host:port`
    pub(crate) members: Vec<String>,
    pub(crate) login: Option<(String, Secret)>,
    /// Where the next connection is tried first.
    pub(crate) next: Arc<AtomicUsize>,
}

/// A password, which is not shown.
#[derive(Clone)]
pub(crate) struct Secret(pub(crate) String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

impl Servers {
    pub(crate) fn count(&self) -> usize {
        self.members.len()
    }

    /// The member that is tried first: the one after that of the last connection.
    pub(crate) fn first(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// This one was connected to.
    pub(crate) fn is_good(&self, member: usize) {
        self.next.store(member + 1, Ordering::Relaxed);
    }

    pub(crate) async fn client(&self, member: usize) -> Result<Client, NodesError> {
        let mut options = ConnectOptions::new().with_require_leader(true);
        if let Some((user, Secret(password))) = &self.login {
            options = options.with_user(user, password);
        }
        let member = self
            .members
            .iter()
            .cycle()
            .nth(member % self.count().max(1));
        let member = member.map(String::as_str).unwrap_or_default();
        let client = Client::connect([member], Some(options)).await;
        client.map_err(refusal_of_session)
    }
}
