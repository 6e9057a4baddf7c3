//! Statements that see what nodes are like, without any lock.

use std::collections::HashMap;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Value as Parameter};
use recipes_core::NodeEvent;
use recipes_keeper::{CallError, Parts as _};

use crate::path::split;

use super::answers::Text;
use super::errors::call_error;
use super::procedures::{Columns, first, text};

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

/// All rows in one, which no limit of rows can cut: how many nodes, and numbers, directory and name of each.
const ALL: &str = "COUNT(*), GROUP_CONCAT(c, ' ', m, ' ', o, ' ', seq, ' ', LENGTH(dir), ' ', dir, \
                   LENGTH(name), ' ', name SEPARATOR '')";

/// Reads `ALL`. A node that is left out would be taken for a deleted one.
fn found(count: usize, text: &[u8]) -> Result<Vec<(String, Found)>, CallError> {
    let mut text = Text(text);
    let mut nodes = Vec::new();
    while !text.0.is_empty() {
        let found = Found {
            created: text.number()?,
            changed: text.number()?,
            owner: text.number()?,
            place: text.number()?,
        };
        let mut part = || Ok(String::from_utf8_lossy(text.next_bytes()?).into_owned());
        nodes.push((join(&part()?, &part()?), found));
    }
    match nodes.len() == count {
        true => Ok(nodes),
        false => Err(CallError::unexpected("a look was cut")),
    }
}

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
                "SELECT {ALL} FROM {prefix}nodes FORCE INDEX (PRIMARY) WHERE (dir, name) IN ({marks})"
            )
        };
        Self {
            nodes: SIZES.into_iter().map(|it| (it, nodes(it))).collect(),
            ahead: format!(
                "SELECT COUNT(*) FROM (SELECT 1 FROM {prefix}nodes FORCE INDEX (by_seq) WHERE dir = ? \
                 AND seq >= (SELECT GREATEST(low, 1) FROM {prefix}nodes WHERE dir = ? AND name = ?) \
                 AND seq < ? LIMIT {AHEAD_MAX}) ahead"
            ),
            own: format!("SELECT {ALL} FROM {prefix}nodes FORCE INDEX (by_owner) WHERE o = ?"),
        }
    }

    /// What these nodes are like, in one moment for all.
    pub(super) async fn nodes(
        &self,
        connection: &mut Conn,
        paths: &[&str],
    ) -> Result<Nodes, CallError> {
        if paths.len() <= SIZE_MAX {
            return self.some_nodes(connection, paths).await;
        }
        let isolation = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ";
        let begin = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY";
        for statement in [isolation, begin] {
            connection.query_drop(statement).await.map_err(call_error)?;
        }
        let mut nodes = Nodes::new();
        for paths in paths.chunks(SIZE_MAX) {
            nodes.extend(self.some_nodes(connection, paths).await?);
        }
        connection.query_drop("COMMIT").await.map_err(call_error)?;
        Ok(nodes)
    }

    async fn some_nodes(&self, connection: &mut Conn, paths: &[&str]) -> Result<Nodes, CallError> {
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
        let nodes = all_of(connection, statement, parameters.collect()).await?;
        Ok(nodes.into_iter().collect())
    }

    /// How many nodes are ahead of a node with this place, up to a bound.
    pub(super) async fn ahead(
        &self,
        connection: &mut Conn,
        path: &str,
        place: i64,
    ) -> Result<u64, CallError> {
        let (dir, _) = split(path);
        let (up_dir, up_name) = split(dir);
        let place = Parameter::Int(place);
        let parameters = vec![text(dir), text(up_dir), text(up_name), place];
        let row = first(connection, self.ahead.as_str(), parameters).await;
        let count = Columns::of(row.map_err(call_error)?)?.number()?;
        Ok(u64::try_from(count).unwrap_or_default())
    }

    /// The paths of a session's nodes.
    pub(super) async fn own(
        &self,
        connection: &mut Conn,
        id: i64,
    ) -> Result<Vec<String>, CallError> {
        let nodes = all_of(connection, &self.own, vec![Parameter::Int(id)]).await?;
        Ok(nodes.into_iter().map(|(path, _)| path).collect())
    }
}

/// What a statement with `ALL` finds.
async fn all_of(
    connection: &mut Conn,
    statement: &str,
    parameters: Vec<Parameter>,
) -> Result<Vec<(String, Found)>, CallError> {
    let row = first(connection, statement, parameters).await;
    let mut row = Columns::of(row.map_err(call_error)?)?;
    let count = usize::try_from(row.number()?).unwrap_or_default();
    found(count, &row.bytes()?)
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
    fn look_that_was_cut_is_no_answer() {
        let both = b"5 6 7 8 2 /a1 b5 6 0 0 0 0 ";
        let nodes = found(2, both).unwrap();
        let paths: Vec<_> = nodes.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["/a/b", "/"]);
        assert_eq!((nodes[0].1.changed, nodes[0].1.place), (6, 8));
        assert!(found(3, both).is_err());
        assert!(found(2, &both[..16]).is_err());
        assert_eq!(found(0, b"").unwrap(), []);
    }

    #[test]
    fn paths_are_joined() {
        assert_eq!(join("/", "a"), "/a");
        assert_eq!(join("/a", "b"), "/a/b");
        assert_eq!(join("", ""), "/");
    }
}
