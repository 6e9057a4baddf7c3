//! What other sessions see of the nodes of one that has no connection.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use recipes_core::{Nodes, NodesError, commit};
use tokio::time::timeout;
use zookeeper_client::Error;

use crate::answers::refusal_of_session;
use crate::client::{ClientNodes, NodeOptions};
use crate::connect_string::Server;
use crate::link::{ANSWER_PART, Link};

impl Link {
    /// Opens a session on one server, and on all others at once if that one does not show all
    /// nodes. Looks whether the nodes exist.
    ///
    /// A new session names no transaction that it has seen, so also a server that has lost its data
    /// lets it in. Its first request is one that a quorum commits, so its server shows everything
    /// that was committed before. The opening alone proves nothing: a server with
    /// `localSessionsEnabled` opens sessions without a quorum.
    ///
    /// The session that asks is not touched: a second connection of its own would renegotiate its
    /// timeout, and the server would close the first.
    ///
    /// What their answers mean is for [`Views`] to say.
    pub(crate) async fn others_see(
        &self,
        session: i64,
        session_timeout: Duration,
        paths: &[String],
    ) -> Result<Vec<bool>, NodesError> {
        let mut servers = self.servers();
        let count = servers.len();
        // Sessions that lose their connections together do not all begin with one server.
        let first = usize::try_from(session.unsigned_abs()).unwrap_or_default();
        servers.rotate_left(first % count);
        let answer_max = session_timeout / ANSWER_PART;
        let mut views = Views::new(count, paths.len());
        let (first, rest) = servers.split_at(1);
        for asked in [first, rest] {
            let view = |(server, tls): &(Server, bool)| {
                let shown = self.shown(server.clone(), *tls, answer_max, paths);
                timeout(answer_max, shown)
            };
            let mut asked: FuturesUnordered<_> = asked.iter().map(view).collect();
            while !views.is_decided() {
                match asked.next().await {
                    Some(view) => {
                        views.add(view.unwrap_or(Err(refusal_of_session(Error::Timeout))))
                    }
                    None => break,
                }
            }
        }
        views.outcome()
    }

    /// Which nodes a server shows to a session of its own.
    async fn shown(
        &self,
        server: Server,
        tls: bool,
        answer_max: Duration,
        paths: &[String],
    ) -> Result<Vec<bool>, NodesError> {
        // What is opened after we have stopped waiting goes soon. Twice, because the client takes
        // no time to connect that is longer than 3/5 of the session timeout.
        let connector = self.connector().with_session_timeout(2 * answer_max);
        let connector = connector.with_connection_timeout(answer_max);
        let client = self.open_on(&server, tls, connector).await;
        let client = client.map_err(refusal_of_session)?;
        let nodes = ClientNodes::new(client, NodeOptions::default(), None);
        let committed = commit(&nodes, "/");
        let stats: Vec<_> = paths.iter().map(|path| nodes.stat(path)).collect();
        committed.await?;
        let mut shown = Vec::with_capacity(paths.len());
        for stat in stats {
            shown.push(match stat.await {
                Ok(stat) => stat.is_some(),
                // Some servers say this of a node that exists and may not be read.
                Err(NodesError::NoAuth) => true,
                Err(error) => return Err(error),
            });
        }
        Ok(shown)
    }
}

/// What the servers of a connect string show of some nodes.
///
/// A node is there if one server shows it. It is gone if more than half of the servers do not show
/// it: one address of several may lead to a store of its own.
struct Views {
    servers: usize,
    answers: usize,
    failures: usize,
    seen: Vec<bool>,
    failed: NodesError,
}

impl Views {
    fn new(servers: usize, nodes: usize) -> Self {
        Self {
            servers,
            answers: 0,
            failures: 0,
            seen: vec![false; nodes],
            failed: refusal_of_session(Error::Timeout),
        }
    }

    /// Which nodes one server shows, or why nobody knows.
    fn add(&mut self, view: Result<Vec<bool>, NodesError>) {
        match view {
            Ok(shown) => {
                self.answers += 1;
                let both = self.seen.iter_mut().zip(shown);
                both.for_each(|(it, is_shown)| *it |= is_shown);
            }
            Err(error) => {
                self.failures += 1;
                self.failed = error;
            }
        }
    }

    /// Whether all nodes are there, and so the client will find their servers too.
    fn are_all_seen(&self) -> bool {
        self.seen.iter().all(|it| *it)
    }

    /// Whether the other servers need not be asked: without half of them, none is gone.
    fn is_decided(&self) -> bool {
        self.are_all_seen() || self.failures * 2 >= self.servers
    }

    /// Which nodes are there; an error if nobody can say that the others are gone.
    fn outcome(self) -> Result<Vec<bool>, NodesError> {
        match self.are_all_seen() || self.answers * 2 > self.servers {
            true => Ok(self.seen),
            false => Err(self.failed),
        }
    }
}

#[cfg(test)]
mod tests;
