//! What is answered.

use std::collections::BTreeMap;
use std::vec;

use etcd_client::{KeyValue, ResponseHeader, TxnOpResponse, TxnResponse};
use recipes_core::internal::BESIDE;
use recipes_core::{Created, MultiError, NodeMode, NodeOp, NodeOpDone, NodeStat, NodesError};
use recipes_keeper::{Asked, CallError, Outcome, Said, Watched};

use crate::keys::{Keys, NodeKey};
use crate::lease;
use crate::news::Ask;
use crate::queues::{Made, Queues};
use crate::refusals::refused;
use crate::watching::Wanted;
use crate::words;

/// Who has answered, in which term, and as of which revision.
pub(crate) fn by(header: Option<&ResponseHeader>) -> Result<(lease::Said, i64), CallError> {
    let header = header.ok_or_else(|| CallError::unexpected("an answer of nobody"))?;
    let by = lease::Said {
        member: header.member_id(),
        term: header.raft_term(),
    };
    Ok((by, header.revision()))
}

/// The answers to the operations of a transaction, and what the session has to know to read them.
pub(crate) struct Reading<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) queues: &'a mut Queues,
    pub(crate) lease: i64,
    /// The revision of the transaction, or as of which it was read.
    pub(crate) revision: i64,
    /// The revision up to which everything was seen.
    pub(crate) read_at: i64,
    pub(crate) parts: vec::IntoIter<TxnOpResponse>,
    /// The last node that this call has created in a directory.
    pub(crate) created: &'a mut BTreeMap<String, String>,
    /// Whether the transaction has what the requests change, not one inside of it.
    pub(crate) is_flat: bool,
    /// What is to be watched from now on, or no more, in the order of the requests.
    pub(crate) asks: &'a mut Vec<Ask>,
}

