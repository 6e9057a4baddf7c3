//! The requests of an inspection.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::TryStreamExt;
use futures::stream::{self, StreamExt};
use tokio::sync::Semaphore;
use tracing::debug;

use crate::error::QueryError;
use crate::inspect::Inspection;
use crate::inspect::participants::{Participant, REQUESTS_AT_ONCE};
use crate::inspect::standing::Child;
use crate::lock::session::Session;
use crate::log::{Causes, SESSION};
use crate::names::node_name::{self, LockKind};
use crate::session::epoch::Epoch;
use crate::store::retry::persist;

/// How many nodes of one directory are read at a time.
const READS_AT_ONCE: usize = 32;

/// How much data of a stranger's node is kept, for people to recognize it. There may be thousands
/// of such nodes, with a megabyte each.
const STRANGER_BYTES_MAX: usize = 1_000;

/// The node that a store keeps for itself; no lock may be there.
const OF_THE_STORE: &str = "/zookeeper";

/// A node in a lock directory.
#[derive(Debug)]
pub(super) struct ReadNode {
    pub(super) participant: Participant,
    pub(super) is_readable: bool,
}

impl ReadNode {
    /// Of a stranger's data only the beginning is kept.
    fn new(participant: Participant, is_readable: bool) -> Self {
        let mut node = Self {
            participant,
            is_readable,
        };
        if node.child().mode().is_none() {
            let data = &mut node.participant.data;
            data.truncate(STRANGER_BYTES_MAX);
            data.shrink_to_fit();
        }
        node
    }

    pub(super) fn child(&self) -> Child<'_> {
        Child {
            name: node_name::last_part(&self.participant.path),
            session: self
                .participant
                .is_described
                .then_some(self.participant.session_id),
        }
    }
}

/// A node that may be a lock, and may have other locks below it.
#[derive(Debug, Default)]
pub(super) struct Directory {
    /// Its children, if one of them has the name of a lock node.
    pub(super) nodes: Vec<ReadNode>,
    /// The kinds of children with such names that were gone when they were read.
    pub(super) left: Vec<LockKind>,
    /// Paths of the children that may have children.
    pub(super) below: Vec<String>,
}

impl Directory {
    fn add(&mut self, path: &str, seen: Option<(ReadNode, i32)>) {
        match seen {
            Some((node, children)) => {
                if children > 0 {
                    self.below.push(path.to_owned());
                }
                self.nodes.push(node);
            }
            None => self
                .left
                .extend(node_name::kind(node_name::last_part(path))),
        }
    }
}

/// Sends the requests, with a bound on how many are in flight at a time.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    session: &'a Session,
    permits: Semaphore,
}

impl<'a> Reader<'a> {
    pub(super) fn new(session: &'a Session) -> Self {
        Self {
            session,
            permits: Semaphore::new(REQUESTS_AT_ONCE),
        }
    }

    /// Makes sure that later reads see everything that was committed before.
    pub(super) async fn sync(&self, path: &str) -> Result<(), QueryError> {
        let sync = async |epoch: Arc<Epoch>| {
            let nodes = epoch.nodes()?;
            persist(|| nodes.sync(path)).await
        };
        self.session.core().query(path, sync).await
    }

    /// Lists a directory, and reads all its nodes if it looks like a lock directory.
    pub(super) async fn directory(&self, path: &str) -> Result<Directory, QueryError> {
        let names = self.list(path).await?;
        let paths = names.iter().map(|name| match path {
            "/" => format!("/{name}"),
            path => format!("{path}/{name}"),
        });
        let paths: Vec<_> = paths.filter(|path| path != OF_THE_STORE).collect();
        let mut directory = Directory::default();
        if names.iter().all(|name| node_name::kind(name).is_none()) {
            directory.below = paths;
            return Ok(directory);
        }
        let seen = stream::iter(paths).map(|path| async move {
            let seen = self.node(&path).await?;
            Ok::<_, QueryError>((path, seen))
        });
        let mut seen = seen.buffered(READS_AT_ONCE);
        while let Some((path, seen)) = seen.try_next().await? {
            directory.add(&path, seen);
        }
        Ok(directory)
    }

    /// Says of each contender whether its session is silent. If the store does not answer that, none is.
    pub(super) async fn tell_silence(&self, locks: &mut [Inspection]) {
        let contenders = || locks.iter().flat_map(|lock| &lock.contenders);
        let sessions: BTreeSet<_> = contenders().map(|it| it.participant.session_id).collect();
        let ask = async |epoch: Arc<Epoch>| {
            let nodes = epoch.nodes()?;
            // It is being heard, and 0 is nobody.
            let others = sessions
                .into_iter()
                .filter(|it| ![0, nodes.session()].contains(it));
            let others: Vec<_> = others.collect();
            match others.is_empty() {
                true => Ok(Vec::new()),
                false => nodes.silent(&others).await,
            }
        };
        let silent = match self.session.core().query("/", ask).await {
            Ok(told) => BTreeMap::from_iter(told),
            Err(error) => {
                debug!(target: SESSION, error = %Causes(&error), "who is silent is not known");
                return;
            }
        };
        for it in locks.iter_mut().flat_map(|lock| &mut lock.contenders) {
            it.silent_for = silent.get(&it.participant.session_id).copied();
        }
    }

    /// The names of the children of a node.
    pub(super) async fn list(&self, path: &str) -> Result<Vec<String>, QueryError> {
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await.ok();
        let list = async |epoch: Arc<Epoch>| {
            let nodes = epoch.nodes()?;
            persist(|| nodes.list(path)).await
        };
        self.session.core().query(path, list).await
    }

    /// Reads a node and the number of its children; `None` if it does not exist.
    pub(super) async fn node(&self, path: &str) -> Result<Option<(ReadNode, i32)>, QueryError> {
        let _permit = self.permits.acquire().await.ok();
        match self.session.node(path).await {
            Err(error) if is_no_auth(&error) => self.node_without_data(path).await,
            read => Ok(read?.map(|(data, stat)| {
                let participant = Participant::new(path.to_owned(), data, &stat);
                (ReadNode::new(participant, true), stat.children)
            })),
        }
    }

    /// A node whose data may not be read. Its stat may be refused as well: ZooKeeper requires READ
    /// for it since 3.8.4 and 3.9.2.
    async fn node_without_data(&self, path: &str) -> Result<Option<(ReadNode, i32)>, QueryError> {
        let stat = async |epoch: Arc<Epoch>| {
            let nodes = epoch.nodes()?;
            persist(|| nodes.stat(path)).await
        };
        let (participant, children) = match self.session.core().query(path, stat).await {
            Err(error) if is_no_auth(&error) => {
                // A contender's node has no children. What is below another one may not be listed
                // either, and is reported so.
                let is_contender = node_name::kind(node_name::last_part(path)).is_some();
                (
                    Participant::of_name(path.to_owned()),
                    i32::from(!is_contender),
                )
            }
            stat => match stat? {
                Some(stat) => (
                    Participant::new(path.to_owned(), Vec::new(), &stat),
                    stat.children,
                ),
                None => return Ok(None),
            },
        };
        Ok(Some((ReadNode::new(participant, false), children)))
    }
}

fn is_no_auth(error: &QueryError) -> bool {
    matches!(error, QueryError::NotAuthorized { .. })
}
