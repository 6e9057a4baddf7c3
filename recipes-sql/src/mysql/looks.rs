//! Statements that see what nodes are like, without any lock.

use std::collections::HashMap;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error, Params, Value as Parameter};
use recipes_core::NodeEvent;

use crate::path::split;

use super::procedures::text;

/// More nodes ahead make no difference.
const AHEAD_MAX: u32 = 49;
/// Numbers of nodes that one statement looks at. The server keeps a statement for each.
const SIZES: [usize; 11] = [1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512];
const SIZE_MAX: usize = 512;

/// The statements for the tables of a prefix.
#[derive(Debug)]
pub(super) struct Looks {
    /// By the number of nodes.
    nodes: HashMap<usize, String>,
    ahead: String,
    own: String,
}

/// What a node is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) created: i64,
    pub(super) changed: i64,
    pub(super) owner: i64,
    /// Place among its siblings, from 1.
    pub(super) place: i64,
}

/// What the nodes are like that are there, by their paths.
pub(super) type Nodes = HashMap<String, Found>;

/// A row of a node: directory, name, created and changed by, owner, place.
type Row = (String, String, i64, i64, i64, i64);

/// What has happened to a node since it was seen with these numbers.
pub(super) fn happened(found: Option<&Found>, created: i64, changed: i64) -> Option<NodeEvent> {
    match found {
        Some(found) if found.created == created => {
            (found.changed != changed).then_some(NodeEvent::Changed)
        }
        _ => Some(NodeEvent::Deleted),
    }
}

/// The smallest statement that is large enough; the largest if none is.
fn size(count: usize) -> usize {
    let enough = SIZES.into_iter().find(|it| *it >= count);
    enough.unwrap_or(SIZE_MAX)
}

/// The path of a child.
fn join(dir: &str, name: &str) -> String {
    let dir = if dir == "/" { "" } else { dir };
    format!("{dir}/{name}")
}

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
        if paths.len() <= SIZE_MAX {
            return self.some_nodes(connection, paths).await;
        }
        let isolation = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ";
        connection.query_drop(isolation).await?;
        let begin = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY";
        connection.query_drop(begin).await?;
        let mut nodes = Nodes::new();
        for paths in paths.chunks(SIZE_MAX) {
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
            let (dir, name) = split(path);
            [text(dir), text(name)]
        });
        let parameters = Params::Positional(parameters.collect());
        let rows: Vec<Row> = connection.exec(statement.as_str(), parameters).await?;
        let found = |(dir, name, created, changed, owner, place): Row| {
            let found = Found {
                created,
                changed,
                owner,
                place,
            };
            (join(&dir, &name), found)
        };
        Ok(rows.into_iter().map(found).collect())
    }

    /// How many nodes are ahead of a node with this place, up to a bound.
    pub(super) async fn ahead(
        &self,
        connection: &mut Conn,
        path: &str,
        place: i64,
    ) -> Result<u64, Error> {
        let (dir, _) = split(path);
        let (up_dir, up_name) = split(dir);
        let place = Parameter::Int(place);
        let parameters = vec![text(dir), text(up_dir), text(up_name), place];
        let parameters = Params::Positional(parameters);
        let count = connection
            .exec_first(self.ahead.as_str(), parameters)
            .await?;
        Ok(count.unwrap_or_default())
    }

    /// The paths of a session's nodes.
    pub(super) async fn own(&self, connection: &mut Conn, id: i64) -> Result<Vec<String>, Error> {
        let rows: Vec<(String, String)> = connection.exec(self.own.as_str(), (id,)).await?;
        Ok(rows.iter().map(|(dir, name)| join(dir, name)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_have_few_sizes() {
        assert_eq!([1, 2, 5, 512, 900].map(size), [1, 2, 8, 512, 512]);
        assert_eq!(SIZES.last(), Some(&SIZE_MAX));
    }

    #[test]
    fn node_that_was_made_anew_is_gone() {
        let found = Found {
            created: 5,
            changed: 6,
            owner: 0,
            place: 0,
        };
        assert_eq!(happened(Some(&found), 5, 6), None);
        assert_eq!(happened(Some(&found), 5, 5), Some(NodeEvent::Changed));
        assert_eq!(happened(Some(&found), 4, 6), Some(NodeEvent::Deleted));
        assert_eq!(happened(None, 5, 6), Some(NodeEvent::Deleted));
    }

    #[test]
    fn paths_are_joined() {
        assert_eq!(join("/", "a"), "/a");
        assert_eq!(join("/a", "b"), "/a/b");
        assert_eq!(join("", ""), "/");
    }
}
