//! Opens the session that the command line describes.

use std::sync::Arc;

use recipes_core::{ConfigError, ConnectError, Error, Nodes, Session, SessionOptions, Store};
use recipes_etcd::{Etcd, EtcdBuilder};
use recipes_redis::{Redis, RedisBuilder};
use recipes_sql::{MySqlBuilder, PostgresBuilder};
use recipes_zookeeper::{Acl, Acls, ZooKeeperBuilder};
use tokio::time::timeout;

use crate::args::{self, StoreArguments};
use crate::exit::{Failure, code};

/// What a session writes into the nodes that it creates.
pub(crate) struct NodeOptions {
    pub(crate) application: String,
    pub(crate) within: Option<String>,
    /// Of ZooKeeper alone; empty for the default.
    pub(crate) acl: Vec<Acl>,
}

/// What a session is for.
#[derive(Clone, Copy)]
pub(crate) enum Purpose<'a> {
    /// It changes nothing, and needs no right to.
    Reads,
    /// It changes or deletes nodes of others.
    Changes,
    /// It creates such nodes.
    Creates(&'a NodeOptions),
}

/// A store with its options.
enum Place {
    ZooKeeper(Box<ZooKeeperBuilder>),
    Etcd(Box<EtcdBuilder>),
    Redis(Box<RedisBuilder>),
    Postgres(Box<PostgresBuilder>),
    MySql(Box<MySqlBuilder>),
}

impl Place {
    fn of(arguments: &StoreArguments, purpose: Purpose<'_>) -> Result<Self, Failure> {
        let mut options = SessionOptions::new()
            .session_timeout(arguments.session_timeout)
            .connect_timeout(arguments.connect_timeout)
            .read_only(matches!(purpose, Purpose::Reads));
        let (mut acl, mut creates) = (&[][..], false);
        if let Purpose::Creates(nodes) = purpose {
            (acl, creates) = (&nodes.acl, true);
            options = options.application(&nodes.application);
            if let Some(owner) = &nodes.within {
                options = options.within(owner);
            }
        }
        // Who creates no nodes leaves nothing in a database.
        let other = match scheme(servers(arguments)?) {
            Some(scheme) if Etcd::SCHEMES.contains(&scheme) => Self::Etcd(Box::new(options.into())),
            Some(scheme) if Redis::SCHEMES.contains(&scheme) => {
                Self::Redis(Box::new(options.into()))
            }
            Some("postgres" | "postgresql") => {
                let builder = PostgresBuilder::from(options);
                Self::Postgres(Box::new(builder.create_schema(creates)))
            }
            Some("mysql" | "mariadb") => {
                let builder = MySqlBuilder::from(options);
                Self::MySql(Box::new(builder.create_schema(creates)))
            }
            _ => return Self::on_zookeeper(arguments, acl, options),
        };
        let used = [
            (!acl.is_empty(), "--acl"),
            (arguments.auth.is_some(), "--auth"),
            (
                arguments.encrypts(),
                "--tls, --tls-ca, --tls-cert, --tls-key",
            ),
        ];
        match used.iter().find(|(is_used, _)| *is_used) {
            Some((_, option)) => {
                let message = format!(
                    "{option}: for ZooKeeper only; a URL of another store has its user, password and \
                     encryption"
                );
                Err(Failure::new(code::USAGE, message))
            }
            None => Ok(other),
        }
    }

    fn on_zookeeper(
        arguments: &StoreArguments,
        acl: &[Acl],
        options: SessionOptions,
    ) -> Result<Self, Failure> {
        let mut builder = ZooKeeperBuilder::from(options);
        if !acl.is_empty() {
            builder = builder.acl(Acls::new(acl));
        }
        if let Some(auth) = &arguments.auth {
            let refused =
                |what| Failure::new(code::USAGE, format!("--auth or LOCKCTL_AUTH: {what}"));
            let auth = args::auth(auth).map_err(refused)?;
            builder = builder.auth(&auth.scheme, auth.credentials.as_bytes());
        }
        Ok(Self::ZooKeeper(Box::new(secured(builder, arguments)?)))
    }

    async fn connect(self, servers: &str) -> Result<Session, Error> {
        match self {
            Self::ZooKeeper(builder) => builder.connect(servers).await,
            Self::Etcd(builder) => builder.connect(servers).await,
            Self::Redis(builder) => builder.connect(servers).await,
            Self::Postgres(builder) => builder.connect(servers).await,
            Self::MySql(builder) => builder.connect(servers).await,
        }
    }

    fn store(&self, servers: &str) -> Result<Arc<dyn Store>, ConfigError> {
        match self {
            Self::ZooKeeper(builder) => builder.store(servers),
            Self::Etcd(builder) => builder.store(servers),
            Self::Redis(builder) => builder.store(servers),
            Self::Postgres(builder) => builder.store(servers),
            Self::MySql(builder) => builder.store(servers),
        }
    }
}

/// The scheme of a URL; ZooKeeper's servers have none.
fn scheme(servers: &str) -> Option<&str> {
    Some(servers.split_once("://")?.0)
}

