//! A connection of somebody who only reads. The commands are plain ones: such a user may call no function.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use recipes_core::NodesError;
use recipes_keeper::{CallError, Clocks, Facts, Lives, Loss, ReadNode, Reads, Silence, counted};
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

/// Those of these sessions that are silent. `now` is in seconds and microseconds; for the others see the top of
/// `store.lua`.
fn silent(
    now: (i64, i64),
    clock: &[u8],
    all: &[(String, f64)],
    sessions: &[i64],
) -> Result<Vec<Silence>, CallError> {
    let number = |at: usize| {
        let bytes = clock.get(at * 8..)?.first_chunk()?;
        Some(whole(f64::from_le_bytes(*bytes)))
    };
    let (Some(last), Some(own)) = (number(1), number(2)) else {
        return Err(CallError::unexpected("a clock that is none"));
    };
    let clocks = Clocks {
        last,
        own,
        now: now.0.saturating_mul(1_000_000).saturating_add(now.1),
    };
    let lives = all.iter().filter_map(|(name, deadline)| {
        let mut parts = name.split(':').map(str::parse);
        let (Some(Ok(id)), Some(Ok(timeout))) = (parts.next(), parts.next()) else {
            return None;
        };
        Some(Lives {
            id,
            timeout,
            deadline: whole(*deadline),
        })
    });
    let lives = lives.filter(|it| sessions.contains(&it.id));
    Ok(lives.filter_map(|it| clocks.silence(it)).collect())
}

/// Times of Lua are whole numbers below 2 to the power of 53.
#[allow(
    clippy::cast_possible_truncation,
    reason = "a float that is too large becomes the largest number"
)]
fn whole(number: f64) -> i64 {
    number as i64
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

    fn silent<'a>(&'a self, sessions: &'a [i64]) -> BoxFuture<'a, Result<Vec<Silence>, CallError>> {
        let mut commands = pipe();
        commands.atomic().cmd("TIME");
        commands.get(format!("{}:t", self.prefix));
        commands.zrange_withscores(format!("{}:s", self.prefix), 0, -1);
        async move {
            let (now, clock, all): (_, Vec<u8>, Vec<_>) = self.ask(&commands).await?;
            silent(now, &clock, &all, sessions)
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
    use std::time::Duration;

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

    /// As `struct.pack('<ddddd', ..)` has written them.
    #[test]
    fn clock_and_sessions_are_read_as_the_library_writes_them() {
        let second = 1_000_000.0;
        let packed = [7.0, 5_000.0, 101.0, 0.0, 3.0].map(|it: f64| (it * second).to_le_bytes());
        let clock = packed.concat();
        let session = |id: i64| (format!("{id}:12000000:secret:1"), 112.0 * second);
        let all = [session(5), session(6), ("other".to_owned(), 0.0)];
        let told = silent((5_048, 500_000), &clock, &all, &[6, 9]).unwrap();
        assert_eq!(told, [(6, Duration::from_millis(49_500))]);
        assert_eq!(silent((5_001, 0), &clock, &all, &[6]).unwrap(), []);
        assert!(silent((5_048, 0), &[0; 23], &all, &[6]).is_err());
    }

    #[test]
    fn root_is_always_there() {
        assert!(read("/", NOTHING, 2).unwrap().is_some());
        assert!(read("/a", NOTHING, 2).unwrap().is_none());
    }
}
