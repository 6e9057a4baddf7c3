//! Redis, as an operator sees it.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use recipes_core::{Error, Nodes, Session, SessionOptions, Store};
use recipes_redis::RedisBuilder;

use super::must;
use super::place::Place;
use super::served::{CONTAINER_REST, Served, new_operator};
use recipes_testing::{RedisServer, ServerError, StoreClock};

/// The default prefix.
const PREFIX: &str = "locks";

impl Place<RedisServer, dyn Nodes> {
    fn prefix(&self) -> &str {
        self.name().unwrap_or(PREFIX)
    }

    fn builder(&self, options: SessionOptions, rest: Duration) -> RedisBuilder {
        // Nobody held a lock before the server was started.
        RedisBuilder::from(options)
            .prefix(self.prefix())
            .new_server()
            .container_rest(rest)
    }
}

impl Served for Place<RedisServer, dyn Nodes> {
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

    fn store(&self, address: &str, options: SessionOptions, rest: Duration) -> Arc<dyn Store> {
        let url = format!("redis://{address}");
        must("connect", self.builder(options, rest).store(&url))
    }

    fn connect(&self, options: SessionOptions) -> BoxFuture<'_, Result<Session, Error>> {
        let builder = self.builder(options, CONTAINER_REST);
        async move { builder.connect(&self.url()).await }.boxed()
    }

    fn silence(&self, session: i64) -> BoxFuture<'_, bool> {
        async move {
            let all = format!("{{{}}}:s", self.prefix());
            let sessions = self.command(&["ZRANGE", &all, "0", "-1"]).await;
            let sessions: Vec<String> = must("list sessions", sessions);
            let prefix = format!("{session}:");
            let session = sessions.iter().find(|it| it.starts_with(&prefix));
            let Some(session) = session else {
                return false;
            };
            let silent = ["ZADD", &all, "XX", "0", session];
            let _: i64 = must("expire a session", self.command(&silent).await);
            // Somebody is due.
            let clock = must("read the clock", self.store_clock(self.prefix()).await);
            let due = StoreClock {
                due: -clock.due,
                ..StoreClock::default()
            };
            must("set it", self.change_store_clock(self.prefix(), due).await);
            true
        }
        .boxed()
    }

    fn watch_count(&self) -> BoxFuture<'_, usize> {
        async move {
            let nodes = format!("{{{}}}:n:*", self.prefix());
            let keys: Vec<String> = must("list nodes", self.command(&["KEYS", &nodes]).await);
            let mut count = 0;
            for key in keys {
                let fields: Vec<String> = must("read one", self.command(&["HKEYS", &key]).await);
                count += fields.iter().filter(|it| it.len() > 1).count();
            }
            count
        }
        .boxed()
    }

    fn zxid(&self) -> BoxFuture<'_, i64> {
        async move {
            let clock = self.store_clock(self.prefix()).await;
            must("read the last number", clock).number
        }
        .boxed()
    }

    fn stop(&self) -> BoxFuture<'_, Result<(), ServerError>> {
        RedisServer::stop(self).boxed()
    }

    fn start_again(&self) -> BoxFuture<'_, Result<(), ServerError>> {
        RedisServer::start_again(self).boxed()
    }
}
