//! The world of a script on a real Redis server.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use recipes_core::{NewNode, NodeMode, Nodes, SessionOptions};
use recipes_redis::RedisBuilder;
use recipes_testing::{RedisServer, StoreClock};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, AsyncConnectionConfig, cmd};

use crate::client::{Client, Lists};
use crate::gate::Gate;
use crate::seen::Leaf;
use crate::world::SESSION_TIMEOUT;

/// Scripts do not know when a container is removed.
const CONTAINER_REST: Duration = Duration::from_secs(1_000_000);

/// The key of the live sessions, each with its deadline.
const PREFIX: &str = "locks";
const SESSIONS: &str = "{locks}:s";

#[derive(Clone)]
pub(crate) struct OnRedis {
    server: Arc<RedisServer>,
    operator: Arc<dyn Nodes>,
    commands: MultiplexedConnection,
}

impl OnRedis {
    pub(crate) async fn start() -> Self {
        // No script restarts the server, so nothing has to be kept.
        let server = RedisServer::builder().setting("appendonly", "no");
        let server = server.start().await.unwrap();
        let operator = session(&server.url()).await;
        // All scripts share the machine: an answer may take long.
        let patient = AsyncConnectionConfig::new().set_response_timeout(None);
        let client = redis::Client::open(server.url()).unwrap();
        let commands = client.get_multiplexed_async_connection_with_config(&patient);
        Self {
            commands: commands.await.unwrap(),
            server: Arc::new(server),
            operator,
        }
    }

    pub(crate) async fn create(&self, directory: &str) {
        let node = NewNode {
            path: directory.to_owned(),
            data: Arc::from([]),
            mode: NodeMode::Persistent,
        };
        self.operator.create(&node).await.unwrap();
    }

    pub(crate) async fn open(&self, cut_off: bool) -> Client {
        let gate = match cut_off {
            true => Some(Gate::before(self.server.port()).await.unwrap()),
            false => None,
        };
        let through = gate
            .as_ref()
            .map(|gate| format!("redis://{}", gate.connect_string()));
        let url = through.unwrap_or_else(|| self.server.url());
        Client::new(session(&url).await, Lists::default(), gate)
    }

    /// Makes the session one that was silent for too long, and has a script notice.
    pub(crate) async fn expire(&self, session: i64) {
        let own = format!("{session}:");
        // A beat of the session may come in between, or a script end others first: it ends four at
        // most. So this is repeated until the session is gone.
        let mut commands = self.commands.clone();
        loop {
            let all: Vec<String> = commands.zrange(SESSIONS, 0, -1).await.unwrap();
            let Some(name) = all.iter().find(|name| name.starts_with(&own)) else {
                return;
            };
            let mut silence = cmd("ZADD");
            silence.arg(SESSIONS).arg("XX").arg(0).arg(name);
            let _: i64 = silence.query_async(&mut commands).await.unwrap();
            let due = self.server.store_clock(PREFIX).await.unwrap().due;
            let none = StoreClock {
                due: -due,
                ..StoreClock::default()
            };
            self.server.change_store_clock(PREFIX, none).await.unwrap();
            self.operator.sync("/").await.unwrap();
        }
    }

    pub(crate) async fn tree(&self, directory: &str) -> Vec<Leaf> {
        tree(&*self.operator, directory.to_owned()).await
    }
}

async fn session(url: &str) -> Arc<dyn Nodes> {
    let options = SessionOptions::new().session_timeout(SESSION_TIMEOUT);
    let builder = RedisBuilder::from(options)
        .new_server()
        .container_rest(CONTAINER_REST);
    builder.store(url).unwrap().connect().await.unwrap()
}

fn tree(operator: &dyn Nodes, path: String) -> BoxFuture<'_, Vec<Leaf>> {
    Box::pin(async move {
        let (read, listed) = (operator.read(&path), operator.list(&path));
        // A child that is listed and is no node shows up as a leaf of its own.
        let (data, stat) = read.await.unwrap().unzip();
        let mut names = listed.await.unwrap_or_default();
        names.sort_unstable();
        let leaf = stat.map(|stat| Leaf {
            path: path.clone(),
            owner: stat.ephemeral_owner,
            data: format!("{:?}", String::from_utf8_lossy(&data.unwrap_or_default())),
            czxid: stat.czxid,
            mzxid: stat.mzxid,
            pzxid: stat.pzxid,
            version: stat.version,
            cversion: stat.cversion,
        });
        let mut leaves = vec![leaf.unwrap_or_else(|| Leaf::missing(&path))];
        let children = names
            .iter()
            .map(|name| tree(operator, format!("{path}/{name}")));
        leaves.extend(join_all(children).await.into_iter().flatten());
        leaves
    })
}
