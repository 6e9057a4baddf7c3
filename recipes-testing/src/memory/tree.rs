//! The znodes, and how they change.
//!
//! | file | noun |
//! |---|---|
//! | `node_path` | a path, checked and split |
//! | `access` | who may do what to a node |
//! | `transaction` | one change of the tree, until it is committed or undone |
//! | `lag` | the latest changes of directories, which a lagging replica does not show |

pub(super) mod access;
mod lag;
pub(super) mod node_path;
pub(super) mod transaction;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use recipes_core::{Created, NodeEvent, NodeMode, NodeStat, NodesError};

use super::acl::{Acl, Permission};
use super::error::MemoryError;
use super::state::request::Proposed;
use access::Access;
use lag::{Change, Lag};
use node_path::NodePath;
use transaction::Transaction;

/// When a node is deleted by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Persistent,
    Container,
    Ephemeral(i64),
}

/// One znode.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) data: Arc<[u8]>,
    pub(crate) acl: Arc<[Acl]>,
    kind: Kind,
    /// What the ensemble has put at the end of its name.
    sequence: Option<i32>,
    czxid: i64,
    mzxid: i64,
    pzxid: i64,
    version: i32,
    ctime_ms: i64,
    children: i32,
    /// Children ever created; the next sequence.
    created: i32,
}

impl Node {
    pub(crate) fn stat(&self) -> NodeStat {
        let owner = match self.kind {
            Kind::Ephemeral(session) => session,
            Kind::Persistent | Kind::Container => 0,
        };
        let mut stat = NodeStat::new(self.czxid, self.mzxid, self.version, owner, self.ctime_ms);
        stat.children = self.children;
        stat.cversion = self.cversion();
        stat.pzxid = self.pzxid;
        stat
    }

    /// What the ensemble has put at the end of its name.
    pub(crate) fn sequence(&self) -> Option<i32> {
        self.sequence
    }

    /// Number of changes of the children. The server also derives it from the count of creations.
    fn cversion(&self) -> i32 {
        self.created.wrapping_mul(2).wrapping_sub(self.children)
    }

    fn expect_version(&self, version: Option<i32>) -> Result<(), NodesError> {
        match version {
            // On the wire as well, -1 means any version.
            None | Some(-1) => Ok(()),
            Some(version) if version == self.version => Ok(()),
            Some(_) => Err(NodesError::BadVersion),
        }
    }
}

/// All znodes, and their recent states.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    nodes: BTreeMap<NodePath, Node>,
    lag: Lag,
    /// Whether watches report that a node was the first of its siblings.
    tells_first: bool,
}

impl Tree {
    pub(crate) fn new(time_ms: i64, tells_first: bool) -> Self {
        let root = Node {
            data: Arc::from([]),
            acl: Acl::open(),
            kind: Kind::Persistent,
            sequence: None,
            czxid: 0,
            mzxid: 0,
            pzxid: 0,
            version: 0,
            ctime_ms: time_ms,
            children: 0,
            created: 0,
        };
        Self {
            nodes: BTreeMap::from([(NodePath::root(), root)]),
            lag: Lag::default(),
            tells_first,
        }
    }

    pub(crate) fn tells_first(&self) -> bool {
        self.tells_first
    }

    pub(crate) fn get(&self, path: &NodePath) -> Option<&Node> {
        self.nodes.get(path)
    }

    /// Names of the children, sorted.
    pub(crate) fn children(&self, path: &NodePath) -> Vec<String> {
        let first = path.first_child();
        self.nodes
            .range(&first..)
            .take_while(|(child, _)| child.is_sibling(&first))
            .map(|(child, _)| child.name().to_owned())
            .collect()
    }

    /// The older states of some directories that a session that has seen `floor` may be shown. All
    /// the directories exist in each of them.
    pub(crate) fn older_views(&self, paths: &[NodePath], floor: i64) -> Vec<i64> {
        let directories = paths.iter().filter_map(|path| self.nodes.get(path));
        let floor = directories.fold(floor, |floor, directory| floor.max(directory.czxid));
        let views = paths
            .iter()
            .flat_map(|path| self.lag.views_since(path, floor));
        let views: BTreeSet<i64> = views.collect();
        views.into_iter().collect()
    }

