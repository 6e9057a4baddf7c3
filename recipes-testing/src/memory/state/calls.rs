//! What the calls of a keeper do at a store as that on Redis: `recipes-redis/src/library/requests.lua`.

use std::collections::BTreeMap;
use std::sync::Arc;

use recipes_core::{MultiError, NodeOp, NodeOpDone, NodeStat, NodesError};
use recipes_keeper::{
    Answers, Asked, CallError, Caller, Open, Opened, Outcome, Resume, Resumed, Said, Silence,
    Watched, duration,
};

use super::State;
use super::request::{Answer, Change, Operation, Request, failed};
use crate::memory::acl::Acl;
use crate::memory::tree::access::Access;
use crate::memory::tree::node_path::NodePath;

/// A call.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Open(Open),
    Resume(Resume),
    Requests(Arc<Caller>, Arc<[Asked]>),
    /// Of somebody without a session.
    Reads(Arc<[Asked]>),
    /// Which of these sessions are silent.
    Silent(Arc<[i64]>),
    Close(Arc<Caller>),
}

/// What a call is told.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    Opened(Opened),
    Resumed(Option<Resumed>),
    Answers(Option<Answers>),
    Silent(Vec<Silence>),
    Closed,
}

impl Ask {
    fn asked(&self) -> &[Asked] {
        match self {
            Self::Requests(_, asked) | Self::Reads(asked) => asked,
            Self::Open(_) | Self::Resume(_) | Self::Silent(_) | Self::Close(_) => &[],
        }
    }

    /// As the log of requests has them.
    pub(crate) fn requests(&self, session: i64) -> Vec<Request> {
        let requests = self.asked().iter().filter_map(|asked| {
            let (operation, path) = named(asked)?;
            let path = path.to_owned();
            Some(Request {
                session,
                operation,
                path,
            })
        });
        requests.collect()
    }

    pub(crate) fn operations(&self) -> Vec<Operation> {
        let named = self.asked().iter().filter_map(named);
        named.map(|(operation, _)| operation).collect()
    }
}

/// The kind of a request, and the node that it names. Nobody asks to watch something no more.
fn named(asked: &Asked) -> Option<(Operation, &str)> {
    Some(match asked {
        Asked::Multi(operations) => match &**operations {
            [NodeOp::Create(node)] => (Operation::Create, &node.path),
            [NodeOp::Delete { path, .. }] => (Operation::Delete, path),
            operations => (
                Operation::Multi,
                operations.first().map_or("", NodeOp::path),
            ),
        },
        Asked::List(path)
        | Asked::Look {
            directory: path, ..
        } => (Operation::List, path),
        Asked::Read(path) => (Operation::Read, path),
        Asked::Stat(path) => (Operation::Stat, path),
        Asked::Watch(path, _) => (Operation::Watch, path),
        Asked::Beat => (Operation::Beat, "/"),
        Asked::Unwatch(_) => return None,
    })
}

impl State {
    /// Carries out a call.
    pub(crate) fn answer_to(&mut self, session: i64, ask: &Ask) -> Result<Told, CallError> {
        Ok(match ask {
            Ask::Open(open) => Told::Opened(self.open_session(session, open)),
            Ask::Resume(resume) => Told::Resumed(self.resume_session(resume)),
            Ask::Requests(caller, asked) => {
                let lives = self.is_let_in(caller);
                Told::Answers(lives.then(|| self.answers(caller.id, asked)))
            }
            Ask::Reads(asked) => Told::Answers(Some(self.answers(session, asked))),
            Ask::Silent(sessions) => Told::Silent(self.silent(sessions)),
            Ask::Close(caller) => {
                self.close_session(caller);
                Told::Closed
            }
        })
    }

    /// Carries out requests, in order. Each is refused or done by itself.
    fn answers(&mut self, session: i64, asked: &[Asked]) -> Answers {
        // The last node that this call has created in a directory.
        let mut created = BTreeMap::new();
        let outcomes = asked.iter();
        let outcomes = outcomes.map(|asked| self.outcome(session, asked, &mut created));
        let outcomes = outcomes.collect();
        let step = self.on_redis.as_ref().map(|redis| duration(redis.step()));
        Answers { outcomes, step }
    }

