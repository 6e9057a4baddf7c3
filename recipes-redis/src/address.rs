//! The servers that a URL names.

use recipes_core::ConfigError;
use recipes_core::internal::{check_secrets, parameters, without_secrets};
use redis::{
    ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo,
};

use crate::server::Redis;
use crate::servers::{Servers, without_delay};

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
        let invalid = |reason: String| ConfigError::invalid_address(url, reason);
        let (given, _) = url.split_once('?').unwrap_or((url, ""));
        let Some((scheme, rest)) = given.split_once("://") else {
            return Err(invalid("it begins with redis://".to_owned()));
        };
        let is_socket = scheme == "redis+unix";
        let (mut prefix, mut sentinel) = (None, credentials.sentinel.clone());
        let mut database = String::new();
        for (name, value) in parameters(url)? {
            match name.as_str() {
                "prefix" => prefix = Some(value),
                "db" if is_socket => database = value,
                "sentinel-username" => sentinel.username = sentinel.username.or(Some(value)),
                "sentinel-password" => sentinel.password = sentinel.password.or(Some(value)),
                _ => {
                    let also = if is_socket { "db, " } else { "" };
                    let known = "prefix, sentinel-username and sentinel-password";
                    return Err(invalid(format!(
                        "unknown parameter; there are {also}{known}"
                    )));
                }
            }
        }
        let servers = match scheme {
            "redis" | "rediss" => read(given).map(|it| Servers::One(Box::new(it))),
            "redis+unix" => socket(rest, &database),
            "redis+sentinel" => sentinels(rest, &sentinel),
            "redis+cluster" => cluster("redis", rest),
            "rediss+cluster" => cluster("rediss", rest),
            _ => {
                let known = Redis::SCHEMES.join("://, ");
                Err(format!("it begins with one of {known}://, not {scheme}://"))
            }
        };
        let servers = servers.and_then(|it| settled(it, credentials));
        Ok(Self {
            servers: servers.map_err(invalid)?,
            prefix,
            shown: without_secrets(url),
        })
    }
}

