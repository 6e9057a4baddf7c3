//! How a connection is made: it becomes independent of what it was given, and the server is judged.

use std::sync::Arc;

use mysql_async::prelude::Queryable as _;
use mysql_async::{Conn, Error, Row};
use recipes_core::NodesError;
use recipes_keeper::Facts;

use super::checks::{self, MySqlRefusal, STATUS, Said, VARIABLES};
use super::errors::refused;
use super::product::Product;
use super::settled;
use super::wire::Route;

/// With a limit of its own, as `init_connect` may have set another.
const VERSION: &str = "SELECT VERSION() LIMIT 1";
/// Some servers let nobody set their time. It is theirs then.
const TIME: &str = "SET SESSION timestamp = DEFAULT";
const NOT_TO_BE_SET: u16 = 1290;

/// Opens a connection, makes it independent of what the server gives it, and judges the server.
pub(super) async fn connect(route: &Route) -> Result<(Conn, Facts), NodesError> {
    let connection = Conn::new(route.address.options.clone()).await;
    let mut connection = connection.map_err(refused)?;
    let version: Option<String> = connection.query_first(VERSION).await.map_err(refused)?;
    let version = version.unwrap_or_default();
    let no = |why: MySqlRefusal| NodesError::Refused(Arc::new(why));
    let Some(product) = Product::of(&version) else {
        return Err(no(MySqlRefusal::Version { found: version }));
    };
    settle(&mut connection, product, route)
        .await
        .map_err(refused)?;
    let said = look(&mut connection, product).await.map_err(refused)?;
    let facts = checks::judge(&said, route.allowed).map_err(no)?;
    Ok((connection, facts))
}

async fn settle(connection: &mut Conn, product: Product, route: &Route) -> Result<(), Error> {
    for statement in settled::statements(product, &route.address.database, route.session_timeout) {
        connection.query_drop(statement).await?;
    }
    match connection.query_drop(TIME).await {
        Err(Error::Server(error)) if error.code == NOT_TO_BE_SET => Ok(()),
        set => set,
    }
}

/// Asks the server what it is.
async fn look(connection: &mut Conn, product: Product) -> Result<Said, Error> {
    let mut variables: Vec<(String, String)> = Vec::new();
    for (what, names) in [("VARIABLES", &VARIABLES[..]), ("STATUS", &STATUS[..])] {
        let show = format!(
            "SHOW GLOBAL {what} WHERE Variable_name IN ('{}')",
            names.join("', '")
        );
        variables.append(&mut connection.query(show).await?);
    }
    let started = format!(
        "SELECT UNIX_TIMESTAMP() - CAST(VARIABLE_VALUE AS SIGNED) \
         FROM {} WHERE VARIABLE_NAME = 'UPTIME'",
        product.status()
    );
    let started: Option<i64> = connection.query_first(started).await?;
    Ok(Said {
        variables: variables.into_iter().collect(),
        started: started.unwrap_or_default(),
        primary: primary(connection, product).await?,
    })
}

/// The server that this one follows now. Few users may ask; then none is known.
async fn primary(connection: &mut Conn, product: Product) -> Result<Option<String>, Error> {
    let (followed, [host, port, receives, applies]) = product.followed();
    let rows: Vec<Row> = match connection.query(followed).await {
        Ok(rows) => rows,
        Err(Error::Server(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    let following = rows.iter().find_map(|row| {
        let column = |name: &str| row.get_opt::<String, _>(name)?.ok();
        let runs = |name| column(name).is_some_and(|it| it != "No");
        let is_running = runs(receives) || runs(applies);
        let host = column(host).unwrap_or_default();
        let port = row.get_opt::<u16, _>(port)?.unwrap_or_default();
        is_running.then(|| format!("{host}:{port}"))
    });
    Ok(following)
}
