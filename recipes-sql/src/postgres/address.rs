//! The servers that a URL names.

use std::str::FromStr;

use recipes_core::ConfigError;
use recipes_core::internal::{check_secrets, parameters, without_secrets};
use tokio::net::lookup_host;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// A URL, taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// What all have in common, and their names.
    pub(crate) config: Config,
    /// `?schema=`
    pub(crate) schema: Option<String>,
    /// The URL without its password.
    pub(crate) shown: String,
}

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Self, ConfigError> {
        check_secrets(url)?;
        let invalid = |reason: String| ConfigError::invalid_address(url, reason);
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(invalid("it begins with postgres://".to_owned()));
        }
        let (mut schema, mut encrypts) = (None, false);
        let mut others = Vec::new();
        let (server, given) = url.split_once('?').unwrap_or((url, ""));
        let given = given.split('&').filter(|it| !it.is_empty());
        for (given, (name, value)) in given.zip(parameters(url)?) {
            match (name.as_str(), value.as_str()) {
                ("schema", _) => schema = Some(value),
                // A certificate that nobody checks is none.
                ("sslmode", "require" | "verify-ca" | "verify-full") => encrypts = true,
                ("sslmode", "disable" | "allow" | "prefer") => encrypts = false,
                ("sslmode", mode) => return Err(invalid(format!("no sslmode {mode:?}"))),
                // The client decodes its own.
                _ => others.push(given),
            }
        }
        if encrypts && !cfg!(feature = "tls") {
            return Err(invalid("TLS needs the feature `tls`".to_owned()));
        }
        let separator = if others.is_empty() { "" } else { "?" };
        let rest = format!("{server}{separator}{}", others.join("&"));
        let config = Config::from_str(&rest).map_err(|error| {
            let source = std::error::Error::source(&error);
            invalid(source.map_or_else(|| error.to_string(), ToString::to_string))
        });
        let mut config = config?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(invalid("it names no host".to_owned()));
        }
        // As every client of PostgreSQL: nobody listens on what stays on this machine.
        let is_remote = config.get_hosts().is_empty() || config.get_hosts().iter().any(is_tcp);
        config.ssl_mode(if encrypts && is_remote {
            SslMode::Require
        } else {
            SslMode::Disable
        });
        check_counts(&config).map_err(invalid)?;
        Ok(Self {
            config,
            schema,
            shown: without_secrets(url),
        })
    }
}

/// Of addresses and ports there is one for each host, or none, or one port for all.
fn check_counts(config: &Config) -> Result<(), String> {
    let [hosts, addresses, ports] = [
        config.get_hosts().len(),
        config.get_hostaddrs().len(),
        config.get_ports().len(),
    ];
    if hosts > 0 && addresses > 0 && hosts != addresses {
        return Err(format!("hosts: {hosts}, but addresses: {addresses}"));
    }
    let hosts = hosts.max(addresses);
    match ports > 1 && ports != hosts {
        true => Err(format!("hosts: {hosts}, but ports: {ports}")),
        false => Ok(()),
    }
}

/// The same for each host alone. The client asks one host after the other, and waits without end for one that is
/// silent.
pub(crate) fn each_alone(config: &Config) -> Vec<Config> {
    let hosts = config.get_hosts().len().max(config.get_hostaddrs().len());
    (0..hosts).map(|host| alone(config, host)).collect()
}

fn alone(config: &Config, host: usize) -> Config {
    let mut alone = Config::new();
    match config.get_hosts().get(host) {
        Some(Host::Tcp(name)) => drop(alone.host(name)),
        #[cfg(unix)]
        Some(Host::Unix(folder)) => drop(alone.host_path(folder)),
        None => {}
    }
    if let Some(address) = config.get_hostaddrs().get(host) {
        alone.hostaddr(*address);
    }
    let ports = config.get_ports();
    if let Some(port) = ports.get(host).or(ports.first()) {
        alone.port(*port);
    }
    if let Some(user) = config.get_user() {
        alone.user(user);
    }
    if let Some(password) = config.get_password() {
        alone.password(password);
    }
    if let Some(name) = config.get_dbname() {
        alone.dbname(name);
    }
    if let Some(options) = config.get_options() {
        alone.options(options);
    }
    if let Some(name) = config.get_application_name() {
        alone.application_name(name);
    }
    if let Some(timeout) = config.get_connect_timeout() {
        alone.connect_timeout(*timeout);
    }
    if let Some(timeout) = config.get_tcp_user_timeout() {
        alone.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        alone.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        alone.keepalives_retries(retries);
    }
    alone
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .channel_binding(config.get_channel_binding())
        .target_session_attrs(config.get_target_session_attrs())
        .load_balance_hosts(config.get_load_balance_hosts());
    alone
}

