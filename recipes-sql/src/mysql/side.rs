//! Beats and polls.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{BoxFuture, FutureExt};
use mysql_async::{Conn, Statement, Value as Parameter};
use recipes_core::NodeEvent;
use recipes_keeper::{CallError, Caller, Moment, Rewatch, duration, micros};

use crate::aside::{Aside, Beat, Polled};
use crate::path::split;

use super::errors::call_error;
use super::lane::Lane;
use super::line::Line;
use super::looks::{Looks, Nodes, happened};
use super::procedures::{Columns, first, of_session, prepare};

/// Beats of one call: each deletes some hundred nodes of sessions that have ended.
const BEATS_MAX: usize = 64;
/// Directories whose nodes are counted for one poll.
const COUNTED_MAX: usize = 8;

/// The connection for beats and polls.
#[derive(Debug)]
pub(super) struct Side {
    line: Line,
    beat: Statement,
    looks: Looks,
    lane: Arc<Lane>,
    /// The last beat has left something to do: sessions to end, or nodes of ended ones to delete.
    again: AtomicBool,
    /// Nodes of others that are the first in their directory, as long as they are there.
    firsts: Mutex<HashSet<String>>,
}

impl Side {
    pub(super) async fn new(
        mut connection: Conn,
        prefix: &str,
        lane: Arc<Lane>,
    ) -> Result<Self, mysql_async::Error> {
        Ok(Self {
            beat: prepare(&mut connection, prefix, "beat", 5).await?,
            line: Line::new(connection),
            looks: Looks::new(prefix),
            lane,
            again: AtomicBool::default(),
            firsts: Mutex::default(),
        })
    }

    /// Keeps a session alive. `None` if it has ended.
    pub(super) async fn beat(&self, caller: &Caller) -> Result<Option<Beat>, CallError> {
        let mut turn = self.line.turn().await?;
        let mut beaten = None;
        for _ in 0..BEATS_MAX {
            let again = self.again.load(Ordering::Relaxed);
            let mut parameters = of_session(caller);
            let rest = micros(caller.container_rest);
            parameters.extend([rest, i64::from(again)].map(Parameter::Int));
            let sent = Moment::now();
            let row = first(turn.connection(), &self.beat, parameters).await;
            let mut row = match row {
                Ok(row) => Columns::of(row)?,
                Err(error) => {
                    // It has done nothing, and the connection is good for the next.
                    let error = call_error(error);
                    if matches!(error, CallError::NotNow(_)) {
                        turn.end();
                    }
                    return Err(error);
                }
            };
            if row.number()? != 0 {
                break;
            }
            self.lane.was_beaten(sent);
            let beat = Beat {
                step: duration(row.number()?),
                due: duration(row.number()?),
            };
            let again = row.number()? != 0;
            self.again.store(again, Ordering::Relaxed);
            beaten = Some(beat);
            if !again || !beat.due.is_zero() {
                break;
            }
        }
        turn.end();
        if beaten.is_some() {
            // It was of no use for others meanwhile, and may be gone without a word.
            self.lane.ping(caller.timeout / 6).await?;
        }
        Ok(beaten)
    }

    async fn polled(
        &self,
        me: i64,
        watches: &[Rewatch],
        wants_ahead: bool,
    ) -> Result<Polled, CallError> {
        let mut paths: Vec<_> = watches.iter().map(|it| it.path.as_str()).collect();
        paths.sort_unstable();
        paths.dedup();
        let mut turn = self.line.turn().await?;
        let nodes = self.looks.nodes(turn.connection(), &paths).await?;
        let ahead = match wants_ahead {
            true => self.ahead(turn.connection(), me, &nodes).await?,
            false => None,
        };
        turn.end();
        let news = watches
            .iter()
            .map(|Rewatch { path, seen, .. }| happened(nodes.get(path), seen.czxid, seen.mzxid));
        Ok(Polled {
            news: news.collect(),
            ahead,
            // Nobody rings.
            is_still: false,
            is_own_still: false,
        })
    }

    /// How many nodes are ahead of the nearest one that the session waits for.
    async fn ahead(
        &self,
        connection: &mut Conn,
        me: i64,
        nodes: &Nodes,
    ) -> Result<Option<u64>, CallError> {
        let Some(to_count) = to_count(&mut self.firsts(), nodes, me) else {
            return Ok(Some(0));
        };
        let mut least = None;
        for (path, place) in to_count.into_iter().take(COUNTED_MAX) {
            let ahead = self.looks.ahead(connection, path, place).await?;
            if ahead == 0 {
                self.firsts().insert(path.to_owned());
            }
            least = Some(least.map_or(ahead, |it: u64| it.min(ahead)));
        }
        Ok(least)
    }

    fn firsts(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.firsts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The nodes that are to be counted ahead of: the nearest in each directory. None if one of them is
/// known to be the first, which it is then for good.
fn to_count<'a>(
    firsts: &mut HashSet<String>,
    nodes: &'a Nodes,
    me: i64,
) -> Option<Vec<(&'a str, i64)>> {
    firsts.retain(|path| nodes.contains_key(path));
    if !firsts.is_empty() {
        return None;
    }
    let mut nearest: HashMap<&str, (&str, i64)> = HashMap::new();
    for (path, found) in nodes.iter().filter(|(_, it)| it.owner != me) {
        let node = (path.as_str(), found.place);
        let least = nearest.entry(split(path).0).or_insert(node);
        if node.1 < least.1 {
            *least = node;
        }
    }
    Some(nearest.into_values().collect())
}

/// The connection, as that of a session.
pub(super) struct SideOf {
    pub(super) side: Arc<Side>,
    pub(super) caller: Arc<Caller>,
}

impl Aside for SideOf {
    fn beat(&self) -> BoxFuture<'_, Result<Option<Beat>, CallError>> {
        self.side.beat(&self.caller).boxed()
    }

    fn poll<'a>(
        &'a self,
        watches: &'a [Rewatch],
        wants_ahead: bool,
    ) -> BoxFuture<'a, Result<Polled, CallError>> {
        let polled = self.side.polled(self.caller.id, watches, wants_ahead);
        polled.boxed()
    }

    fn deletion(&self, _: &str) -> Option<(u64, NodeEvent)> {
        None
    }

    fn ring(&self, _is_wanted: bool) -> BoxFuture<'_, Result<bool, CallError>> {
        async { Ok(false) }.boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::super::looks::Found;
    use super::*;

    #[test]
    fn nearest_of_each_directory_are_counted_until_one_is_the_first() {
        let node = |path: &str, owner, place| {
            let found = Found {
                created: 1,
                changed: 1,
                owner,
                place,
            };
            (path.to_owned(), found)
        };
        let mut nodes = Nodes::from([
            node("/a/1", 6, 8),
            node("/a/2", 6, 9),
            node("/b/1", 6, 4),
            node("/c/1", 7, 1),
        ]);
        let mut firsts = HashSet::new();
        let mut counted = to_count(&mut firsts, &nodes, 7).unwrap();
        counted.sort_unstable();
        assert_eq!(counted, [("/a/1", 8), ("/b/1", 4)]);
        firsts.insert("/a/1".to_owned());
        assert_eq!(to_count(&mut firsts, &nodes, 7), None);
        // It goes.
        nodes.remove("/a/1");
        assert_eq!(to_count(&mut firsts, &nodes, 7).unwrap().len(), 2);
        assert!(firsts.is_empty());
    }
}
