//! The service's own connection to the database.

use mysql_async::prelude::Queryable as _;
use test_rig::TestEnsemble;
use tokio::sync::Mutex;
use tokio_postgres::NoTls;

/// A connection, as a service has it.
pub(crate) enum Database {
    Postgres(tokio_postgres::Client),
    MariaDb(Mutex<mysql_async::Conn>),
}

impl Database {
    pub(crate) async fn connect(ensemble: &TestEnsemble) -> Self {
        let url = ensemble.url();
        match ensemble {
            TestEnsemble::Postgres(_) => {
                let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
                tokio::spawn(connection);
                Self::Postgres(client)
            }
            TestEnsemble::MariaDb(_) => {
                let options = mysql_async::Opts::from_url(&url).unwrap();
                Self::MariaDb(Mutex::new(mysql_async::Conn::new(options).await.unwrap()))
            }
            other => panic!("not a database: {other:?}"),
        }
    }

    /// Runs statements. The error is that of the client, with the state that the server gave it.
    pub(crate) async fn run(&self, sql: &str) -> Result<(), String> {
        match self {
            Self::Postgres(client) => client.batch_execute(sql).await.map_err(|error| {
                let told = error.as_db_error();
                told.map_or_else(
                    || error.to_string(),
                    |it| format!("{}: {it}", it.code().code()),
                )
            }),
            Self::MariaDb(connection) => {
                let mut connection = connection.lock().await;
                connection
                    .query_drop(sql)
                    .await
                    .map_err(|it| it.to_string())
            }
        }
    }

    /// The numbers of the first column.
    pub(crate) async fn numbers(&self, sql: &str) -> Vec<i64> {
        match self {
            Self::Postgres(client) => {
                let rows = client.query(sql, &[]).await.unwrap();
                rows.iter().map(|row| row.get(0)).collect()
            }
            Self::MariaDb(connection) => connection.lock().await.query(sql).await.unwrap(),
        }
    }
}