/// The same for each address that the host's name has now.
pub(crate) async fn each_address(host: &Config) -> Vec<Config> {
    let (Some(Host::Tcp(name)), []) = (host.get_hosts().first(), host.get_hostaddrs()) else {
        return vec![host.clone()];
    };
    let port = host.get_ports().first().copied().unwrap_or_default();
    let found = lookup_host((name.as_str(), port)).await;
    let addresses = found.into_iter().flatten().map(|found| {
        let mut at = host.clone();
        at.hostaddr(found.ip());
        at
    });
    let addresses: Vec<_> = addresses.collect();
    match addresses.is_empty() {
        // The client says why there is none.
        true => vec![host.clone()],
        false => addresses,
    }
}

fn is_tcp(host: &Host) -> bool {
    matches!(host, Host::Tcp(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, String> {
        Address::parse(url).map_err(|error| error.to_string())
    }

    #[test]
    fn url_names_server_database_and_schema() {
        let address =
            parse("postgres://bob:secret@db:6432/shop?schema=%6frders&keepalives=0").unwrap();
        assert_eq!(
            address.shown,
            "postgres://bob:***@db:6432/shop?schema=%6frders&***"
        );
        assert_eq!(address.schema.as_deref(), Some("orders"));
        let config = address.config;
        assert_eq!(
            (config.get_user(), config.get_dbname()),
            (Some("bob"), Some("shop"))
        );
        assert_eq!(config.get_ports(), [6432]);
        assert_eq!(config.get_ssl_mode(), SslMode::Disable);
        assert_eq!(each_alone(&config), [config]);
    }

    #[cfg(unix)]
    #[test]
    fn url_names_the_folder_of_a_socket() {
        for url in [
            "postgres:///shop?host=/run/a%20b&schema=orders",
            "postgres://%2Frun%2Fa%20b/shop?schema=orders",
            "postgres://bob:secret@/shop?host=%2Frun%2Fa%20b&schema=orders",
        ] {
            let address = parse(url).unwrap();
            let hosts = address.config.get_hosts();
            assert_eq!(hosts, [Host::Unix("/run/a b".into())], "{url}");
            assert_eq!(address.config.get_dbname(), Some("shop"));
            assert_eq!(address.shown, url.replace(":secret", ":***"));
        }
    }

    /// All that the client knows, so that nothing is left out which a newer one knows.
    #[test]
    fn each_of_several_hosts_is_asked_alone_with_all_that_the_url_says() {
        let all = "user=bob&password=pw&connect_timeout=3&tcp_user_timeout=4&keepalives=0&keepalives_idle=5\
                   &keepalives_interval=6&keepalives_retries=7&options=-c%20geqo%3Doff&application_name=shop\
                   &target_session_attrs=read-write&channel_binding=disable&load_balance_hosts=random";
        let both = parse(&format!("postgres://a:1,b:2/shop?{all}")).unwrap();
        let alone = ["a:1", "b:2"].map(|host| {
            let address = parse(&format!("postgres://{host}/shop?{all}"));
            address.unwrap().config
        });
        assert_eq!(each_alone(&both.config), alone);
        let named = parse("postgres://a,b/shop?hostaddr=127.0.0.1,127.0.0.2").unwrap();
        let named = each_alone(&named.config);
        let addresses = named.iter().map(|it| it.get_hostaddrs()[0].to_string());
        assert_eq!(addresses.collect::<Vec<_>>(), ["127.0.0.1", "127.0.0.2"]);
    }

    #[tokio::test]
    async fn each_address_of_a_name_is_asked_alone() {
        let here = parse("postgres://localhost/shop").unwrap().config;
        let found = each_address(&here).await;
        assert!(!found.is_empty());
        for at in found {
            assert!(at.get_hostaddrs()[0].is_loopback());
            // Certificates have names.
            assert_eq!(at.get_hosts(), here.get_hosts());
        }
        let unknown = parse("postgres://host.invalid/shop").unwrap().config;
        assert_eq!(each_address(&unknown).await, [unknown]);
    }

    #[cfg(all(unix, feature = "tls"))]
    #[test]
    fn socket_is_not_encrypted() {
        for (url, mode) in [
            (
                "postgres:///shop?host=/run&sslmode=require",
                SslMode::Disable,
            ),
            ("postgres://db/shop?sslmode=require", SslMode::Require),
            (
                "postgres://db,%2Frun/shop?sslmode=require",
                SslMode::Require,
            ),
        ] {
            assert_eq!(parse(url).unwrap().config.get_ssl_mode(), mode, "{url}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused_without_its_password() {
        for (url, reason) in [
            ("db:5432", "begins with postgres://"),
            ("mysql://db", "begins with postgres://"),
            ("postgres://u:secret@db:none/shop", "port"),
            ("postgres://db/shop?pasword=secret", "pasword"),
            ("postgres://db?sslmode=always", "no sslmode \"always\""),
            ("postgres:///shop", "no host"),
            ("postgres://a:1,b:2,c/shop?port=3", "ports: "),
            (
                "postgres://a/shop?hostaddr=127.0.0.1,127.0.0.2",
                "hosts: 1, but addresses: 2",
            ),
            ("postgres://app:secret?w@db/shop", "%3F"),
            ("postgres://app:w@secret@db/shop", "%40"),
        ] {
            let error = parse(url).unwrap_err();
            assert!(error.contains(reason), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
