//! Redis, as an operator sees it.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use recipes_core::{ConnectError, Session, SessionOptions, Store};
use recipes_redis::RedisBuilder;

use super::must;
use super::served::{CONTAINER_REST, Served};
use crate::server::{RedisServer, ServerError, StoreClock};

/// The default prefix.
const PREFIX: &str = "locks";

fn builder(options: SessionOptions, rest: Duration) -> RedisBuilder {
    // Nobody held a lock before the server was started.
    RedisBuilder::from(options)
        .new_server()
        .container_rest(rest)
}

impl Served for RedisServer {
    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    fn store(&self, address: &str, options: SessionOptions, rest: Duration) -> Arc<dyn Store> {
        let url = format!("redis://{address}");
        must("connect", builder(options, rest).store(&url))
    }

    fn connect(&self, options: SessionOptions) -> BoxFuture<'_, Result<Session, ConnectError>> {
        async move { builder(options, CONTAINER_REST).connect(&self.url()).await }.boxed()
    }

    fn silence(&self, session: i64) -> BoxFuture<'_, bool> {
        async move {
            let sessions = self.command::<Vec<String>>(&["ZRANGE", "{locks}:s", "0", "-1"]);
            let prefix = format!("{session}:");
            let sessions = must("list sessions", sessions.await);
            let session = sessions.iter().find(|it| it.starts_with(&prefix));
            let Some(session) = session else {
                return false;
            };
            let silent = ["ZADD", "{locks}:s", "XX", "0", session];
            let _: i64 = must("expire a session", self.command(&silent).await);
            // Somebody is due.
            let clock = must("read the clock", self.store_clock(PREFIX).await);
            let due = StoreClock {
                due: -clock.due,
                ..StoreClock::default()
            };
            must("set it", self.change_store_clock(PREFIX, due).await);
            true
        }
        .boxed()
    }

    fn watch_count(&self) -> BoxFuture<'_, usize> {
        async move {
            let asked = self.command::<Vec<String>>(&["KEYS", "{locks}:n:*"]);
            let mut count = 0;
            for key in must("list nodes", asked.await) {
                let fields: Vec<String> = must("read one", self.command(&["HKEYS", &key]).await);
                count += fields.iter().filter(|it| it.len() > 1).count();
            }
            count
        }
        .boxed()
    }

    fn zxid(&self) -> BoxFuture<'_, i64> {
        async move {
            let clock = self.store_clock(PREFIX).await;
            must("read the last number", clock).number
        }
        .boxed()
    }

    fn stop(&self) -> BoxFuture<'_, Result<(), ServerError>> {
        self.stop().boxed()
    }

    fn start_again(&self) -> BoxFuture<'_, Result<(), ServerError>> {
        self.start_again().boxed()
    }
}