impl Reading<'_> {
    fn part(&mut self) -> Result<TxnOpResponse, CallError> {
        let part = self.parts.next();
        part.ok_or_else(|| CallError::unexpected("fewer answers than were asked for"))
    }

    fn transaction(&mut self) -> Result<TxnResponse, CallError> {
        match self.part()? {
            TxnOpResponse::Txn(done) => Ok(done),
            other => Err(CallError::unexpected(format!("{other:?}"))),
        }
    }

    /// The keys of a range, which are as many as the server says, and that count.
    fn range(&mut self) -> Result<(Vec<KeyValue>, i64), CallError> {
        match self.part()? {
            TxnOpResponse::Get(mut got) if !got.more() => {
                let count = got.count();
                Ok((got.take_kvs(), count))
            }
            other => Err(CallError::unexpected(format!("{other:?}"))),
        }
    }

    /// The keys that are there of those that were asked for one by one.
    fn by_keys(&mut self, keys: &[String]) -> Result<Vec<KeyValue>, CallError> {
        let mut found = Vec::with_capacity(keys.len());
        for _ in keys {
            found.append(&mut self.range()?.0);
        }
        Ok(found)
    }

    /// All keys of a range.
    fn whole_range(&mut self) -> Result<Vec<KeyValue>, CallError> {
        let (kvs, count) = self.range()?;
        match usize::try_from(count) == Ok(kvs.len()) {
            true => Ok(kvs),
            false => Err(CallError::unexpected(format!(
                "{} of {count} keys",
                kvs.len()
            ))),
        }
    }

    /// What has become of a request, which was answered by these keys.
    pub(crate) fn outcome(
        &mut self,
        asked: &Asked,
        by_keys: Option<&[String]>,
    ) -> Result<Outcome, CallError> {
        let said = match asked {
            Asked::Multi(operations) => return self.multi(operations),
            Asked::List(path) => self
                .names(path)?
                .map(|names| Said::Names(names, Vec::new())),
            Asked::Look {
                directory,
                own,
                first,
            } => self.look(directory, own.as_deref(), by_keys, *first)?,
            Asked::Read(path) => self.node(path)?.map(|(data, stat)| Said::Node(data, stat)),
            Asked::Stat(path) => self.node(path)?.map(|(_, stat)| Said::Stat(stat)),
            Asked::Watch(path, number) => {
                let node = self.node(path)?;
                if let Some((_, stat)) = &node {
                    self.want(path, *number, stat);
                }
                node.map(|(data, stat)| Said::Node(data, stat))
            }
            Asked::Unwatch(path) => {
                self.asks.push(Ask::Unwatch(self.keys.node(path)));
                Some(Said::Nothing)
            }
            Asked::Beat => Some(Said::Nothing),
        };
        Ok(said.ok_or_else(|| refused(NodesError::NoNode)))
    }

    fn want(&mut self, path: &str, number: u64, stat: &NodeStat) {
        self.asks.push(Ask::Watch(Wanted {
            key: self.keys.node(path).key,
            path: path.to_owned(),
            number,
            made_at: stat.czxid,
            read_at: self.read_at,
            is_own: stat.ephemeral_owner == self.lease,
        }));
    }

    fn multi(&mut self, operations: &[NodeOp]) -> Result<Outcome, CallError> {
        if self.is_flat {
            return Ok(Ok(self.all_done(operations)?));
        }
        let done = self.transaction()?;
        let is_done = done.succeeded();
        let mut inside = Reading {
            keys: self.keys,
            queues: &mut *self.queues,
            lease: self.lease,
            revision: self.revision,
            read_at: self.read_at,
            parts: done.op_responses().into_iter(),
            created: &mut *self.created,
            is_flat: true,
            asks: &mut *self.asks,
        };
        match is_done {
            true => Ok(Ok(inside.all_done(operations)?)),
            false => inside.reason(operations).map(Err),
        }
    }

    fn all_done(&mut self, operations: &[NodeOp]) -> Result<Said, CallError> {
        let done = operations.iter().map(|it| self.done(it));
        let done: Result<Vec<_>, _> = done.collect();
        Ok(Said::Multi(done?))
    }

    fn done(&mut self, operation: &NodeOp) -> Result<NodeOpDone, CallError> {
        Ok(match operation {
            NodeOp::Create(node) => {
                let _put = self.part()?;
                let NodeKey { key, .. } = words::key(self.keys, operation);
                let goes = matches!(
                    node.mode,
                    NodeMode::Ephemeral | NodeMode::EphemeralSequential
                );
                let lease = if goes { self.lease } else { 0 };
                let path = self.keys.path(key.as_bytes(), lease, self.revision);
                let path = path.ok_or_else(|| CallError::unexpected(node.path.clone()))?;
                if let Some((directory, name)) = path.rsplit_once('/') {
                    self.created.insert(directory.to_owned(), name.to_owned());
                }
                let czxid = Some(self.revision);
                NodeOpDone::Created(Created { path, czxid })
            }
            NodeOp::Delete { .. } => {
                let _deleted = self.part()?;
                NodeOpDone::Deleted
            }
            NodeOp::Set { .. } => {
                let _put = self.part()?;
                let (kvs, _) = self.range()?;
                let found = kvs.first().map(stat);
                NodeOpDone::Set(found.ok_or_else(|| CallError::unexpected("no node"))?)
            }
            NodeOp::Check { .. } => NodeOpDone::Checked,
        })
    }

    /// Which operation was refused, by what its node is like.
    fn reason(&mut self, operations: &[NodeOp]) -> Result<MultiError, CallError> {
        let mut first = None;
        for (index, operation) in operations.iter().enumerate() {
            let (kvs, _) = self.range()?;
            let key = words::key(self.keys, operation);
            let found = kvs
                .first()
                .filter(|kv| key.is_made_at(kv.create_revision()));
            let source = match operation {
                NodeOp::Create(_) => found.map(|_| NodesError::NodeExists),
                NodeOp::Delete { version, .. }
                | NodeOp::Set { version, .. }
                | NodeOp::Check { version, .. } => match found {
                    None => Some(NodesError::NoNode),
                    Some(kv) => version
                        .filter(|it| *it != stat(kv).version)
                        .map(|_| NodesError::BadVersion),
                },
            };
            let index = Some(index);
            first = first.or(source.map(|source| MultiError { index, source }));
        }
        first.ok_or_else(|| CallError::unexpected("a refusal without a reason"))
    }

    /// The names in a directory; `None` if there are none.
    fn names(&mut self, path: &str) -> Result<Option<Vec<String>>, CallError> {
        let (below, kvs) = (self.keys.below(path), self.whole_range()?);
        let names = kvs.iter().filter_map(|kv| name(&below, kv));
        let names = once(names.collect());
        Ok((!names.is_empty() || path == "/").then_some(names))
    }

    /// Lists for a contender. If others are ahead of its node, it and the two right ahead of it are watched.
    fn look(
        &mut self,
        directory: &str,
        asked: Option<&str>,
        by_keys: Option<&[String]>,
        first: u64,
    ) -> Result<Option<Said>, CallError> {
        let created = || self.created.get(directory).cloned();
        let own = asked.map(ToOwned::to_owned).or_else(created);
        let below = self.keys.below(directory);
        let kvs = match words::last_ahead(asked) {
            Some(last) => {
                // Of those that came later the server counts the keys, and sends none.
                let mut kvs = match by_keys {
                    Some(keys) => self.by_keys(keys)?,
                    None => self.range()?.0,
                };
                kvs.retain(|kv| kv.create_revision() <= last);
                self.queues.looked(&below, last, made(&kvs).collect());
                kvs
            }
            None => {
                let kvs = self.whole_range()?;
                // Another contender than that of a mutex does not ask for less.
                if words::last_ahead(own.as_deref()).is_some() {
                    let of_session = kvs.iter().filter(|kv| kv.lease() == self.lease);
                    let own = made(of_session).collect();
                    self.queues.listed(&below, made(&kvs).collect(), own);
                }
                kvs
            }
        };
        let mut names = Vec::with_capacity(kvs.len());
        // By revisions, and a reader next to its writer by the writer's.
        let mut queue = Vec::with_capacity(kvs.len());
        for kv in &kvs {
            let Some(name) = name(&below, kv) else {
                continue;
            };
            if kv.lease() != 0 {
                queue.push((place(&name, kv.create_revision()), name.clone(), kv));
            }
            names.push(name);
        }
        let names = once(names);
        queue.sort_unstable_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        let own = queue
            .iter()
            .position(|(_, name, _)| Some(name) == own.as_ref());
        // Who is the first holds, or asks for a watch later.
        let waits = own.filter(|own| *own > 0);
        let right_ahead = waits.and_then(|own| queue.get(own.saturating_sub(2)..=own));
        let mut watched = Vec::new();
        for ((_, name, kv), number) in right_ahead.unwrap_or_default().iter().rev().zip(first..) {
            let stat = stat(kv);
            self.want(
                &format!("{}/{name}", directory.trim_end_matches('/')),
                number,
                &stat,
            );
            watched.push(Watched {
                number,
                name: name.clone(),
                data: kv.value().to_vec(),
                stat,
            });
        }
        Ok((!names.is_empty()).then_some(Said::Names(names, watched)))
    }

    /// Data and stat of a node, or of a directory, which is there as long as something is below it.
    pub(crate) fn node(&mut self, path: &str) -> Result<Option<(Vec<u8>, NodeStat)>, CallError> {
        let NodeKey { made_at, .. } = self.keys.node(path);
        let mut found = None;
        if path != "/" {
            let (kvs, _) = self.range()?;
            let kv = kvs.into_iter().next();
            let kv = kv.filter(|kv| made_at.is_none_or(|it| it == kv.create_revision()));
            found = kv.map(|kv| (kv.value().to_vec(), stat(&kv)));
        }
        if made_at.is_some() || path.ends_with(BESIDE) {
            return Ok(found);
        }
        let (_, below) = self.range()?;
        let children = i32::try_from(below).unwrap_or(i32::MAX);
        if found.is_none() && (children > 0 || path == "/") {
            found = Some((Vec::new(), NodeStat::new(0, 0, 0, 0, 0)));
        }
        if let Some((_, stat)) = &mut found {
            stat.children = children;
        }
        Ok(found)
    }
}