    fn outcome(
        &mut self,
        session: i64,
        asked: &Asked,
        created: &mut BTreeMap<String, String>,
    ) -> Outcome {
        let said = match asked {
            Asked::Multi(operations) => {
                let done = self.operations(session, operations)?;
                for done in &done {
                    if let NodeOpDone::Created(node) = done {
                        let (directory, name) = node.path.rsplit_once('/').unwrap_or_default();
                        created.insert(directory.to_owned(), name.to_owned());
                    }
                }
                return Ok(Said::Multi(done));
            }
            Asked::List(path) => self
                .names_in(path)
                .map(|names| Said::Names(names, Vec::new())),
            Asked::Look {
                directory,
                own,
                first,
            } => {
                let own = own.as_ref().or_else(|| created.get(directory));
                self.look(session, directory, own.map(String::as_str), *first)
            }
            Asked::Read(path) => {
                let node = self.node(Operation::Read, path);
                node.map(|(data, stat)| Said::Node(data, stat))
            }
            Asked::Stat(path) => {
                let node = self.node(Operation::Stat, path);
                node.map(|(_, stat)| Said::Stat(stat))
            }
            Asked::Watch(path, number) => {
                let node = self.node(Operation::Watch, path);
                node.map(|(data, stat)| {
                    self.watch_node(path, session, *number);
                    Said::Node(data, stat)
                })
            }
            Asked::Unwatch(path) => {
                if let Some(redis) = &mut self.on_redis {
                    redis.unwatch(path, session);
                }
                Ok(Said::Nothing)
            }
            Asked::Beat => Ok(Said::Nothing),
        };
        said.map_err(failed)
    }

    fn operations(
        &mut self,
        session: i64,
        operations: &[NodeOp],
    ) -> Result<Vec<NodeOpDone>, MultiError> {
        let operations = operations.iter().cloned();
        let changes: Vec<_> = operations.map(|it| Change::new(it, Acl::open())).collect();
        self.multi(session, &changes, &nobody())
    }

    fn names_in(&mut self, path: &str) -> Result<Vec<String>, NodesError> {
        match self.list(0, path, &nobody())? {
            Answer::Names(names) => Ok(names),
            _ => Err(NodesError::NoNode),
        }
    }

    fn node(&self, kind: Operation, path: &str) -> Result<(Vec<u8>, NodeStat), NodesError> {
        self.refuse_denied(path, kind)?;
        let node = self.tree.get(&NodePath::parse(path)?);
        let node = node.ok_or(NodesError::NoNode)?;
        Ok((node.data.to_vec(), node.stat()))
    }

    fn watch_node(&mut self, path: &str, session: i64, number: u64) {
        if let Some(redis) = &mut self.on_redis {
            redis.watch(path, session, number);
        }
    }

    /// Lists for a contender. If others are ahead of its node, that and the two ahead of it are watched.
    fn look(
        &mut self,
        session: i64,
        directory: &str,
        own: Option<&str>,
        first: u64,
    ) -> Result<Said, NodesError> {
        let names = self.names_in(directory)?;
        let mut queue = names.clone();
        queue.sort_by_cached_key(|name| {
            let path = NodePath::parse(&format!("{directory}/{name}")).ok();
            let node = path.and_then(|path| self.tree.get(&path));
            (node.and_then(|node| node.sequence()), name.clone())
        });
        let place = queue.iter().position(|name| Some(name.as_str()) == own);
        let mut watched = Vec::new();
        let ahead = match place {
            None | Some(0) => &[][..],
            Some(place) => queue
                .get(place.saturating_sub(2)..=place)
                .unwrap_or_default(),
        };
        for (name, number) in ahead.iter().rev().zip(first..) {
            let path = format!("{directory}/{name}");
            let (data, stat) = self.node(Operation::Watch, &path)?;
            let redis = self.on_redis.as_ref();
            let is_watched = redis.is_some_and(|redis| redis.is_watched_by(&path, session));
            if stat.ephemeral_owner == 0 || is_watched {
                continue;
            }
            self.watch_node(&path, session, number);
            watched.push(Watched {
                number,
                name: name.clone(),
                data,
                stat,
            });
        }
        Ok(Said::Names(names, watched))
    }
}

/// There are no rights.
fn nobody() -> Access {
    Access::Session(Arc::default())
}
