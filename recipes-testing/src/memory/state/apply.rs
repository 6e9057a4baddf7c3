//! What requests do when they reach the server.

use std::slice;
use std::sync::Arc;

use recipes_core::{Created, EndReason, MultiError, NodeMode, NodeOpDone, NodesError};

use super::State;
use super::request::{Answer, Call, Change, Operation, Outcome, Proposed, Request, failed};
use super::session::{Delivery, Flight, Stage};
use crate::memory::acl::Permission;
use crate::memory::error::MemoryError;
use crate::memory::faults::Lost;
use crate::memory::tree::Tree;
use crate::memory::tree::access::Access;
use crate::memory::tree::node_path::NodePath;
use crate::memory::tree::transaction::Transaction;

impl State {
    /// Takes a request, and sends it at once if the session is connected. Returns its number.
    pub(crate) fn submit(&mut self, session: i64, call: Call) -> u64 {
        let path = call.path().to_owned();
        self.requests.push(Request {
            session,
            operation: call.operation(),
            path,
        });
        let Some(record) = self.sessions.get_mut(&session) else {
            return 0;
        };
        record.last_flight += 1;
        let number = record.last_flight;
        let ended = record.ended.is_some();
        let settled = call.settled_by_client();
        let stage = Stage::Queued(call.clone());
        record.flights.insert(
            number,
            Flight {
                stage,
                waker: None,
                wanted: true,
                settled: settled.is_some(),
            },
        );
        if let Some(outcome) = settled {
            self.answer(session, number, outcome, Delivery::default());
        } else if ended {
            self.fail(session, number, NodesError::SessionEnded);
        } else if self.is_connected(session) {
            self.send(session, number, call);
        }
        number
    }

    /// Carries out a request of a connected session, with the faults that are due.
    pub(crate) fn perform(&mut self, session: i64, number: u64, call: &Call) {
        if self.random.per_mille(self.faults.expiry_per_mille) && !self.is_behind(session) {
            self.end(session, EndReason::Expired);
            return;
        }
        let lost = self.next_loss(session, &[call.operation()]);
        if self.is_stuck(session, call.is_write()) {
            self.never_answer(session, number);
        } else {
            let outcome = match lost {
                Some(Lost::BeforeCommit) => Err(failed(MemoryError::ReplyLost)),
                Some(Lost::AfterCommit) | None => self.carry_out(session, call),
            };
            let delivery = self.next_delivery(session);
            self.answer(session, number, outcome, delivery);
        }
        if lost.is_some() {
            self.blip(session);
        }
    }

    /// Whether the connection breaks under these requests.
    pub(crate) fn next_loss(&mut self, session: i64, operations: &[Operation]) -> Option<Lost> {
        let mut ambushes = self.ambushes.iter();
        let ambush = ambushes.position(|ambush| ambush.matches(session, operations));
        match ambush {
            Some(index) => Some(self.ambushes.remove(index).lost),
            None => self.faults.lost(&mut self.random),
        }
    }

    pub(crate) fn carry_out(&mut self, session: i64, call: &Call) -> Outcome {
        let identities = self
            .sessions
            .get(&session)
            .map(|record| Arc::clone(&record.identities));
        let access = Access::Session(identities.unwrap_or_default());
        let outcome = match call {
            Call::List(path) => return self.list(session, path, &access).map_err(failed),
            Call::ListAll(paths) => return self.list_all(session, paths, &access).map_err(failed),
            Call::Multi(changes) => self.multi(session, changes, &access).map(Answer::Done),
            Call::Create(proposed) => self
                .create(session, proposed, &access)
                .map(Answer::Created)
                .map_err(failed),
            Call::Delete(path) => self.delete(path, &access).map_err(failed),
            Call::Read(path) => self.read(session, path, &access).map_err(failed),
            Call::Stat(path) => self.stat_of(session, path, &access).map_err(failed),
            Call::Watch(path) => self.watch(session, path, &access).map_err(failed),
            Call::Sync(path) => self.sync(path).map_err(failed),
        };
        // The replica of this session has now applied everything that the leader had, even if the
        // leader has refused the request.
        self.note_applied(session, self.zxid_of(session));
        outcome
    }

