//! etcd, as an operator sees it.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use recipes_core::{Error, Nodes, Session, SessionOptions, Store};
use recipes_etcd::EtcdBuilder;

use super::must;
use super::place::Place;
use super::served::{CONTAINER_REST, Served, new_operator};
use recipes_testing::{EtcdServer, ServerError};

/// All watches on the server.
const WATCHES: &str = "etcd_debugging_mvcc_watcher_total ";

impl Place<EtcdServer, dyn Nodes> {
    /// The prefix of the place, which stands behind the address of a server.
    fn prefix(&self) -> String {
        self.name()
            .map(|name| format!("/{name}"))
            .unwrap_or_default()
    }

    /// A number in the answer of `etcdctl` to a command, in JSON.
    async fn number(&self, words: &[&str], name: &str) -> i64 {
        let words = [words, &["-w", "json"]].concat();
        let answer = must("ask", self.command(&words).await);
        let behind = answer.split_once(&format!("\"{name}\":"));
        let digits = behind.map(|(_, rest)| rest.split(|it: char| !it.is_ascii_digit()));
        let number = digits.and_then(|mut it| it.next()?.parse().ok());
        // What is 0 is left out.
        number.unwrap_or_default()
    }
}

impl Served for Place<EtcdServer, dyn Nodes> {
    fn address(&self) -> String {
        EtcdServer::address(self)
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

    fn store(&self, address: &str, options: SessionOptions, _rest: Duration) -> Arc<dyn Store> {
        let url = format!("etcd://{address}{}", self.prefix());
        must("connect", EtcdBuilder::from(options).store(&url))
    }

    fn connect(&self, options: SessionOptions) -> BoxFuture<'_, Result<Session, Error>> {
        async move {
            let store = self.store(&self.address(), options.clone(), CONTAINER_REST);
            let address = self.url();
            options.open(store, &address).await
        }
        .boxed()
    }

    fn silence(&self, session: i64) -> BoxFuture<'_, bool> {
        async move {
            let lease = format!("{session:x}");
            self.command(&["lease", "revoke", &lease]).await.is_ok()
        }
        .boxed()
    }

    /// Of the server, without those on the sessions' own keys.
    fn watch_count(&self) -> BoxFuture<'_, usize> {
        async move {
            // Other places are not told from this one.
            let server = self.own_server();
            let sessions = ["get", "--prefix", "//sessions/", "--keys-only"];
            let sessions = self.number(&sessions, "count").await;
            let watches = must("count watches", server.metric(WATCHES).await);
            // A count, in decimal digits.
            let watches: usize = must("count watches", watches.to_string().parse());
            watches.saturating_sub(usize::try_from(sessions).unwrap_or_default())
        }
        .boxed()
    }

    fn zxid(&self) -> BoxFuture<'_, i64> {
        self.number(&["get", "x"], "revision").boxed()
    }

    fn stop(&self) -> BoxFuture<'_, Result<(), ServerError>> {
        EtcdServer::stop(self).boxed()
    }

    fn start_again(&self) -> BoxFuture<'_, Result<(), ServerError>> {
        EtcdServer::start_again(self).boxed()
    }
}