/// Keys and the revisions that made them. What is no text is nobody's.
fn made<'a>(kvs: impl IntoIterator<Item = &'a KeyValue>) -> impl Iterator<Item = Made> {
    let texts = kvs.into_iter();
    texts.filter_map(|kv| Some((kv.create_revision(), kv.key_str().ok()?.to_owned())))
}

/// Several keys in one directory further down are one name, and so are a node and what is below it. Other keys come
/// between these: `d`, `d-b`, `d/e`.
fn once(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names.dedup();
    names
}

fn name(below: &str, kv: &KeyValue) -> Option<String> {
    Keys::name(below, kv.key(), kv.lease(), kv.create_revision())
}

/// Where a node stands in its queue.
fn place(name: &str, create_revision: i64) -> i64 {
    let beside = name.strip_suffix(BESIDE);
    let digits = beside.and_then(|it| it.rsplit(|it: char| !it.is_ascii_digit()).next());
    let of_writer = digits.and_then(|it| it.parse().ok());
    of_writer.unwrap_or(create_revision)
}

/// What a node is like.
pub(crate) fn stat(kv: &KeyValue) -> NodeStat {
    // A key is at version 1 when it is made.
    let version = i32::try_from(kv.version() - 1).unwrap_or(i32::MAX);
    NodeStat::new(
        kv.create_revision(),
        kv.mod_revision(),
        version,
        kv.lease(),
        0,
    )
}
