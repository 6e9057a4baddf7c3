//! The session timeout that servers grant.
//!
//! A server grants a timeout at each connection, within limits of its own. The client tells that of the
//! first connection only. So what a server of the ensemble grants after a reconnect is learned by a
//! session of its own on each.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use recipes_core::NodesError;
use tokio::time::timeout;
use zookeeper_client::Error;

use crate::answers::refusal_of_session;
use crate::connect_string::Server;
use crate::link::{ANSWER_PART, Link};

impl Link {
    /// The shortest session timeout that one of the servers grants to a client that asks for this one.
    /// Which of them the session is connected to is not known; it is one of those that answer.
    pub(crate) async fn granted(&self, asked: Duration) -> Result<Duration, NodesError> {
        let answer_max = asked / ANSWER_PART;
        let servers = self.servers();
        let mut granted: FuturesUnordered<_> = servers
            .iter()
            .map(|(server, tls)| timeout(answer_max, self.granted_by(server, *tls, asked)))
            .collect();
        let (mut shortest, mut failed) = (None, Error::Timeout);
        while let Some(granted) = granted.next().await {
            match granted.unwrap_or(Err(Error::Timeout)) {
                Ok(granted) => {
                    shortest = Some(shortest.map_or(granted, |it: Duration| it.min(granted)))
                }
                Err(error) => failed = error,
            }
        }
        shortest.ok_or_else(|| refusal_of_session(failed))
    }

    async fn granted_by(
        &self,
        server: &Server,
        tls: bool,
        asked: Duration,
    ) -> Result<Duration, Error> {
        let connector = self.connector().with_session_timeout(asked);
        // Dropping the client closes its session.
        let client = self.open_on(server, tls, connector).await?;
        Ok(client.session_timeout())
    }
}
