//! What other sessions see of the nodes of one that has no connection.

use std::time::Duration;

use recipes_core::NodesError;
use tokio::time::timeout;
use zookeeper_client::{Client, Error, MultiWriteError};

use crate::answers::refusal;
use crate::connect_string::Server;
use crate::link::Link;

/// One server may take this part of the session timeout to answer. A server that is starting, or
/// that has no quorum, opens no session.
const ANSWER_PART: u32 = 8;

impl Link {
    /// Opens a session on each server in turn, and looks whether the nodes exist.
    ///
    /// A new session names no transaction that it has seen, so also a server that has lost its data
    /// lets it in. Its first request is one that a quorum commits, so its server shows everything
    /// that was committed before. The opening alone proves nothing: a server with
    /// `localSessionsEnabled` opens sessions without a quorum.
    ///
    /// The session that asks is not touched: a second connection of its own would renegotiate its
    /// timeout, and the server would close the first.
    ///
    /// A node is there if one server shows it. It is gone if more than half of the servers of the
    /// connect string do not show it: one address of several may lead to a store of its own.
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
        let mut seen = vec![false; paths.len()];
        let (mut answers, mut failed) = (0, Error::Timeout);
        for (server, tls) in &servers {
            let answer_max = session_timeout / ANSWER_PART;
            let shown = self.shown(server, *tls, answer_max, paths);
            let shown = timeout(answer_max, shown).await;
            match shown.unwrap_or(Err(Error::Timeout)) {
                Ok(shown) => {
                    answers += 1;
                    seen.iter_mut()
                        .zip(shown)
                        .for_each(|(it, is_shown)| *it |= is_shown);
                }
                Err(error) => failed = error,
            }
            // The client will find this server too.
            if seen.iter().all(|it| *it) {
                return Ok(seen);
            }
        }
        match answers * 2 > count {
            true => Ok(seen),
            false => Err(refusal(failed)),
        }
    }

    /// Which nodes a server shows to a session of its own.
    async fn shown(
        &self,
        server: &Server,
        tls: bool,
        answer_max: Duration,
        paths: &[String],
    ) -> Result<Vec<bool>, Error> {
        let scheme = if tls { "tcp+tls" } else { "tcp" };
        let address = format!("{scheme}://{server}{}", self.connect_string.chroot());
        // What is opened after we have stopped waiting goes soon.
        let connector = self.connector().with_session_timeout(answer_max);
        let connector = connector.with_fail_eagerly();
        let client = self.connect(connector, &address).await?;
        let committed = commit(&client);
        let stats: Vec<_> = paths.iter().map(|path| client.check_stat(path)).collect();
        committed.await?;
        let mut shown = Vec::with_capacity(paths.len());
        for stat in stats {
            shown.push(match stat.await {
                Ok(stat) => stat.is_some(),
                // Some servers say this of a node that exists and may not be read.
                Err(Error::NoAuth) => true,
                Err(error) => return Err(error),
            });
        }
        Ok(shown)
    }
}

/// Has a quorum commit a transaction that changes nothing. A refusal is committed as well.
fn commit(client: &Client) -> impl Future<Output = Result<(), Error>> {
    let mut writer = client.new_multi_writer();
    let added = writer.add_check_version("/", -1);
    let committed = writer.commit();
    async move {
        added?;
        match committed.await {
            Ok(_) => Ok(()),
            Err(MultiWriteError::OperationFailed {
                source: Error::NoNode | Error::NoAuth,
                ..
            }) => Ok(()),
            Err(
                MultiWriteError::OperationFailed { source, .. }
                | MultiWriteError::RequestFailed { source },
            ) => Err(source),
        }
    }
}