/// Opens a session.
pub(crate) async fn connect(
    arguments: &StoreArguments,
    purpose: Purpose<'_>,
) -> Result<Session, Failure> {
    let place = Place::of(arguments, purpose)?;
    let session = place.connect(servers(arguments)?).await;
    session.map_err(|error| hinted(error, arguments))
}

/// The operations of a session of its own, for requests that no lock makes.
pub(crate) async fn nodes(arguments: &StoreArguments) -> Result<Arc<dyn Nodes>, Failure> {
    let store = store(arguments)?;
    let waited = arguments.connect_timeout;
    if let Ok(nodes) = timeout(waited, store.connect()).await {
        return nodes.map_err(|error| Failure::refused("no session", &error));
    }
    let error = ConnectError::TimedOut {
        address: arguments.address(),
        waited,
        source: store.diagnose().await,
    };
    Err(hinted(error.into(), arguments))
}

/// The store that sessions are opened on.
pub(crate) fn store(arguments: &StoreArguments) -> Result<Arc<dyn Store>, Failure> {
    Ok(Place::of(arguments, Purpose::Changes)?.store(servers(arguments)?)?)
}

/// What creates the tables of a database, as its own client runs it.
pub(crate) fn schema(arguments: &StoreArguments) -> Result<String, Failure> {
    let servers = servers(arguments)?;
    match Place::of(arguments, Purpose::Reads)? {
        Place::Postgres(builder) => Ok(builder.statements(servers)?),
        Place::MySql(builder) => Ok(builder.statements(servers)?),
        Place::ZooKeeper(_) | Place::Etcd(_) | Place::Redis(_) => {
            let message =
                "only a database has a schema: give --connect postgres://... or mysql://...";
            Err(Failure::new(code::USAGE, message))
        }
    }
}

fn servers(arguments: &StoreArguments) -> Result<&str, Failure> {
    let message = "no servers: give --connect host:port, etcd://host, redis://host, postgres://host/database or \
                   mysql://host/database, or set LOCKCTL_CONNECT";
    let servers = arguments.connect.as_deref();
    servers.ok_or_else(|| Failure::new(code::USAGE, message))
}

#[cfg(not(feature = "tls"))]
pub(crate) fn hinted(error: Error, _: &StoreArguments) -> Failure {
    error.into()
}

/// Adds a hint about TLS: a failed handshake looks like a server that does not answer.
#[cfg(feature = "tls")]
pub(crate) fn hinted(error: Error, arguments: &StoreArguments) -> Failure {
    let is_silence = matches!(error, Error::Connect(ConnectError::TimedOut { .. }));
    let failure = Failure::from(error);
    match is_silence && arguments.tls.is_asked_for() {
        true => failure.with(
            "; over TLS: is that their secure port, are their certificates for these names and of \
             the authorities in --tls-ca, do they ask for --tls-cert?",
        ),
        false => failure,
    }
}

#[cfg(not(feature = "tls"))]
#[expect(clippy::unnecessary_wraps, reason = "certificates may be unreadable")]
fn secured(builder: ZooKeeperBuilder, _: &StoreArguments) -> Result<ZooKeeperBuilder, Failure> {
    Ok(builder)
}

#[cfg(feature = "tls")]
fn secured(
    builder: ZooKeeperBuilder,
    arguments: &StoreArguments,
) -> Result<ZooKeeperBuilder, Failure> {
    use recipes_zookeeper::TlsOptions;

    let tls = &arguments.tls;
    if !tls.is_asked_for() {
        return Ok(builder);
    }
    let read = |path: &std::path::Path| {
        let unreadable =
            |error| Failure::new(code::USAGE, format!("cannot read {path:?}: {error}"));
        std::fs::read_to_string(path).map_err(unreadable)
    };
    let mut options = TlsOptions::new();
    if let Some(authorities) = &tls.tls_ca {
        let refused = |error| unusable(&format!("authorities of {authorities:?}"), &error);
        options = options.with_pem_ca(&read(authorities)?).map_err(refused)?;
    }
    // clap could require both, but would not accept one before and one after the command.
    match (&tls.tls_cert, &tls.tls_key) {
        (None, None) => {}
        (Some(certificate), Some(key)) => {
            let pair = format!("identity of {certificate:?} and {key:?}");
            let refused = |error| unusable(&pair, &error);
            options = options
                .with_pem_identity(&read(certificate)?, &read(key)?)
                .map_err(refused)?;
        }
        _ => {
            let message = "--tls-cert and --tls-key are of use together only";
            return Err(Failure::new(code::USAGE, message));
        }
    }
    match tls.tls_ca {
        Some(_) => Ok(builder.tls(options)),
        None => Err(Failure::new(
            code::USAGE,
            "whom to trust? TLS takes --tls-ca",
        )),
    }
}

#[cfg(feature = "tls")]
fn unusable(what: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(code::USAGE, format!("cannot use the {what}: {error}"))
}
