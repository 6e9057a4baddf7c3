//! A connection of somebody who only reads. The commands are plain ones: such a user may call no function.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use recipes_core::{NodeStat, NodesError};
use recipes_keeper::{Asked, CallError, Facts, Loss, Outcome, Reads, Said, reason, signed, stat};
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, Pipeline, Value, cmd, pipe};
use tokio::sync::watch;

use crate::answers::call_error;
use crate::wire::{self, Route};

const NO_NODE: &str = "NoNode";

/// The fields of a node that are numbers: created by, changed by, version, owner, how many children were created, the
/// last of them created by. See `load` in `store.lua`.
const FIELDS: [&str; 6] = ["c", "m", "v", "o", "q", "p"];

/// See the top of `store.lua` for what the keys hold.
#[derive(Debug)]
pub(crate) struct RedisReads {
    connection: MultiplexedConnection,
    prefix: String,
    facts: Facts,
    lost: watch::Receiver<bool>,
}

impl RedisReads {
    pub(crate) async fn open(route: &Route) -> Result<Arc<dyn Reads>, NodesError> {
        // Nobody publishes to who has not subscribed.
        let (mut connection, lost) = wire::connect(route, |_| {}).await?;
        let facts = wire::look(&mut connection, route).await?;
        let prefix = route.prefix.clone();
        Ok(Arc::new(Self {
            connection,
            prefix,
            facts,
            lost,
        }))
    }

    /// The answers to commands.
    async fn ask<T: FromRedisValue>(&self, commands: &Pipeline) -> Result<T, CallError> {
        let mut connection = self.connection.clone();
        let answered = commands.query_async(&mut connection).await;
        answered.map_err(call_error)
    }

    async fn outcome(&self, asked: &Asked) -> Result<Outcome, CallError> {
        let (path, wants_data) = match asked {
            Asked::List(path) => return self.names(path).await,
            Asked::Read(path) => (path, true),
            Asked::Stat(path) => (path, false),
            _ => {
                self.ask::<Value>(pipe().ping()).await?;
                return Ok(Ok(Said::Nothing));
            }
        };
        let mut fields = cmd("HMGET");
        fields.arg(self.key("n", path)).arg(&FIELDS);
        if wants_data {
            fields.arg("d");
        }
        let mut commands = pipe();
        commands.atomic().add_command(fields);
        commands.zcard(self.key("c", path));
        let (fields, children): (Vec<Value>, i64) = self.ask(&commands).await?;
        let mut fields = fields.into_iter();
        let mut numbers = [None; FIELDS.len()];
        for number in &mut numbers {
            let field = fields.next().unwrap_or(Value::Nil);
            *number = Option::from_redis_value(field).map_err(|error| call_error(error.into()))?;
        }
        let data = fields.next().unwrap_or(Value::Nil);
        let data: Option<Vec<u8>> =
            Option::from_redis_value(data).map_err(|error| call_error(error.into()))?;
        let Some(stat) = stat_of(path, numbers, children)? else {
            return reason(NO_NODE, None).map(Err);
        };
        Ok(Ok(match wants_data {
            true => Said::Node(data.unwrap_or_default(), stat),
            false => Said::Stat(stat),
        }))
    }

    async fn names(&self, path: &str) -> Result<Outcome, CallError> {
        let mut commands = pipe();
        commands.atomic().exists(self.key("n", path));
        commands.zrange(self.key("c", path), 0, -1);
        let (is_there, names): (bool, Vec<String>) = self.ask(&commands).await?;
        match is_there || path == "/" {
            true => Ok(Ok(Said::Names(names, Vec::new()))),
            false => reason(NO_NODE, None).map(Err),
        }
    }

    fn key(&self, kind: &str, path: &str) -> String {
        format!("{}:{kind}:{path}", self.prefix)
    }
}

/// The stat of a node with these [`FIELDS`], if there is one. A field that is missing is as it was when the node was
/// created.
fn stat_of(
    path: &str,
    fields: [Option<i64>; FIELDS.len()],
    children: i64,
) -> Result<Option<NodeStat>, CallError> {
    let [created, changed, version, owner, count, last] = fields;
    // The root is there before anybody has written it.
    let Some(created) = created.or_else(|| (path == "/").then_some(0)) else {
        return Ok(None);
    };
    let owner = owner.unwrap_or_default();
    // What goes with its session has no children.
    let children = if owner == 0 { children } else { 0 };
    let parts = [
        created,
        changed.unwrap_or(created),
        version.unwrap_or_default(),
        owner,
        children,
        signed(count.unwrap_or_default() * 2 - children),
        last.unwrap_or(created),
    ];
    stat(parts).map(Some)
}

impl Reads for RedisReads {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn read<'a>(&'a self, asked: &'a Asked) -> BoxFuture<'a, Result<Outcome, CallError>> {
        self.outcome(asked).boxed()
    }

    fn lost(&self) -> BoxFuture<'_, Loss> {
        wire::lost(&self.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_that_is_missing_is_as_it_was_at_first() {
        let ours = stat_of("/a/x-1", [Some(7), None, None, Some(5), None, None], 0);
        let ours = ours.unwrap().unwrap();
        assert_eq!((ours.czxid, ours.mzxid, ours.pzxid), (7, 7, 7));
        assert_eq!((ours.version, ours.ephemeral_owner), (0, 5));
        let all = [Some(7), Some(8), Some(2), None, Some(3), Some(9)];
        let directory = stat_of("/a", all, 1).unwrap().unwrap();
        assert_eq!((directory.mzxid, directory.pzxid), (8, 9));
        assert_eq!((directory.children, directory.cversion), (1, 5));
    }

    #[test]
    fn root_is_always_there() {
        assert!(stat_of("/", [None; 6], 2).unwrap().is_some());
        assert!(stat_of("/a", [None; 6], 2).unwrap().is_none());
    }
}
