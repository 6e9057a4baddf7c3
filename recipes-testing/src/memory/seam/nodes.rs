//! [`Nodes`] of one session.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{FutureExt as _, StreamExt as _, future};
use recipes_core::{
    Connection, Created, EndReason, Guarantee, Listing, MultiError, NewNode, NodeOp, NodeOpDone,
    NodeStat, NodeWatch, Nodes, NodesError, Reliant, Reply, RequestTooLarge, connection_changes,
};

use super::reply::PendingReply;
use super::watch_future::WatchFuture;
use crate::memory::acl::Acl;
use crate::memory::options::NodeRules;
use crate::memory::state::request::{Answer, Call, Change, Proposed};
use crate::memory::state::shared::Shared;

/// The client of one session; dropping it closes the session.
pub(crate) struct MemoryNodes {
    shared: Arc<Shared>,
    session: i64,
    timeout: Option<Duration>,
    rules: NodeRules,
}

impl MemoryNodes {
    pub(crate) fn new(
        shared: Arc<Shared>,
        session: i64,
        timeout: Option<Duration>,
        rules: NodeRules,
    ) -> Self {
        Self {
            shared,
            session,
            timeout,
            rules,
        }
    }

    fn send(&self, call: Call) -> PendingReply {
        PendingReply::send(Arc::clone(&self.shared), self.session, call)
    }

    fn request<T: 'static>(
        &self,
        call: Call,
        pick: impl FnOnce(Answer) -> Option<T> + Send + 'static,
    ) -> Reply<'static, T> {
        let reply = self.send(call);
        Box::pin(async move {
            match reply.await {
                Ok(answer) => Ok(matching(pick(answer))),
                Err(error) => Err(error.source),
            }
        })
    }
}

impl Nodes for MemoryNodes {
    fn session(&self) -> i64 {
        self.session
    }

    fn session_timeout(&self) -> Option<Duration> {
        self.timeout
    }

    fn relied_on_by(&self, reliant: Weak<dyn Reliant>) {
        self.shared.with(|state| {
            if let Some(record) = state.sessions.get_mut(&self.session) {
                record.reliant = Some(reliant);
            }
        });
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::Consensus
    }

    fn connection(&self) -> BoxStream<'static, Connection> {
        let receiver = self.shared.with(|state| {
            state
                .sessions
                .get(&self.session)
                .map(|record| record.connection.subscribe())
        });
        match receiver {
            Some(receiver) => connection_changes(receiver),
            None => stream::iter([Connection::Ended(EndReason::Closed)]).boxed(),
        }
    }

    fn create<'a>(&'a self, node: &'a NewNode) -> Reply<'a, Created> {
        let acl = self.rules.acl_of(node);
        if let Err(refused) = self
            .rules
            .limit
            .check_create(node, acl.iter().map(Acl::words))
        {
            return future::ready(Err(too_large(refused))).boxed();
        }
        let node = node.clone();
        self.request(
            Call::Create(Proposed { node, acl }),
            |answer| match answer {
                Answer::Created(created) => Some(created),
                _ => None,
            },
        )
    }

    fn delete(&self, path: &str) -> Reply<'static, ()> {
        self.request(Call::Delete(path.to_owned()), |answer| {
            matches!(answer, Answer::Deleted).then_some(())
        })
    }

    fn list(&self, path: &str) -> Reply<'_, Vec<String>> {
        self.request(Call::List(path.to_owned()), |answer| match answer {
            Answer::Names(names) => Some(names),
            _ => None,
        })
    }

    fn list_all(&self, paths: &[&str]) -> Reply<'_, Vec<Listing>> {
        // As the client of a real server does: a single node is listed by an ordinary list.
        match paths {
            [] => future::ready(Ok(Vec::new())).boxed(),
            [path] => self.list(path).map(|listing| Ok(vec![listing])).boxed(),
            _ => {
                let paths = paths.iter().map(|path| (*path).to_owned()).collect();
                self.request(Call::ListAll(paths), |answer| match answer {
                    Answer::AllNames(listings) => Some(listings),
                    _ => None,
                })
            }
        }
    }

    fn read(&self, path: &str) -> Reply<'_, Option<(Vec<u8>, NodeStat)>> {
        self.request(Call::Read(path.to_owned()), |answer| match answer {
            Answer::Node(node) => Some(node),
            _ => None,
        })
    }

    fn stat(&self, path: &str) -> Reply<'_, Option<NodeStat>> {
        self.request(Call::Stat(path.to_owned()), |answer| match answer {
            Answer::Stat(stat) => Some(stat),
            _ => None,
        })
    }

    fn watch(&self, path: &str) -> Reply<'_, Option<(Vec<u8>, NodeStat, NodeWatch)>> {
        let shared = Arc::clone(&self.shared);
        self.request(Call::Watch(path.to_owned()), |answer| match answer {
            Answer::Watched(watched) => Some(watched.map(|(data, stat, number)| {
                let watch: NodeWatch = Box::pin(WatchFuture::new(shared, number));
                (data, stat, watch)
            })),
            _ => None,
        })
    }

    fn sync(&self, path: &str) -> Reply<'_, ()> {
        self.request(Call::Sync(path.to_owned()), |answer| {
            matches!(answer, Answer::Synced).then_some(())
        })
    }

    fn multi(&self, operations: Vec<NodeOp>) -> Reply<'_, Vec<NodeOpDone>, MultiError> {
        let acls = self.rules.acl_of_each(&operations);
        let words = acls.iter().flat_map(|acl| acl.iter().map(Acl::words));
        if let Err(refused) = self.rules.limit.check(&operations, words) {
            let (index, source) = (None, too_large(refused));
            return future::ready(Err(MultiError { index, source })).boxed();
        }
        let changes = operations.into_iter().zip(acls);
        let changes = changes.map(|(operation, acl)| Change::new(operation, acl));
        let reply = self.send(Call::Multi(changes.collect()));
        Box::pin(async move {
            let answer = reply.await?;
            Ok(matching(match answer {
                Answer::Done(done) => Some(done),
                _ => None,
            }))
        })
    }
}

impl Drop for MemoryNodes {
    fn drop(&mut self) {
        self.shared.with(|state| state.hang_up(self.session));
    }
}

impl fmt::Debug for MemoryNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryNodes")
            .field("session", &format_args!("{:#x}", self.session))
            .finish_non_exhaustive()
    }
}

fn too_large(error: RequestTooLarge) -> NodesError {
    NodesError::NotSent(Arc::new(error))
}

// `State::carry_out` answers each request with the answer of its kind.
fn matching<T>(picked: Option<T>) -> T {
    match picked {
        Some(answer) => answer,
        None => unreachable!("a request was answered with the answer to another"),
    }
}
