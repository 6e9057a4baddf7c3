//! Redis, as an operator sees it.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use recipes_core::{ConnectError, Session, SessionOptions, Store};
use recipes_redis::RedisBuilder;

use super::must;
use super::served::{CONTAINER_REST, Served};
use crate::server::{RedisServer, ServerError, StoreClock};

/// The default prefix.
const PREFIX: &str = "locks";

fn builder(options: SessionOptions) -> RedisBuilder {
    // Nobody held a lock before the server was started.
    RedisBuilder::from(options)
        .new_server()
        .container_rest(CONTAINER_REST)
}

impl Served for RedisServer {
    fn store(&self, options: SessionOptions) -> Arc<dyn Store> {
        must("connect", builder(options).store(&self.url()))
    }

    fn connect(&self, options: SessionOptions) -> BoxFuture<'_, Result<Session, ConnectError>> {
        async move { builder(options).connect(&self.url()).await }.boxed()
    }

    fn silence(&self, session: i64) -> BoxFuture<'_, ()> {
        async move {
            let sessions = self.command::<Vec<String>>(&["ZRANGE", "{locks}:s", "0", "-1"]);
            let prefix = format!("{session}:");
            let sessions = must("list sessions", sessions.await);
            let session = sessions.iter().find(|it| it.starts_with(&prefix));
            let Some(session) = session else {
                panic!("session has ended already")
            };
            let silent = ["ZADD", "{locks}:s", "0", session];
            let silenced: i64 = must("expire a session", self.command(&silent).await);
            assert_eq!(silenced, 0, "session ended meanwhile");
            // Somebody is due.
            let clock = must("read the clock", self.store_clock(PREFIX).await);
            let due = StoreClock {
                due: -clock.due,
                ..StoreClock::default()
            };
            must("set it", self.change_store_clock(PREFIX, due).await);
        }
        .boxed()
    }

    fn watch_count(&self) -> BoxFuture<'_, usize> {
        async move {
            let asked = self.command::<Vec<String>>(&["KEYS", "{locks}:w:*"]);
            let mut count = 0;
            for key in must("list watches", asked.await) {
                let watchers: usize = must("count", self.command(&["HLEN", &key]).await);
                count += watchers;
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
