//! PostgreSQL and MariaDB, as an operator sees them.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use recipes_core::{Error, Nodes, Session, SessionOptions, Store};
use recipes_sql::{MySqlBuilder, PostgresBuilder};

use super::must;
use super::place::Place;
use super::served::{CONTAINER_REST, Served, new_operator};
use recipes_testing::{MariaDbServer, PostgresServer, ServerError};

const SESSIONS: &str = "SELECT id FROM @sessions";
/// PostgreSQL alone knows of watches.
const WATCH_NUMBERS: &str = "SELECT coalesce(sum(number), 0) FROM @watches";
const WATCHES: &str = "SELECT count(DISTINCT (dir, name, session)) FROM @watches";

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
    (
        $server:ident, $builder:ident, $within:ident, $separator:literal, $deadlines:literal, $highest:literal
    ) => {
        impl Place<$server, dyn Nodes> {
            /// What the names of its tables begin with.
            fn tables(&self) -> String {
                format!("{}{}", self.name().unwrap_or("lock_recipes"), $separator)
            }

            fn builder_of(&self, options: SessionOptions, rest: Duration) -> $builder {
                // Nobody held a lock before the server was started.
                $builder::from(options)
                    .$within(self.tables().trim_end_matches('.'))
                    .new_server()
                    .container_rest(rest)
            }

            async fn asked(&self, statement: &str) -> Vec<Vec<String>> {
                let statement = of(&self.tables(), statement);
                must("ask the server", self.sql(&statement).await)
            }
        }

        impl Served for Place<$server, dyn Nodes> {
            fn address(&self) -> String {
                format!("127.0.0.1:{}", self.port())
            }

            fn operator(&self) -> BoxFuture<'_, Arc<dyn Nodes>> {
                async move {
                    must(
                        "connect",
                        Place::operator(self, async || new_operator(self).await).await,
                    )
                }
                .boxed()
            }

            fn store(
                &self,
                address: &str,
                options: SessionOptions,
                rest: Duration,
            ) -> Arc<dyn Store> {
                let url = self.url_at(address);
                must("connect", self.builder_of(options, rest).store(&url))
            }

            fn connect(&self, options: SessionOptions) -> BoxFuture<'_, Result<Session, Error>> {
                let builder = self.builder_of(options, CONTAINER_REST);
                async move { builder.connect(&self.url()).await }.boxed()
            }

            fn silence(&self, session: i64) -> BoxFuture<'_, bool> {
                async move {
                    let id = session.to_string();
                    if !self.asked(SESSIONS).await.concat().contains(&id) {
                        return false;
                    }
                    let silence = format!("UPDATE @{} = {id}", $deadlines);
                    self.asked(&silence).await;
                    self.asked("UPDATE @clock SET due = 0").await;
                    true
                }
                .boxed()
            }

            fn watch_count(&self) -> BoxFuture<'_, usize> {
                async move { number(&self.asked(WATCHES).await) }.boxed()
            }

            fn watch_numbers(&self) -> BoxFuture<'_, usize> {
                async move { number(&self.asked(WATCH_NUMBERS).await) }.boxed()
            }

            fn zxid(&self) -> BoxFuture<'_, i64> {
                async move { number(&self.asked($highest).await) }.boxed()
            }

            fn stop(&self) -> BoxFuture<'_, Result<(), ServerError>> {
                $server::stop(self).boxed()
            }

            fn start_again(&self) -> BoxFuture<'_, Result<(), ServerError>> {
                $server::start_again(self).boxed()
            }
        }
    };
}

served!(
    PostgresServer,
    PostgresBuilder,
    schema,
    ".",
    "sessions SET deadline = 0 WHERE id",
    "SELECT max(number) FROM (SELECT greatest(c, m) FROM @nodes UNION ALL SELECT p FROM @counts) AS of (number)"
);
served!(
    MariaDbServer,
    MySqlBuilder,
    prefix,
    "_",
    "beats SET deadline = 0 WHERE session",
    "SELECT coalesce(max(greatest(c, m, p)), 0) FROM @nodes"
);
