//! The servers that a URL names.

use std::fmt;
use std::sync::Arc;

use recipes_core::internal::{check_secrets, parameters, without_secrets};
use recipes_core::{ConfigError, NodesError};
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType};
use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion,
    RedisConnectionInfo,
};
use uuid::Uuid;

use crate::answers::refusal;
use crate::checks::RedisRefusal;

/// The scheme of Sentinel's addresses.
const SENTINEL: &str = "redis+sentinel://";

/// Where the server is.
#[derive(Clone)]
pub(crate) enum Servers {
    One(Box<ConnectionInfo>),
    Sentinel {
        sentinels: Vec<ConnectionInfo>,
        service: String,
        settings: Box<RedisConnectionInfo>,
    },
}

/// Shows no secrets.
impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(server) => f.debug_tuple("One").field(server.addr()).finish(),
            Self::Sentinel { service, .. } => f.debug_tuple("Sentinel").field(service).finish(),
        }
    }
}

/// A URL, taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) servers: Servers,
    /// `?prefix=`
    pub(crate) prefix: Option<String>,
    /// The URL without its password.
    pub(crate) shown: String,
}

/// What a service sets beside the URL.
#[derive(Clone, Default)]
pub(crate) struct Credentials {
    pub(crate) login: Login,
    pub(crate) database: Option<i64>,
    /// At the Sentinels, which know other users than the servers.
    pub(crate) sentinel: Login,
}

/// A user and a password.
#[derive(Clone, Default)]
pub(crate) struct Login {
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
}

impl Login {
    fn with(&self, mut settings: RedisConnectionInfo) -> RedisConnectionInfo {
        if let Some(username) = &self.username {
            settings = settings.set_username(username);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        settings
    }
}

impl Address {
    pub(crate) fn parse(url: &str, credentials: &Credentials) -> Result<Self, ConfigError> {
        check_secrets(url)?;
        let given = url;
        let invalid = |reason: String| ConfigError::invalid_address(given, reason);
        let (mut prefix, mut sentinel) = (None, credentials.sentinel.clone());
        for (name, value) in parameters(url)? {
            match name.as_str() {
                "prefix" => prefix = Some(value),
                "sentinel-username" => sentinel.username = sentinel.username.or(Some(value)),
                "sentinel-password" => sentinel.password = sentinel.password.or(Some(value)),
                _ => {
                    let known = "prefix, sentinel-username and sentinel-password";
                    return Err(invalid(format!("unknown parameter; there are {known}")));
                }
            }
        }
        let url = url.split('?').next().unwrap_or_default();
        let mut servers = match url.strip_prefix(SENTINEL) {
            Some(rest) => sentinels(rest, &sentinel).map_err(invalid)?,
            None => {
                let scheme = url.split_once("://").map(|(scheme, _)| scheme);
                match scheme {
                    Some("redis" | "rediss") => {}
                    Some(scheme) => {
                        let known = "it begins with redis://, rediss:// or redis+sentinel://";
                        return Err(invalid(format!("{known}, not {scheme}://")));
                    }
                    None => return Err(invalid("it begins with redis://".to_owned())),
                }
                let info = url.into_connection_info();
                Servers::One(Box::new(info.map_err(|error| invalid(said(&error)))?))
            }
        };
        match &mut servers {
            Servers::One(server) => {
                let settings = with(server.redis_settings().clone(), credentials);
                let server = &mut **server;
                *server = server
                    .clone()
                    .set_tcp_settings(without_delay())
                    .set_redis_settings(settings);
                if !server.addr().is_supported() {
                    let reason = "TLS needs the feature `tls`";
                    return Err(invalid(reason.to_owned()));
                }
            }
            Servers::Sentinel { settings, .. } => {
                **settings = with((**settings).clone(), credentials);
            }
        }
        Ok(Self {
            servers,
            prefix,
            shown: without_secrets(given),
        })
    }
}

impl Servers {
    /// Whether the primary may be another server the next time.
    pub(crate) fn may_move(&self) -> bool {
        matches!(self, Self::Sentinel { .. })
    }

    /// Host and port of the one server, if it does not encrypt.
    pub(crate) fn plain(&self) -> Option<(&str, u16)> {
        match self {
            Self::One(server) => match server.addr() {
                ConnectionAddr::Tcp(host, port) => Some((host, *port)),
                _ => None,
            },
            Self::Sentinel { .. } => None,
        }
    }

    /// Whether the one server is spoken to over TLS.
    pub(crate) fn encrypts(&self) -> bool {
        match self {
            Self::One(server) => matches!(server.addr(), ConnectionAddr::TcpTls { .. }),
            Self::Sentinel { .. } => false,
        }
    }