/// With what a service sets.
fn settled(mut servers: Servers, credentials: &Credentials) -> Result<Servers, String> {
    let settle = |server: &mut ConnectionInfo| {
        let settings = with(server.redis_settings().clone(), credentials);
        let settled = server.clone().set_redis_settings(settings);
        *server = settled.set_tcp_settings(without_delay());
        match server.addr().is_supported() {
            true => Ok(()),
            false => Err("TLS needs the feature `tls`".to_owned()),
        }
    };
    match &mut servers {
        Servers::One(server) => settle(server)?,
        Servers::Sentinel { settings, .. } => {
            **settings = with((**settings).clone(), credentials);
        }
        Servers::Cluster(nodes) => {
            for node in nodes {
                settle(node)?;
                if node.redis_settings().db() != 0 {
                    return Err("a cluster has no database but 0".to_owned());
                }
            }
        }
    }
    Ok(servers)
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

/// The user and the password, with what separates them from the rest.
fn secrets(rest: &str) -> (&str, &str) {
    let at = rest.rfind('@').map_or(0, |at| at + 1);
    rest.split_at(at)
}

/// `[user:password@]host:port,host:port/service[/database]`
fn sentinels(rest: &str, login: &Login) -> Result<Servers, String> {
    let (secrets, rest) = secrets(rest);
    let mut parts = rest.split('/');
    let names = parts.next().unwrap_or_default();
    let service = parts.next().unwrap_or_default();
    if service.is_empty() {
        return Err("the name of the primary is missing: redis+sentinel://host:26379/name".into());
    }
    let database = parts.next().unwrap_or_default();
    let settings = read(&format!("redis://{secrets}sentinel/{database}"))?;
    let mut sentinels = hosts("redis://", names, 26379, "")?;
    for sentinel in &mut sentinels {
        let settings = login.with(sentinel.redis_settings().clone());
        *sentinel = sentinel.clone().set_redis_settings(settings);
    }
    Ok(Servers::Sentinel {
        sentinels,
        service: service.to_owned(),
        settings: Box::new(settings.redis_settings().clone()),
    })
}

/// `[user:password@]host:port,host:port[/database]`
fn cluster(scheme: &str, rest: &str) -> Result<Servers, String> {
    let (secrets, rest) = secrets(rest);
    let (names, database) = rest.split_once('/').unwrap_or((rest, ""));
    let scheme = format!("{scheme}://{secrets}");
    hosts(&scheme, names, 6379, database).map(Servers::Cluster)
}

/// `host:port,host:port`
fn hosts(
    before: &str,
    names: &str,
    port: u16,
    database: &str,
) -> Result<Vec<ConnectionInfo>, String> {
    let host = |name: &str| {
        // An IPv6 address stands in brackets.
        let has_port = name.rsplit(']').next().is_some_and(|it| it.contains(':'));
        let port = match has_port {
            true => String::new(),
            false => format!(":{port}"),
        };
        read(&format!("{before}{name}{port}/{database}"))
    };
    names.split(',').map(host).collect()
}

/// `[user:password@]/path`
fn socket(rest: &str, database: &str) -> Result<Servers, String> {
    let (secrets, path) = secrets(rest);
    if !path.starts_with('/') {
        return Err("the path of the socket is missing: redis+unix:///run/redis.sock".into());
    }
    let ConnectionAddr::Unix(path) = read(&format!("redis+unix://{path}"))?.addr().clone() else {
        return Err("it is no path of a socket".to_owned());
    };
    let server = read(&format!("redis://{secrets}socket/{database}"))?;
    let server = server.set_addr(ConnectionAddr::Unix(path));
    Ok(Servers::One(Box::new(server)))
}

fn read(url: &str) -> Result<ConnectionInfo, String> {
    let said = |error: redis::RedisError| {
        let detail = error.detail().map(ToOwned::to_owned);
        detail.unwrap_or_else(|| error.to_string())
    };
    url.into_connection_info().map_err(said)
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
    fn url_names_servers_of_a_cluster() {
        let url = "redis+cluster://bob:secret@a,b:7000,[::1]/?prefix=orders";
        let address = parse(url).unwrap();
        assert_eq!(
            address.shown,
            "redis+cluster://bob:***@a,b:7000,[::1]/?prefix=orders"
        );
        let Servers::Cluster(nodes) = address.servers else {
            panic!("a cluster")
        };
        let addresses: Vec<_> = nodes.iter().map(|it| it.addr().to_string()).collect();
        assert_eq!(addresses, ["a:6379", "b:7000", "::1:6379"]);
        for node in nodes {
            let settings = node.redis_settings();
            let login = (settings.username(), settings.password());
            assert_eq!(login, (Some("bob"), Some("secret")));
            assert_eq!(settings.protocol(), ProtocolVersion::RESP3);
        }
    }

    #[test]
    fn url_names_a_socket() {
        let url = "redis+unix://bob:s%26t@/run/a%20b/redis.sock?db=3&prefix=orders";
        let address = parse(url).unwrap();
        let shown = "redis+unix://bob:***@/run/a%20b/redis.sock?db=3&prefix=orders";
        assert_eq!(address.shown, shown);
        assert_eq!(address.prefix.as_deref(), Some("orders"));
        let Servers::One(server) = address.servers else {
            panic!("one server")
        };
        let path = ConnectionAddr::Unix("/run/a b/redis.sock".into());
        assert_eq!(*server.addr(), path);
        let settings = server.redis_settings();
        let login = (settings.username(), settings.password());
        assert_eq!((login, settings.db()), ((Some("bob"), Some("s&t")), 3));
    }

    #[test]
    fn cluster_has_one_database() {
        let one = Credentials {
            database: Some(1),
            ..Credentials::default()
        };
        for (url, credentials) in [
            ("redis+cluster://a/1", &Credentials::default()),
            ("redis+cluster://a", &one),
        ] {
            let refused = Address::parse(url, credentials).unwrap_err().to_string();
            assert!(
                refused.ends_with("a cluster has no database but 0"),
                "{refused}"
            );
        }
        parse("redis+cluster://a/0").unwrap();
    }

    #[test]
    fn what_is_no_address_is_refused_without_its_password() {
        for (url, reason) in [
            ("cache:6379", "begins with redis://"),
            ("memcached://a", "not memcached://"),
            ("redis://a/0?prefx=b", "unknown parameter"),
            ("redis+sentinel://a:1", "name of the primary"),
            ("redis+cluster://u:secret@", ""),
            ("redis+cluster://a?db=1", "unknown parameter"),
            ("redis+unix://redis.sock", "path of the socket"),
            ("redis+unix://u:secret@/a?db=none", "database"),
            ("redis+unix:///a?password=secret", "there are db, prefix"),
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
