//! PostgreSQL and MariaDB, as an operator sees them.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use recipes_core::{ConnectError, Session, SessionOptions, Store};
use recipes_sql::{MySqlBuilder, PostgresBuilder};

use super::must;
use super::served::{CONTAINER_REST, Served};
use crate::server::{MariaDbServer, PostgresServer, ServerError};

const SESSIONS: &str = "SELECT id FROM @sessions";
const HIGHEST: &str = "SELECT coalesce(max(greatest(c, m, p)), 0) FROM @nodes";
/// PostgreSQL alone knows of watches.
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
    ($server:ident, $builder:ident, $tables:literal, $deadlines:literal) => {
        impl $server {
            fn builder_of(options: SessionOptions, rest: Duration) -> $builder {
                // Nobody held a lock before the server was started.
                $builder::from(options).new_server().container_rest(rest)
            }

            async fn asked(&self, statement: &str) -> Vec<Vec<String>> {
                must("ask the server", self.sql(&of($tables, statement)).await)
            }
        }

        impl Served for $server {
            fn address(&self) -> String {
                format!("127.0.0.1:{}", self.port())
            }

            fn store(
                &self,
                address: &str,
                options: SessionOptions,
                rest: Duration,
            ) -> Arc<dyn Store> {
                let url = self.url_at(address);
                must("connect", Self::builder_of(options, rest).store(&url))
            }

            fn connect(
                &self,
                options: SessionOptions,
            ) -> BoxFuture<'_, Result<Session, ConnectError>> {
                let builder = Self::builder_of(options, CONTAINER_REST);
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

served!(
    PostgresServer,
    PostgresBuilder,
    "lock_recipes.",
    "sessions SET deadline = 0 WHERE id"
);
served!(
    MariaDbServer,
    MySqlBuilder,
    "lock_recipes_",
    "beats SET deadline = 0 WHERE session"
);