    /// Names of the children, sorted, as shown by a replica that has applied `zxid` and nothing
    /// later.
    pub(crate) fn children_at(&self, path: &NodePath, zxid: i64) -> Vec<String> {
        let names = self.children(path);
        if self.lag.is_latest(zxid) {
            return names;
        }
        let mut names: BTreeSet<String> = names.into_iter().collect();
        self.lag.rewind(path, zxid, &mut names);
        names.into_iter().collect()
    }

    // Checks come in the order of the server's PrepRequestProcessor, so that a request with two
    // faults is refused for the same one.
    pub(crate) fn create(
        &mut self,
        transaction: &mut Transaction,
        proposed: &Proposed,
        owner: i64,
        access: &Access,
    ) -> Result<Created, NodesError> {
        let new = &proposed.node;
        let sequential = new.mode == NodeMode::EphemeralSequential;
        let with_sequence = |sequence: i32| match sequential {
            true => NodePath::parse(&format!("{}{sequence:010}", new.path)),
            false => NodePath::parse(&new.path),
        };
        let acl = access.resolve(&proposed.acl)?;
        let Some(directory) = with_sequence(0)?.parent() else {
            return Err(NodesError::NodeExists);
        };
        let mut parent = self
            .nodes
            .get(&directory)
            .cloned()
            .ok_or(NodesError::NoNode)?;
        access.require(&parent.acl, Permission::CREATE)?;
        let sequence = parent.created;
        let path = with_sequence(sequence)?;
        if self.nodes.contains_key(&path) {
            return Err(NodesError::NodeExists);
        }
        if matches!(parent.kind, Kind::Ephemeral(_)) {
            return Err(MemoryError::EphemeralParent(directory.to_string()).into());
        }
        let zxid = transaction.zxid;
        // As on servers since 3.6, the last number is given again and again.
        parent.created = parent.created.saturating_add(1);
        parent.children += 1;
        parent.pzxid = zxid;
        let node = Node {
            data: Arc::clone(&new.data),
            acl,
            kind: match new.mode {
                NodeMode::Persistent => Kind::Persistent,
                NodeMode::Container => Kind::Container,
                NodeMode::Ephemeral | NodeMode::EphemeralSequential => Kind::Ephemeral(owner),
            },
            sequence: sequential.then_some(sequence),
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            version: 0,
            ctime_ms: transaction.time_ms,
            children: 0,
            created: 0,
        };
        let name = path.name().to_owned();
        let created = Created {
            path: path.to_string(),
            czxid: Some(zxid),
        };
        self.put(transaction, path, Some(node));
        self.put(transaction, directory.clone(), Some(parent));
        transaction.changes.push(Change {
            zxid,
            directory,
            name,
            created: true,
        });
        Ok(created)
    }

    pub(crate) fn delete(
        &mut self,
        transaction: &mut Transaction,
        path: &NodePath,
        version: Option<i32>,
        access: &Access,
    ) -> Result<(), NodesError> {
        let invalid = || MemoryError::InvalidPath(path.to_string());
        let directory = path.parent().ok_or_else(invalid)?;
        let mut parent = self
            .nodes
            .get(&directory)
            .cloned()
            .ok_or(NodesError::NoNode)?;
        access.require(&parent.acl, Permission::DELETE)?;
        let node = self.nodes.get(path).ok_or(NodesError::NoNode)?;
        node.expect_version(version)?;
        if node.children > 0 {
            return Err(MemoryError::NotEmpty(path.to_string()).into());
        }
        let event = match self.tells_first && self.is_first(path, node) {
            true => NodeEvent::DeletedAsFirst,
            false => NodeEvent::Deleted,
        };
        let zxid = transaction.zxid;
        parent.children -= 1;
        parent.pzxid = zxid;
        let name = path.name().to_owned();
        self.put(transaction, path.clone(), None);
        self.put(transaction, directory.clone(), Some(parent));
        transaction.changes.push(Change {
            zxid,
            directory,
            name,
            created: false,
        });
        transaction.events.push((path.to_string(), event));
        Ok(())
    }