    pub(crate) fn create(
        &mut self,
        session: i64,
        proposed: &Proposed,
        access: &Access,
    ) -> Result<Created, NodesError> {
        match self.admit_create(proposed, access) {
            // A server that does not know the request gives it no transaction number.
            Err(NodesError::Unsupported) => Err(NodesError::Unsupported),
            admitted => self.transact(|tree, transaction| {
                admitted?;
                tree.create(transaction, proposed, session, access)
            }),
        }
    }

    fn admit_create(&self, proposed: &Proposed, access: &Access) -> Result<(), NodesError> {
        let node = &proposed.node;
        if node.mode == NodeMode::Container && !self.containers {
            return Err(NodesError::Unsupported);
        }
        match access {
            Access::Operator => Ok(()),
            Access::Session(_) => self.refuse_denied(&node.path, Operation::Create),
        }
    }

    fn delete(&mut self, path: &str, access: &Access) -> Result<Answer, NodesError> {
        let admitted = self.refuse_denied(path, Operation::Delete);
        let path = NodePath::parse(path)?;
        self.transact(|tree, transaction| {
            admitted?;
            tree.delete(transaction, &path, None, access)
        })?;
        Ok(Answer::Deleted)
    }

    pub(super) fn list(
        &mut self,
        session: i64,
        path: &str,
        access: &Access,
    ) -> Result<Answer, NodesError> {
        self.refuse_denied(path, Operation::List)?;
        let path = NodePath::parse(path)?;
        self.readable(session, &path, access)?;
        let view = self.next_view(session, slice::from_ref(&path));
        Ok(Answer::Names(self.names(session, &path, view)))
    }

    /// All directories are listed from one state of the tree.
    fn list_all(
        &mut self,
        session: i64,
        paths: &[String],
        access: &Access,
    ) -> Result<Answer, NodesError> {
        let mut admitted = Vec::with_capacity(paths.len());
        for path in paths {
            let denied = self
                .refuse_denied(path, Operation::List)
                .and_then(|()| self.refuse_denied(path, Operation::ListAll));
            let path = NodePath::parse(path)?;
            admitted
                .push(denied.and_then(|()| self.readable(session, &path, access).map(|()| path)));
        }
        let directories: Vec<NodePath> = admitted.iter().flatten().cloned().collect();
        let view = self.next_view(session, &directories);
        let listings = admitted.into_iter();
        let listings = listings.map(|path| Ok(self.names(session, &path?, view)));
        Ok(Answer::AllNames(listings.collect()))
    }

    fn readable(&self, session: i64, path: &NodePath, access: &Access) -> Result<(), NodesError> {
        let node = self.tree_of(session).get(path).ok_or(NodesError::NoNode)?;
        access.require(&node.acl, Permission::READ)
    }

    /// The state of some directories that the session's replica shows: the latest, or an earlier
    /// one.
    fn next_view(&mut self, session: i64, directories: &[NodePath]) -> i64 {
        let mut view = self.zxid_of(session);
        if self.random.per_mille(self.faults.stale_list_per_mille) {
            let record = self.sessions.get(&session);
            let applied = record.map_or(view, |record| record.applied);
            let older = self.tree_of(session).older_views(directories, applied);
            let choice = self.random.below(u64::try_from(older.len()).unwrap_or(0));
            let choice = usize::try_from(choice)
                .ok()
                .and_then(|index| older.get(index));
            view = choice.copied().unwrap_or(view);
        }
        self.note_applied(session, view);
        view
    }

    /// The server promises no order. This order is neither sorted nor by age, so that no code
    /// relies on it: every second child comes first.
    fn names(&self, session: i64, path: &NodePath, view: i64) -> Vec<String> {
        let names = self.tree_of(session).children_at(path, view);
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for (index, name) in names.into_iter().enumerate() {
            match index % 2 {
                1 => first.push(name),
                _ => last.push(name),
            }
        }
        first.append(&mut last);
        first
    }

