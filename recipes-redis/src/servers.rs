//! Which server is the primary now.

use std::fmt;
use std::sync::Arc;

use recipes_core::NodesError;
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType};
use redis::{
    Client, ConnectionAddr, ConnectionInfo, ErrorKind, RedisConnectionInfo, RedisError,
    RedisResult, ServerErrorKind, cmd,
};
use uuid::Uuid;

use crate::answers::refusal;
use crate::checks::RedisRefusal;

/// Where the server is.
#[derive(Clone)]
pub(crate) enum Servers {
    One(Box<ConnectionInfo>),
    Sentinel {
        sentinels: Vec<ConnectionInfo>,
        service: String,
        settings: Box<RedisConnectionInfo>,
    },
    /// Some of a cluster. Each knows which one has a key.
    Cluster(Vec<ConnectionInfo>),
}

/// Shows no secrets.
impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(server) => f.debug_tuple("One").field(server.addr()).finish(),
            Self::Sentinel { service, .. } => f.debug_tuple("Sentinel").field(service).finish(),
            Self::Cluster(nodes) => {
                let nodes = nodes.iter().map(|node| node.addr().to_string());
                f.debug_list().entries(nodes).finish()
            }
        }
    }
}

impl Servers {
    /// Whether the primary may be another server the next time.
    pub(crate) fn may_move(&self) -> bool {
        !matches!(self, Self::One(_))
    }

    /// Host and port of the one server, if it does not encrypt.
    pub(crate) fn plain(&self) -> Option<(&str, u16)> {
        match self {
            Self::One(server) => match server.addr() {
                ConnectionAddr::Tcp(host, port) => Some((host, *port)),
                _ => None,
            },
            _ => None,
        }
    }

    /// Whether the servers are spoken to over TLS.
    pub(crate) fn encrypts(&self) -> bool {
        let encrypts = |it: &ConnectionInfo| matches!(it.addr(), ConnectionAddr::TcpTls { .. });
        match self {
            Self::One(server) => encrypts(server),
            Self::Sentinel { .. } => false,
            Self::Cluster(nodes) => nodes.iter().any(encrypts),
        }
    }

    /// A client of the server that is the primary now, and has this key.
    pub(crate) async fn client(&self, key: &str) -> Result<Client, NodesError> {
        match self {
            Self::One(server) => Client::open((**server).clone()).map_err(refusal),
            Self::Sentinel {
                sentinels,
                service,
                settings,
            } => {
                let node = SentinelNodeConnectionInfo::default()
                    .set_redis_connection_info((**settings).clone())
                    .set_tcp_settings(without_delay());
                let (service, kind) = (service.clone(), SentinelServerType::Master);
                let sentinels = another_first(sentinels);
                let named = async {
                    let client = SentinelClient::build(sentinels, service, Some(node), kind);
                    client?.async_get_client().await
                };
                named.await.map_err(|error| match refusal(error) {
                    NodesError::Refused(why) => {
                        let said = why.to_string();
                        NodesError::Refused(Arc::new(RedisRefusal::Sentinel { said }))
                    }
                    other => other,
                })
            }
            Self::Cluster(nodes) => {
                let mut said: Option<RedisError> = None;
                for node in another_first(nodes) {
                    match owner(&node, key).await {
                        Ok(client) => return Ok(client),
                        // One that answers explains more than one that is down.
                        Err(error) if error.is_io_error() && said.is_some() => {}
                        Err(error) => said = Some(error),
                    }
                }
                let none = || (ErrorKind::InvalidClientConfig, "no node is named").into();
                Err(refusal(said.unwrap_or_else(none)))
            }
        }
    }
}

/// Each try asks another one first: the first may never answer.
fn another_first(all: &[ConnectionInfo]) -> Vec<ConnectionInfo> {
    let mut all = all.to_vec();
    let first = Uuid::new_v4().as_u128() % all.len().max(1) as u128;
    all.rotate_left(usize::try_from(first).unwrap_or_default());
    all
}

/// A client of the server that has this key, as far as a node of the cluster knows. While the key is being moved,
/// that is the one which had it before.
async fn owner(node: &ConnectionInfo, key: &str) -> RedisResult<Client> {
    let client = Client::open(node.clone())?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let asked: RedisResult<i64> = cmd("EXISTS").arg(key).query_async(&mut connection).await;
    let Err(error) = asked else {
        return Ok(client);
    };
    match (error.kind(), error.redirect_node()) {
        (ErrorKind::Server(ServerErrorKind::Moved), Some((there, _))) => {
            let there = at(node, there).ok_or(error)?;
            Client::open(there)
        }
        (ErrorKind::Server(ServerErrorKind::Ask), _) => Ok(client),
        _ => Err(error),
    }
}

/// As this node, at another `host:port`. A node that does not know its own host leaves it out.
fn at(node: &ConnectionInfo, there: &str) -> Option<ConnectionInfo> {
    let (host, number) = there.rsplit_once(':')?;
    let number = number.parse().ok()?;
    let mut addr = node.addr().clone();
    match &mut addr {
        ConnectionAddr::Tcp(name, port)
        | ConnectionAddr::TcpTls {
            host: name, port, ..
        } => {
            if !host.is_empty() {
                host.clone_into(name);
            }
            *port = number;
        }
        _ => return None,
    }
    Some(node.clone().set_addr(addr))
}

/// Requests that are sent one after the other do not wait for each other's answers.
pub(crate) fn without_delay() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo;

    use super::*;

    #[test]
    fn server_that_is_named_is_reached_as_the_one_that_names_it() {
        let node = "redis://bob:secret@a:7000".into_connection_info().unwrap();
        let named = |there| at(&node, there).map(|it| it.addr().to_string());
        assert_eq!(named("10.0.0.7:7001").as_deref(), Some("10.0.0.7:7001"));
        assert_eq!(named("::1:7001").as_deref(), Some("::1:7001"));
        // It does not know its own host.
        assert_eq!(named(":7001").as_deref(), Some("a:7001"));
        assert_eq!(named("b"), None);
        let there = at(&node, "b:1").unwrap();
        assert_eq!(there.redis_settings().password(), Some("secret"));
    }
}
