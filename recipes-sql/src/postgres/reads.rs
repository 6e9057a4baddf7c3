//! A connection of somebody who only reads. The statements are plain ones: such a user may have no right but to read
//! three tables.

use std::fmt;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use recipes_core::NodesError;
use recipes_keeper::{
    CallError, Clocks, Facts, Lives, Loss, LossSender, ReadNode, Reads, Silence, counted,
    until_lost,
};
use tokio::sync::watch;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use crate::path::split;

use super::answers::{Cut, call_error, lost};
use super::line::{Call, Line};
use super::schema::quoted;
use super::wire::Route;

/// Parent and name of a node, and its path.
const NODE: [Type; 3] = [Type::TEXT, Type::TEXT, Type::TEXT];

/// What is asked. All names are qualified: users may have any path.
struct Questions {
    list: Call,
    node: Call,
    silent: Call,
    beat: Call,
}

impl Questions {
    /// Those for a schema, whose name is quoted. Through a pooler, `only_on` is the condition under which they are
    /// answered.
    fn new(schema: &str, only_on: &str) -> Self {
        let is = "OPERATOR(pg_catalog.=)";
        let extract = "pg_catalog.date_part('epoch', pg_catalog.clock_timestamp())";
        let list = format!(
            "SELECT EXISTS (SELECT FROM {schema}.nodes n WHERE n.dir {is} $1 AND n.name {is} $2), l.count, l.names
               FROM (SELECT pg_catalog.count(*) AS count, pg_catalog.string_agg(c.name, '/' ORDER BY c.seq) AS names
                 FROM {schema}.nodes c WHERE c.dir {is} $3) AS l{only_on}"
        );
        let node = format!(
            "SELECT n.d, n.c, n.m, n.v, n.o, (SELECT pg_catalog.count(*) FROM {schema}.nodes c WHERE c.dir {is} $3),
                 coalesce(t.q, 0), coalesce(t.p, n.c)
               FROM (SELECT) AS one
               LEFT JOIN {schema}.nodes n ON n.dir {is} $1 AND n.name {is} $2
               LEFT JOIN LATERAL (
                 SELECT x.q, x.p FROM {schema}.counts x WHERE x.dir {is} n.dir AND x.name {is} n.name
                   ORDER BY x.p DESC LIMIT 1
               ) AS t ON true{only_on}"
        );
        // Not the names of sessions, which nobody may read who only reads.
        let silent = format!(
            "SELECT k.own, k.last, ({extract} OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8, l.ids, l.timeouts, l.deadlines
               FROM (SELECT c.own, c.last FROM {schema}.clock c ORDER BY c.own DESC LIMIT 1) AS k,
                 (SELECT pg_catalog.array_agg(s.id) AS ids, pg_catalog.array_agg(s.timeout) AS timeouts,
                   pg_catalog.array_agg(s.deadline) AS deadlines
                 FROM {schema}.sessions s WHERE s.id {is} ANY ($1)) AS l{only_on}"
        );
        Self {
            silent: Call::new(silent, &[Type::INT8_ARRAY]),
            list: Call::new(list, &NODE),
            node: Call::new(node, &NODE),
            beat: Call::new(format!("SELECT true{only_on}"), &[]),
        }
    }
}

pub(super) struct PostgresReads {
    line: Line,
    questions: Questions,
    facts: Facts,
    loss: LossSender,
}

impl fmt::Debug for PostgresReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reads").field("facts", &self.facts).finish()
    }
}

impl PostgresReads {
    pub(super) async fn open(route: &Route) -> Result<Arc<dyn Reads>, NodesError> {
        let line = route.first(|host| async move {
            let loss: LossSender = Arc::new(watch::channel(None).0);
            // Nobody who only reads waits for the bell.
            let line = route.line(&host, &Arc::default(), &loss).await?;
            Ok((line, loss))
        });
        let ((line, found, facts), loss) = line.await?;
        route.look_at_schema(&line, &found).await?;
        let questions = Questions::new(&quoted(&route.schema), &found.only_here(line.is_direct()));
        Ok(Arc::new(Self {
            line,
            questions,
            facts,
            loss,
        }))
    }

    /// The answer to a question about a node.
    async fn row(&self, call: &Call, path: &str) -> Result<Row, CallError> {
        let (dir, name) = split(path);
        let row = self.line.one(call, &[&dir, &name, &path]).await;
        row.map_err(call_error)
    }
}

fn names(row: &Row) -> Result<Option<Vec<String>>, CallError> {
    let (is_there, count): (bool, i64) = (part(row, 0)?, part(row, 1)?);
    let joined: Option<String> = part(row, 2)?;
    let names = joined
        .iter()
        .flat_map(|it| it.split('/'))
        .map(str::to_owned);
    let names: Vec<_> = names.collect();
    match usize::try_from(count).is_ok_and(|count| count == names.len()) {
        true => Ok(is_there.then_some(names)),
        false => Err(lost(Cut)),
    }
}

fn node(row: &Row) -> Result<Option<ReadNode>, CallError> {
    let Some(data) = part(row, 0)? else {
        return Ok(None);
    };
    let version: i32 = part(row, 3)?;
    let stat = counted([
        part(row, 1)?,
        part(row, 2)?,
        i64::from(version),
        part(row, 4)?,
        part(row, 5)?,
        part(row, 6)?,
        part(row, 7)?,
    ])?;
    Ok(Some((data, stat)))
}

fn silent(row: &Row) -> Result<Vec<Silence>, CallError> {
    let clocks = Clocks {
        own: part(row, 0)?,
        last: part(row, 1)?,
        now: part(row, 2)?,
    };
    let numbers = |at| Ok::<_, CallError>(part::<Option<Vec<i64>>>(row, at)?.unwrap_or_default());
    let (ids, timeouts, deadlines) = (numbers(3)?, numbers(4)?, numbers(5)?);
    let lives = ids.into_iter().zip(timeouts).zip(deadlines);
    let silent = lives.filter_map(|((id, timeout), deadline)| {
        clocks.silence(Lives {
            id,
            timeout,
            deadline,
        })
    });
    Ok(silent.collect())
}

fn part<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, CallError> {
    row.try_get(at).map_err(lost)
}

impl Reads for PostgresReads {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn names<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<Vec<String>>, CallError>> {
        async move { names(&self.row(&self.questions.list, path).await?) }.boxed()
    }

    fn node<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<ReadNode>, CallError>> {
        async move { node(&self.row(&self.questions.node, path).await?) }.boxed()
    }

    fn silent<'a>(&'a self, sessions: &'a [i64]) -> BoxFuture<'a, Result<Vec<Silence>, CallError>> {
        async move {
            let row = self.line.one(&self.questions.silent, &[&sessions]).await;
            silent(&row.map_err(call_error)?)
        }
        .boxed()
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), CallError>> {
        let answered = self.line.one(&self.questions.beat, &[]);
        answered
            .map(|row| row.map(drop).map_err(call_error))
            .boxed()
    }

    fn lost(&self) -> BoxFuture<'_, Loss> {
        until_lost(&self.loss)
    }
}
