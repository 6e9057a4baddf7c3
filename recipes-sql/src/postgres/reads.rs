//! A connection of somebody who only reads. The statements are plain ones: such a user may have no right but to read
//! three tables.

use std::fmt;
use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use recipes_core::{NodeStat, NodesError};
use recipes_keeper::{Asked, CallError, Facts, Loss, Outcome, Reads, Said, reason, signed, stat};
use tokio::sync::watch;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use crate::aside::{self, LossSender};
use crate::path::split;

use super::answers::{Cut, call_error, lost};
use super::checks::PostgresRefusal;
use super::line::{Call, Line};
use super::schema::quoted;
use super::wire::Route;

/// Parent and name of a node, and its path.
const NODE: [Type; 3] = [Type::TEXT, Type::TEXT, Type::TEXT];

/// What is asked. All names are qualified: users may have any path.
struct Questions {
    list: Call,
    node: Call,
    beat: Call,
}

impl Questions {
    /// Those for a schema, whose name is quoted. Through a pooler, `only_on` is the condition under which they are
    /// answered.
    fn new(schema: &str, only_on: &str) -> Self {
        let is = "OPERATOR(pg_catalog.=)";
        let list = format!(
            "SELECT EXISTS (SELECT FROM {schema}.nodes n WHERE n.dir {is} $1 AND n.name {is} $2), l.count, l.names
               FROM (SELECT pg_catalog.count(*) AS count, pg_catalog.string_agg(c.name, '/' ORDER BY c.seq) AS names
                 FROM {schema}.nodes c WHERE c.dir {is} $3) AS l{only_on}"
        );
        let node = format!(
            "SELECT n.d, n.c, n.m, n.v, n.o, coalesce(t.q, 0), coalesce(t.p, n.c),
                 CASE WHEN n.o {is} 0 THEN (SELECT pg_catalog.count(*) FROM {schema}.nodes c WHERE c.dir {is} $3)
                   ELSE 0 END
               FROM (SELECT) AS one
               LEFT JOIN {schema}.nodes n ON n.dir {is} $1 AND n.name {is} $2
               LEFT JOIN LATERAL (
                 SELECT x.q, x.p FROM {schema}.counts x WHERE x.dir {is} n.dir AND x.name {is} n.name
                   ORDER BY x.p DESC LIMIT 1
               ) AS t ON true{only_on}"
        );
        Self {
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
        let loss: LossSender = Arc::new(watch::channel(None).0);
        let (line, found) = route.line(&Arc::default(), &loss).await?;
        let refused = |why: PostgresRefusal| NodesError::Refused(Arc::new(why));
        let facts = found.judge().map_err(refused)?;
        route.look_at_schema(&line, &found).await?;
        let questions = Questions::new(&quoted(&route.schema), &found.only_here(line.is_direct()));
        Ok(Arc::new(Self {
            line,
            questions,
            facts,
            loss,
        }))
    }

    async fn outcome(&self, asked: &Asked) -> Result<Outcome, CallError> {
        let (path, call) = match asked {
            Asked::List(path) => (path, &self.questions.list),
            Asked::Read(path) | Asked::Stat(path) => (path, &self.questions.node),
            _ => {
                let answered = self.line.one(&self.questions.beat, &[]).await;
                answered.map_err(call_error)?;
                return Ok(Ok(Said::Nothing));
            }
        };
        let (dir, name) = split(path);
        let row = self.line.one(call, &[&dir, &name, path]).await;
        let row = row.map_err(call_error)?;
        let said = match asked {
            Asked::List(_) => names(&row)?.map(|names| Said::Names(names, Vec::new())),
            Asked::Stat(_) => node(&row)?.map(|(_, stat)| Said::Stat(stat)),
            _ => node(&row)?.map(|(data, stat)| Said::Node(data, stat)),
        };
        said.map_or_else(|| reason("NoNode", None).map(Err), |said| Ok(Ok(said)))
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

fn node(row: &Row) -> Result<Option<(Vec<u8>, NodeStat)>, CallError> {
    let Some(data) = part(row, 0)? else {
        return Ok(None);
    };
    let version: i32 = part(row, 3)?;
    let (count, children): (i64, i64) = (part(row, 5)?, part(row, 7)?);
    let parts = [
        part(row, 1)?,
        part(row, 2)?,
        i64::from(version),
        part(row, 4)?,
        children,
        signed(count * 2 - children),
        part(row, 6)?,
    ];
    Ok(Some((data, stat(parts)?)))
}

fn part<'a, T: FromSql<'a>>(row: &'a Row, at: usize) -> Result<T, CallError> {
    row.try_get(at).map_err(lost)
}

impl Reads for PostgresReads {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn read<'a>(&'a self, asked: &'a Asked) -> BoxFuture<'a, Result<Outcome, CallError>> {
        self.outcome(asked).boxed()
    }

    fn lost(&self) -> BoxFuture<'_, Loss> {
        aside::lost(&self.loss)
    }
}
