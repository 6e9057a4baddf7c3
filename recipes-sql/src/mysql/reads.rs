//! A connection of somebody who only reads. The statements are plain ones: such a user may have no right but to read
//! two tables.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{self, BoxFuture, FutureExt};
use recipes_core::NodesError;
use recipes_keeper::{CallError, Clocks, Facts, Lives, Loss, ReadNode, Reads, Silence, counted};

use crate::path::split;

use super::answers::names;
use super::connecting::connect;
use super::errors::call_error;
use super::line::Line;
use super::procedures::{Columns, first, text};
use super::schema;
use super::wire::Route;

/// What is asked.
#[derive(Debug)]
struct Questions {
    list: String,
    node: String,
    silent: String,
}

impl Questions {
    /// Each has one row, which no limit of rows can cut.
    fn new(prefix: &str) -> Self {
        let nodes = format!("{prefix}nodes");
        Self {
            list: format!(
                "SELECT (SELECT COUNT(*) FROM {nodes} WHERE dir = ? AND name = ?), COUNT(*), \
                 GROUP_CONCAT(name ORDER BY seq SEPARATOR '/') FROM {nodes} WHERE dir = ?"
            ),
            node: format!(
                "SELECT n.c IS NOT NULL, n.c, n.m, n.v, n.o, \
                 (SELECT COUNT(*) FROM {nodes} WHERE dir = ?), n.q, n.p, n.d \
                 FROM (SELECT 1) one LEFT JOIN {nodes} n ON n.dir = ? AND n.name = ?"
            ),
            // Not the secrets, which nobody may read who only reads.
            silent: format!(
                "SELECT k.own, k.last, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), \
                 COUNT(s.id), GROUP_CONCAT(s.id, ':', s.timeout, ':', b.deadline SEPARATOR '/') \
                 FROM {prefix}clock k LEFT JOIN ({prefix}sessions s JOIN {prefix}beats b ON b.session = s.id) \
                 ON FIND_IN_SET(s.id, ?) WHERE k.id = 1 GROUP BY k.id, k.own, k.last"
            ),
        }
    }
}

pub(super) struct MySqlReads {
    line: Line,
    questions: Questions,
    facts: Facts,
}

impl fmt::Debug for MySqlReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reads").field("facts", &self.facts).finish()
    }
}

impl MySqlReads {
    pub(super) async fn open(route: &Route) -> Result<Arc<dyn Reads>, NodesError> {
        let (mut connection, facts) = connect(route).await?;
        schema::find(&mut connection, &route.prefix).await?;
        Ok(Arc::new(Self {
            line: Line::new(connection),
            questions: Questions::new(&route.prefix),
            facts,
        }))
    }

    async fn row(&self, question: &str, parameters: &[&str]) -> Result<Columns, CallError> {
        let mut turn = self.line.turn().await?;
        let parameters = parameters.iter().copied().map(text).collect();
        let row = first(turn.connection(), question, parameters).await;
        let row = row.map_err(call_error);
        if matches!(row, Ok(_) | Err(CallError::Refused(_))) {
            // One that is refused leaves nothing on its way, as where a right is missing.
            turn.end();
        }
        Columns::of(row?)
    }
}

/// A session of an answer, `id:timeout:deadline`.
fn lives_of(said: &str) -> Option<Lives> {
    let mut parts = said.split(':').map(|it| it.parse().ok());
    let mut number = || parts.next()?;
    Some(Lives {
        id: number()?,
        timeout: number()?,
        deadline: number()?,
    })
}

impl Reads for MySqlReads {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn names<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<Vec<String>>, CallError>> {
        let (dir, name) = split(path);
        async move {
            let mut row = self.row(&self.questions.list, &[dir, name, path]).await?;
            let (is_there, count, joined) = (row.number()? > 0, row.number()?, row.bytes()?);
            let names = names(count, &joined)?;
            Ok(is_there.then_some(names))
        }
        .boxed()
    }

    fn node<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<ReadNode>, CallError>> {
        let (dir, name) = split(path);
        async move {
            let mut row = self.row(&self.questions.node, &[path, dir, name]).await?;
            if row.number()? == 0 {
                return Ok(None);
            }
            let mut parts = [0; 7];
            for part in &mut parts {
                *part = row.number()?;
            }
            Ok(Some((row.bytes()?, counted(parts)?)))
        }
        .boxed()
    }

    fn silent<'a>(&'a self, sessions: &'a [i64]) -> BoxFuture<'a, Result<Vec<Silence>, CallError>> {
        async move {
            let ids: Vec<_> = sessions.iter().map(i64::to_string).collect();
            let mut row = self.row(&self.questions.silent, &[&ids.join(",")]).await?;
            let clocks = Clocks {
                own: row.number()?,
                last: row.number()?,
                now: row.number()?,
            };
            let lives = names(row.number()?, &row.bytes()?)?;
            let lives: Option<Vec<_>> = lives.iter().map(|it| lives_of(it)).collect();
            let lives = lives.ok_or_else(|| CallError::unexpected("sessions that are none"))?;
            let silent = lives.into_iter().filter_map(|it| clocks.silence(it));
            Ok(silent.collect())
        }
        .boxed()
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), CallError>> {
        self.line.ping(Duration::ZERO).boxed()
    }

    fn lost(&self) -> BoxFuture<'_, Loss> {
        // The next request finds out.
        future::pending().boxed()
    }
}
