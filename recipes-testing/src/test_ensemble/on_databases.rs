//! PostgreSQL and MariaDB, as an operator sees them.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use recipes_core::{ConnectError, Session, SessionOptions, Store};
use recipes_sql::{MySqlBuilder, PostgresBuilder};

use super::must;
use super::served::{CONTAINER_REST, Served};
use crate::server::{MariaDbServer, PostgresServer, ServerError};

/// Makes a session, whose id comes between the two parts, one that was silent for too long.
const SILENCE: [&str; 2] = [
    "UPDATE @beats SET deadline = 0 WHERE session = ",
    "; UPDATE @clock SET due = 0;",
];
const HIGHEST: &str = "SELECT coalesce(max(greatest(c, m, p)), 0) FROM @nodes";
const WATCHES: &str = "SELECT count(DISTINCT path, session) FROM @watches";

/// The statement for tables whose names begin so.
fn of(prefix: &str, statement: &str) -> String {
    statement.replace('@', prefix)
}

fn number<T: std::str::FromStr>(rows: &[Vec<String>]) -> T {
    let number = rows.first().and_then(|row| row.first());
    let number = number.and_then(|it| it.parse().ok());
    number.unwrap_or_else(|| panic!("not a number: {rows:?}"))
}

macro_rules! served {
    ($server:ident, $builder:ident, $tables:literal) => {
        impl $server {
            fn builder_of(options: SessionOptions) -> $builder {
                // Nobody held a lock before the server was started.
                $builder::from(options)
                    .new_server()
                    .container_rest(CONTAINER_REST)
            }

            async fn asked(&self, statement: &str) -> Vec<Vec<String>> {
                must("ask the server", self.sql(&of($tables, statement)).await)
            }
        }

        impl Served for $server {
            fn store(&self, options: SessionOptions) -> Arc<dyn Store> {
                must("connect", Self::builder_of(options).store(&self.url()))
            }

            fn connect(
                &self,
                options: SessionOptions,
            ) -> BoxFuture<'_, Result<Session, ConnectError>> {
                async move { Self::builder_of(options).connect(&self.url()).await }.boxed()
            }

            fn silence(&self, session: i64) -> BoxFuture<'_, ()> {
                let [before, after] = SILENCE;
                async move { drop(self.asked(&format!("{before}{session}{after}")).await) }.boxed()
            }

            fn watch_count(&self) -> BoxFuture<'_, usize> {
                async move { number(&self.asked(WATCHES).await) }.boxed()
            }

            fn zxid(&self) -> BoxFuture<'_, i64> {
                async move { number(&self.asked(HIGHEST).await) }.boxed()
            }

            fn stop(&self) -> BoxFuture<'_, Result<(), ServerError>> {
                self.stop().boxed()
            }

            fn start_again(&self) -> BoxFuture<'_, Result<(), ServerError>> {
                self.start_again().boxed()
            }
        }
    };
}

served!(PostgresServer, PostgresBuilder, "lock_recipes.");
served!(MariaDbServer, MySqlBuilder, "lock_recipes_");
