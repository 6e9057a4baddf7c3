//! Picks the store by the scheme of an address.

use recipes_core::{ConfigError, Error, Session, SessionOptions};
#[cfg(feature = "etcd")]
use recipes_etcd::{Etcd, EtcdBuilder};
#[cfg(feature = "redis")]
use recipes_redis::{Redis, RedisBuilder};
#[cfg(feature = "mysql")]
use recipes_sql::MySqlBuilder;
#[cfg(feature = "postgres")]
use recipes_sql::PostgresBuilder;
#[cfg(feature = "zookeeper")]
use recipes_zookeeper::ZooKeeperBuilder;

/// The schemes of the stores in this build.
const KNOWN: &[&str] = &[
    #[cfg(feature = "zookeeper")]
    "zk",
    #[cfg(feature = "etcd")]
    "etcd",
    #[cfg(feature = "etcd")]
    "etcds",
    #[cfg(feature = "redis")]
    "redis",
    #[cfg(feature = "redis")]
    "rediss",
    #[cfg(feature = "redis")]
    "redis+sentinel",
    #[cfg(feature = "redis")]
    "redis+cluster",
    #[cfg(feature = "redis")]
    "rediss+cluster",
    #[cfg(feature = "redis")]
    "redis+unix",
    #[cfg(feature = "postgres")]
    "postgres",
    #[cfg(feature = "mysql")]
    "mysql",
];

/// Opens a session with default options on the store that the scheme of an address names.
///
/// | address | store |
/// |---|---|
/// | `zk://host:port,host:port/chroot`, or without `zk://` | ZooKeeper (feature `zookeeper`) |
/// | `etcd://host:port,host:port/prefix`, `etcds://` over TLS | etcd (feature `etcd`) |
/// | `redis://host:port/database`, `rediss://` over TLS | Redis (feature `redis`) |
/// | `redis+sentinel://host:port,host:port/name/database` | Redis, the primary that Sentinel names |
/// | `redis+cluster://host:port,host:port`, `rediss+cluster://` over TLS | Redis Cluster, the primary that has the keys |
/// | `redis+unix:///path?db=database` | Redis, at a Unix socket |
/// | `postgres://user:password@host:port/database`, or `postgresql://` | PostgreSQL (feature `postgres`); `postgres:///database?host=/run/postgresql` at a Unix socket |
/// | `mysql://user:password@host:port/database`, or `mariadb://` | MySQL or MariaDB (feature `mysql`) |
///
/// The builder of a store, such as `ZooKeeper::builder()`, has options.
///
/// # Errors
/// [`ConfigError::UnknownScheme`], before anything is sent, for a scheme that no store of this
/// build has. Otherwise as the store's own `connect`, such as `ZooKeeper::connect`.
///
/// # Cancel safety
/// Dropping the future closes what was opened.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let refused = lock_recipes::connect("mongodb://localhost").await.unwrap_err();
/// assert!(refused.to_string().starts_with("no store for scheme \"mongodb\": this build has zk"));
/// # }
/// ```
pub async fn connect(address: &str) -> Result<Session, Error> {
    connect_with(address, SessionOptions::new()).await
}

/// As [`connect`], with the options that are the same for every store.
///
/// That a server is new, so that nobody can hold a lock there yet, only the builder of its store can be told. In an
/// address or a configuration it would stay, and be false after the first restart.
///
/// # Errors
/// As [`connect`], and [`ConfigError`] for options that cannot be used.
///
/// # Cancel safety
/// Dropping the future closes what was opened.
///
/// # Examples
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use lock_recipes::SessionOptions;
///
/// // zk://zk1:2181,zk2:2181/app, etcd://etcd1/app, redis://cache:6379, postgres://db/shop or mysql://db/shop
/// let address = std::env::var("LOCKS_URL")?;
/// let options = SessionOptions::new().application("orders");
/// let session = lock_recipes::connect_with(&address, options).await?;
/// # Ok(())
/// # }
/// ```
pub async fn connect_with(address: &str, options: SessionOptions) -> Result<Session, Error> {
    match scheme(address).unwrap_or("zk") {
        // A server of a connect string may say how to reach it.
        #[cfg(feature = "zookeeper")]
        "zk" | "tcp" | "tcp+tls" => ZooKeeperBuilder::from(options).connect(address).await,
        #[cfg(feature = "etcd")]
        scheme if Etcd::SCHEMES.contains(&scheme) => {
            EtcdBuilder::from(options).connect(address).await
        }
        #[cfg(feature = "redis")]
        scheme if Redis::SCHEMES.contains(&scheme) => {
            RedisBuilder::from(options).connect(address).await
        }
        #[cfg(feature = "postgres")]
        "postgres" | "postgresql" => PostgresBuilder::from(options).connect(address).await,
        #[cfg(feature = "mysql")]
        "mysql" | "mariadb" => MySqlBuilder::from(options).connect(address).await,
        scheme => {
            // A build without a store has no use for them.
            drop(options);
            let (scheme, known) = (scheme.to_owned(), KNOWN);
            Err(ConfigError::UnknownScheme { scheme, known }.into())
        }
    }
}

/// The scheme of an address. A list whose first server has none has none.
fn scheme(address: &str) -> Option<&str> {
    let (scheme, _) = address.split_once("://")?;
    let is_scheme = |it: char| it.is_ascii_alphanumeric() || matches!(it, '+' | '-' | '.');
    scheme.chars().all(is_scheme).then_some(scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheme_is_that_of_the_whole_address() {
        assert_eq!(scheme("zk://zk1:2181/app"), Some("zk"));
        assert_eq!(scheme("tcp+tls://zk1:2181,zk2:2181"), Some("tcp+tls"));
        assert_eq!(scheme("zk1:2181,tcp://zk2:2181"), None);
        assert_eq!(scheme("zk1:2181"), None);
    }

    #[tokio::test]
    async fn unknown_scheme_is_refused_and_the_known_ones_are_named() {
        let refused = connect("mongodb://user:secret@localhost")
            .await
            .unwrap_err();
        let Error::Config(flaw) = &refused else {
            panic!("{refused}");
        };
        let text = flaw.to_string();
        assert!(text.contains("\"mongodb\""), "{text}");
        assert!(!text.contains("secret"), "{text}");
        for known in KNOWN {
            assert!(text.contains(known), "{text}");
        }
    }
}