    fn read(&mut self, session: i64, path: &str, access: &Access) -> Result<Answer, NodesError> {
        self.refuse_denied(path, Operation::Read)?;
        let Some(node) = self.tree_of(session).get(&NodePath::parse(path)?) else {
            return Ok(Answer::Node(None));
        };
        access.require(&node.acl, Permission::READ)?;
        Ok(Answer::Node(Some((node.data.to_vec(), node.stat()))))
    }

    /// This needs no permission before 3.8.4 and 3.9.2.
    fn stat_of(&mut self, session: i64, path: &str, access: &Access) -> Result<Answer, NodesError> {
        self.refuse_denied(path, Operation::Stat)?;
        let Some(node) = self.tree_of(session).get(&NodePath::parse(path)?) else {
            return Ok(Answer::Stat(None));
        };
        if self.stats_need_read {
            access.require(&node.acl, Permission::READ)?;
        }
        Ok(Answer::Stat(Some(node.stat())))
    }

    fn watch(&mut self, session: i64, path: &str, access: &Access) -> Result<Answer, NodesError> {
        self.refuse_denied(path, Operation::Watch)?;
        let Some(node) = self.tree_of(session).get(&NodePath::parse(path)?) else {
            return Ok(Answer::Watched(None));
        };
        access.require(&node.acl, Permission::READ)?;
        let (data, stat) = (node.data.to_vec(), node.stat());
        let number = self.watches.add(session, path, stat.mzxid);
        Ok(Answer::Watched(Some((data, stat, number))))
    }

    fn sync(&mut self, path: &str) -> Result<Answer, NodesError> {
        self.refuse_denied(path, Operation::Sync)?;
        NodePath::parse(path)?;
        Ok(Answer::Synced)
    }

    pub(super) fn multi(
        &mut self,
        session: i64,
        changes: &[Change],
        access: &Access,
    ) -> Result<Vec<NodeOpDone>, MultiError> {
        let admitted: Vec<Result<(), NodesError>> = changes
            .iter()
            .map(|change| self.admit(change, access))
            .collect();
        let says_czxid = self.stats_in_transactions;
        let done: Result<Vec<_>, _> = self.transact(|tree, transaction| {
            let steps = changes.iter().zip(admitted).enumerate();
            steps
                .map(|(index, (change, admitted))| {
                    admitted
                        .and_then(|()| step(tree, transaction, change, session, access))
                        .map_err(|source| MultiError {
                            index: Some(index),
                            source,
                        })
                })
                .collect()
        });
        let mut done = done?;
        for done in &mut done {
            if let NodeOpDone::Created(created) = done {
                created.czxid = created.czxid.filter(|_| says_czxid);
            }
        }
        Ok(done)
    }

    fn admit(&self, change: &Change, access: &Access) -> Result<(), NodesError> {
        let path = change.path();
        self.refuse_denied(path, Operation::Multi)?;
        match change {
            Change::Create(proposed) => self.admit_create(proposed, access),
            Change::Delete { .. } => self.refuse_denied(path, Operation::Delete),
            Change::Set { .. } | Change::Check { .. } => Ok(()),
        }
    }
}

fn step(
    tree: &mut Tree,
    transaction: &mut Transaction,
    change: &Change,
    session: i64,
    access: &Access,
) -> Result<NodeOpDone, NodesError> {
    match change {
        Change::Create(proposed) => {
            let created = tree.create(transaction, proposed, session, access)?;
            Ok(NodeOpDone::Created(created))
        }
        Change::Delete { path, version } => {
            tree.delete(transaction, &NodePath::parse(path)?, *version, access)?;
            Ok(NodeOpDone::Deleted)
        }
        Change::Set {
            path,
            data,
            version,
        } => {
            let path = NodePath::parse(path)?;
            Ok(NodeOpDone::Set(tree.set(
                transaction,
                &path,
                data,
                *version,
                access,
            )?))
        }
        Change::Check { path, version } => {
            tree.check(&NodePath::parse(path)?, *version, access)?;
            Ok(NodeOpDone::Checked)
        }
    }
}
