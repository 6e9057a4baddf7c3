//! A connection of somebody who only reads. The commands are plain ones: such a user may call no function.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use recipes_core::NodesError;
use recipes_keeper::{CallError, Facts, Loss, ReadNode, Reads, counted};
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, Pipeline, Value, cmd, pipe};
use tokio::sync::watch;

use crate::answers::call_error;
use crate::wire::{self, Route};

/// The fields of a node: created by, changed by, version, owner, how many children were created, the last of them
/// created by, data. See `load` in `store.lua`.
const FIELDS: [&str; 7] = ["c", "m", "v", "o", "q", "p", "d"];

/// These, as far as they are there.
type Fields = (
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<Vec<u8>>,
);

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
        let info = wire::info(&mut connection).await?;
        let facts = wire::look(&mut connection, route, &info).await?;
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

    fn key(&self, kind: &str, path: &str) -> String {
        format!("{}:{kind}:{path}", self.prefix)
    }
}

/// A node with these fields, if there is one. A field that is missing is as it was when the node was created.
fn read(path: &str, fields: Fields, children: i64) -> Result<Option<ReadNode>, CallError> {
    let (created, changed, version, owner, count, last, data) = fields;
    // The root is there before anybody has written it.
    let Some(created) = created.or_else(|| (path == "/").then_some(0)) else {
        return Ok(None);
    };
    let stat = counted([
        created,
        changed.unwrap_or(created),
        version.unwrap_or_default(),
        owner.unwrap_or_default(),
        children,
        count.unwrap_or_default(),
        last.unwrap_or(created),
    ])?;
    Ok(Some((data.unwrap_or_default(), stat)))
}

impl Reads for RedisReads {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn names<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<Vec<String>>, CallError>> {
        let mut commands = pipe();
        commands.atomic().exists(self.key("n", path));
        commands.zrange(self.key("c", path), 0, -1);
        async move {
            let (is_there, names): (bool, Vec<String>) = self.ask(&commands).await?;
            Ok((is_there || path == "/").then_some(names))
        }
        .boxed()
    }

    fn node<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<ReadNode>, CallError>> {
        let mut fields = cmd("HMGET");
        fields.arg(self.key("n", path)).arg(&FIELDS);
        let mut commands = pipe();
        commands.atomic().add_command(fields);
        commands.zcard(self.key("c", path));
        async move {
            let (fields, children) = self.ask(&commands).await?;
            read(path, fields, children)
        }
        .boxed()
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), CallError>> {
        async { self.ask::<Value>(pipe().ping()).await.map(drop) }.boxed()
    }

    fn lost(&self) -> BoxFuture<'_, Loss> {
        wire::lost(&self.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Fields = (None, None, None, None, None, None, None);

    fn stat_of(path: &str, numbers: [Option<i64>; 6], children: i64) -> ReadNode {
        let [c, m, v, o, q, p] = numbers;
        read(path, (c, m, v, o, q, p, None), children)
            .unwrap()
            .unwrap()
    }

    #[test]
    fn field_that_is_missing_is_as_it_was_at_first() {
        let (data, ours) = stat_of("/a/x-1", [Some(7), None, None, Some(5), None, None], 0);
        assert!(data.is_empty());
        assert_eq!((ours.czxid, ours.mzxid, ours.pzxid), (7, 7, 7));
        assert_eq!((ours.version, ours.ephemeral_owner), (0, 5));
        let all = [Some(7), Some(8), Some(2), None, Some(3), Some(9)];
        let (_, directory) = stat_of("/a", all, 1);
        assert_eq!((directory.mzxid, directory.pzxid), (8, 9));
        assert_eq!((directory.children, directory.cversion), (1, 5));
    }

    #[test]
    fn root_is_always_there() {
        assert!(read("/", NOTHING, 2).unwrap().is_some());
        assert!(read("/a", NOTHING, 2).unwrap().is_none());
    }
}