    /// Whether the ensemble has given it a number, and no sibling has a lower one or none.
    fn is_first(&self, path: &NodePath, node: &Node) -> bool {
        let Some(own) = node.sequence.filter(|own| *own > 0) else {
            return false;
        };
        let Some(first) = path.parent().map(|it| it.first_child()) else {
            return false;
        };
        let mut siblings = self
            .nodes
            .range(&first..)
            .take_while(|(child, _)| child.is_sibling(&first));
        siblings.all(|(_, it)| it.sequence.unwrap_or_default() >= own)
    }

    pub(crate) fn set(
        &mut self,
        transaction: &mut Transaction,
        path: &NodePath,
        data: &[u8],
        version: Option<i32>,
        access: &Access,
    ) -> Result<NodeStat, NodesError> {
        let mut node = self.nodes.get(path).cloned().ok_or(NodesError::NoNode)?;
        access.require(&node.acl, Permission::WRITE)?;
        node.expect_version(version)?;
        node.data = Arc::from(data);
        node.version = node.version.wrapping_add(1);
        node.mzxid = transaction.zxid;
        let stat = node.stat();
        self.put(transaction, path.clone(), Some(node));
        transaction
            .events
            .push((path.to_string(), NodeEvent::Changed));
        Ok(stat)
    }

    pub(crate) fn check(
        &self,
        path: &NodePath,
        version: Option<i32>,
        access: &Access,
    ) -> Result<(), NodesError> {
        let node = self.nodes.get(path).ok_or(NodesError::NoNode)?;
        access.require(&node.acl, Permission::READ)?;
        node.expect_version(version)
    }

    pub(crate) fn commit(&mut self, changes: Vec<Change>) {
        self.lag.record(changes);
    }

    pub(crate) fn roll_back(&mut self, transaction: Transaction) {
        for (path, before) in transaction.undo.into_iter().rev() {
            match before {
                Some(node) => self.nodes.insert(path, node),
                None => self.nodes.remove(&path),
            };
        }
    }

    pub(crate) fn owned_by(&self, session: i64) -> Vec<NodePath> {
        self.paths_where(|node| node.kind == Kind::Ephemeral(session))
    }

    /// Containers that are empty and have had a child.
    pub(crate) fn abandoned_containers(&self) -> Vec<NodePath> {
        self.paths_where(|node| {
            node.kind == Kind::Container && node.children == 0 && node.created != 0
        })
    }

    pub(crate) fn set_sequence(&mut self, path: &NodePath, next: i32) -> Result<(), NodesError> {
        self.nodes.get_mut(path).ok_or(NodesError::NoNode)?.created = next;
        Ok(())
    }

    /// One line for each node, parents before their children.
    pub(crate) fn dump(&self) -> String {
        let mut dump = String::new();
        let mut paths = vec![NodePath::root()];
        while let Some(path) = paths.pop() {
            let Some(node) = self.nodes.get(&path) else {
                continue;
            };
            let kind = match node.kind {
                Kind::Persistent => "persistent".to_owned(),
                Kind::Container => "container".to_owned(),
                Kind::Ephemeral(session) => format!("ephemeral {session:#x}"),
            };
            // Writing to a string does not fail.
            writeln!(
                dump,
                "{path} {kind} czxid={:#x} mzxid={:#x} pzxid={:#x} version={} cversion={} data={:?}",
                node.czxid,
                node.mzxid,
                node.pzxid,
                node.version,
                node.cversion(),
                String::from_utf8_lossy(&node.data),
            )
            .unwrap_or_default();
            paths.extend(
                self.children(&path)
                    .iter()
                    .rev()
                    .map(|name| path.child(name)),
            );
        }
        dump
    }

    fn put(&mut self, transaction: &mut Transaction, path: NodePath, node: Option<Node>) {
        let before = match node {
            Some(node) => self.nodes.insert(path.clone(), node),
            None => self.nodes.remove(&path),
        };
        transaction.undo.push((path, before));
    }

    fn paths_where(&self, wanted: impl Fn(&Node) -> bool) -> Vec<NodePath> {
        self.nodes
            .iter()
            .filter(|(_, node)| wanted(node))
            .map(|(path, _)| path.clone())
            .collect()
    }
}