    /// A client of the server that is the primary now.
    pub(crate) async fn client(&self) -> Result<Client, NodesError> {
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
                let mut sentinels = sentinels.clone();
                // Each try asks another one first: the first may never answer.
                let first = Uuid::new_v4().as_u128() % sentinels.len().max(1) as u128;
                sentinels.rotate_left(usize::try_from(first).unwrap_or_default());
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
        }
    }
}

/// Requests that are sent one after the other do not wait for each other's answers.
fn without_delay() -> TcpSettings {
    TcpSettings::default().set_nodelay(true)
}

/// News come over the connection itself, which only RESP3 allows.
fn with(mut settings: RedisConnectionInfo, credentials: &Credentials) -> RedisConnectionInfo {
    settings = settings.set_protocol(ProtocolVersion::RESP3);
    settings = credentials.login.with(settings);
    match credentials.database {
        Some(database) => settings.set_db(database),
        None => settings,
    }
}

/// `[user:password@]host:port,host:port/service[/database]`
fn sentinels(rest: &str, login: &Login) -> Result<Servers, String> {
    let (secrets, rest) = match rest.rsplit_once('@') {
        Some((secrets, rest)) => (format!("{secrets}@"), rest),
        None => (String::new(), rest),
    };
    let mut parts = rest.split('/');
    let hosts = parts.next().unwrap_or_default();
    let service = parts.next().unwrap_or_default();
    if service.is_empty() {
        return Err("the name of the primary is missing: redis+sentinel://host:26379/name".into());
    }
    let database = parts.next().unwrap_or_default();
    let read = |url: String| url.into_connection_info().map_err(|error| said(&error));
    let settings = read(format!("redis://{secrets}sentinel/{database}"))?;
    let mut sentinels = Vec::new();
    for host in hosts.split(',') {
        // An IPv6 address stands in brackets.
        let has_port = host.rsplit(']').next().is_some_and(|it| it.contains(':'));
        let port = if has_port { "" } else { ":26379" };
        let sentinel = read(format!("redis://{host}{port}"))?;
        let settings = login.with(sentinel.redis_settings().clone());
        sentinels.push(sentinel.set_redis_settings(settings));
    }
    Ok(Servers::Sentinel {
        sentinels,
        service: service.to_owned(),
        settings: Box::new(settings.redis_settings().clone()),
    })
}

fn said(error: &redis::RedisError) -> String {
    error.detail().map_or(error.to_string(), ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, String> {
        Address::parse(url, &Credentials::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn url_names_server_database_and_prefix() {
        let address = parse("redis://bob:secret@cache:6380/3?prefix=orders").unwrap();
        assert_eq!(address.shown, "redis://bob:***@cache:6380/3?prefix=orders");
        assert_eq!(address.prefix.as_deref(), Some("orders"));
        let Servers::One(server) = address.servers else {
            panic!("one server")
        };
        assert_eq!(server.addr().to_string(), "cache:6380");
        let settings = server.redis_settings();
        assert_eq!((settings.db(), settings.username()), (3, Some("bob")));
        assert_eq!(settings.protocol(), ProtocolVersion::RESP3);
    }

    #[test]
    fn url_names_sentinels_and_the_primary() {
        let address = parse("redis+sentinel://:secret@a,b:7000,[::1],[::1]:8/orders/2").unwrap();
        let Servers::Sentinel {
            sentinels,
            service,
            settings,
        } = address.servers
        else {
            panic!("sentinels")
        };
        let sentinels: Vec<_> = sentinels.iter().map(|it| it.addr().to_string()).collect();
        let expected = ["a:26379", "b:7000", "::1:26379", "::1:8"];
        assert_eq!(sentinels, expected);
        assert_eq!((service.as_str(), settings.db()), ("orders", 2));
        assert_eq!(settings.password(), Some("secret"));
        let own = "redis+sentinel://:secret@a/orders?sentinel-password=p%26w&sentinel-username=s";
        let Servers::Sentinel { sentinels, .. } = parse(own).unwrap().servers else {
            panic!("sentinels")
        };
        let settings = sentinels[0].redis_settings();
        let login = (settings.username(), settings.password());
        assert_eq!(login, (Some("s"), Some("p&w")));
    }

    #[test]
    fn what_is_no_address_is_refused_without_its_password() {
        for (url, reason) in [
            ("cache:6379", "begins with redis://"),
            ("memcached://a", "not memcached://"),
            ("redis://a/0?prefx=b", "unknown parameter"),
            ("redis+sentinel://a:1", "name of the primary"),
            ("redis://u:secret@a/none", ""),
            ("u:secret@a:6379", "begins with redis://"),
            ("redis://a?password=secret", "unknown parameter"),
            ("redis://u:secret?x@a", "%3F"),
            ("redis://u:x@secret@a", "%40"),
        ] {
            let error = parse(url).unwrap_err();
            assert!(error.contains(reason), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
