//! Statements that see what nodes are like, without any lock.

use std::collections::HashMap;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error, Params, Value as Parameter};
use recipes_keeper::{CallError, Value};

use super::errors::call_error;
use super::poller::{AHEAD_MAX, Found, Nodes, SIZES, size};
use super::procedures::bytes;
use super::request::{Said, join, number, split};

/// The statements for the tables of a prefix.
#[derive(Debug)]
pub(super) struct Looks {
    /// By the number of nodes.
    nodes: HashMap<usize, String>,
    ahead: String,
    own: String,
}

/// A row of a node: directory, name, created and changed by, owner, place.
type Row = (Vec<u8>, Vec<u8>, i64, i64, i64, i64);

impl Looks {
    pub(super) fn new(prefix: &str) -> Self {
        // The optimizer would sometimes rather read whole directories.
        let nodes = |count: usize| {
            let marks = vec!["(?, ?)"; count].join(", ");
            format!(
                "SELECT dir, name, c, m, o, seq FROM {prefix}nodes FORCE INDEX (PRIMARY) \
                 WHERE (dir, name) IN ({marks})"
            )
        };
        Self {
            nodes: SIZES.into_iter().map(|it| (it, nodes(it))).collect(),
            ahead: format!(
                "SELECT COUNT(*) FROM (SELECT 1 FROM {prefix}nodes FORCE INDEX (by_seq) WHERE dir = ? \
                 AND seq >= (SELECT GREATEST(low, 1) FROM {prefix}nodes WHERE dir = ? AND name = ?) \
                 AND seq < ? LIMIT {AHEAD_MAX}) ahead"
            ),
            own: format!("SELECT dir, name FROM {prefix}nodes FORCE INDEX (by_owner) WHERE o = ?"),
        }
    }

    /// What these nodes are like, in one moment for all.
    pub(super) async fn nodes(
        &self,
        connection: &mut Conn,
        paths: &[&str],
    ) -> Result<Nodes, Error> {
        let [.., largest] = SIZES;
        if paths.len() <= largest {
            return self.some_nodes(connection, paths).await;
        }
        connection
            .query_drop("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            .await?;
        connection
            .query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            .await?;
        let mut nodes = Nodes::new();
        for paths in paths.chunks(largest) {
            nodes.extend(self.some_nodes(connection, paths).await?);
        }
        connection.query_drop("COMMIT").await?;
        Ok(nodes)
    }

    async fn some_nodes(&self, connection: &mut Conn, paths: &[&str]) -> Result<Nodes, Error> {
        let (Some(last), Some(statement)) = (paths.last(), self.nodes.get(&size(paths.len())))
        else {
            return Ok(Nodes::new());
        };
        let repeated = size(paths.len()) - paths.len();
        let all = paths.iter().chain(std::iter::repeat_n(last, repeated));
        let parameters = all.flat_map(|path| {
            let (dir, name) = split(path.as_bytes());
            [dir, name].map(bytes)
        });
        let parameters = Params::Positional(parameters.collect());
        let rows: Vec<Row> = connection.exec(statement.as_str(), parameters).await?;
        let found = rows
            .into_iter()
            .filter_map(|(dir, name, created, changed, owner, place)| {
                let path = String::from_utf8(join(&dir, &name)).ok()?;
                let found = Found {
                    created,
                    changed,
                    owner,
                    place,
                };
                Some((path, found))
            });
        Ok(found.collect())
    }

    /// How many nodes are ahead of a node with this place, up to a bound.
    pub(super) async fn ahead(
        &self,
        connection: &mut Conn,
        path: &str,
        place: i64,
    ) -> Result<i64, Error> {
        let (dir, _) = split(path.as_bytes());
        let (up_dir, up_name) = split(dir);
        let mut parameters: Vec<_> = [dir, up_dir, up_name].into_iter().map(bytes).collect();
        parameters.push(Parameter::Int(place));
        let parameters = Params::Positional(parameters);
        let count = connection
            .exec_first(self.ahead.as_str(), parameters)
            .await?;
        Ok(count.unwrap_or_default())
    }

    /// The paths of a session's nodes.
    pub(super) async fn own(
        &self,
        connection: &mut Conn,
        id: i64,
    ) -> Result<Vec<Value>, CallError> {
        let rows = connection.exec(self.own.as_str(), (id,)).await;
        let rows: Vec<(Vec<u8>, Vec<u8>)> = rows.map_err(call_error)?;
        let paths = rows
            .into_iter()
            .map(|(dir, name)| Value::Bytes(join(&dir, &name)));
        Ok(paths.collect())
    }

    /// The news for watches, as the words of `Resume` list them: `D` if the node has gone, `C` if it has
    /// other data, or nothing.
    pub(super) async fn compare<'a>(
        &self,
        connection: &mut Conn,
        said: &mut Said<'a, impl Iterator<Item = &'a [u8]>>,
    ) -> Result<Vec<Value>, CallError> {
        let mut watches: Vec<(&str, i64, i64)> = Vec::new();
        while let Some(_number) = said.more() {
            let path = std::str::from_utf8(said.word()?).unwrap_or_default();
            watches.push((path, number(said.word()?)?, number(said.word()?)?));
        }
        let paths: Vec<_> = watches.iter().map(|(path, ..)| *path).collect();
        let nodes = self.nodes(connection, &paths).await.map_err(call_error)?;
        let news = watches.iter().map(|(path, created, changed)| {
            let word: &[u8] = match nodes.get(*path) {
                Some(found) if found.created == *created => match found.changed == *changed {
                    true => b"",
                    false => b"C",
                },
                _ => b"D",
            };
            Value::Bytes(word.to_vec())
        });
        Ok(news.collect())
    }
}
