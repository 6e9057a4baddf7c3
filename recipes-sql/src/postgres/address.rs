//! The servers that a URL names.

use std::str::FromStr;

use recipes_core::ConfigError;
use recipes_core::internal::{check_secrets, parameters, without_secrets};
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

/// A URL, taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) config: Config,
    /// `?schema=`
    pub(crate) schema: Option<String>,
    /// The URL without its password.
    pub(crate) shown: String,
    /// There are several servers, of which one is the primary.
    pub(crate) may_move: bool,
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
        let may_move = config.get_hosts().len().max(config.get_hostaddrs().len()) > 1;
        if may_move {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        Ok(Self {
            config,
            schema,
            shown: without_secrets(url),
            may_move,
        })
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
        assert!(!address.may_move && config.get_ssl_mode() == SslMode::Disable);
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

    #[test]
    fn among_several_servers_the_primary_is_chosen() {
        let address = parse("postgresql://a,b:5433/shop").unwrap();
        let attributes = address.config.get_target_session_attrs();
        assert!(address.may_move && attributes == TargetSessionAttrs::ReadWrite);
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
            ("postgres://app:secret?w@db/shop", "%3F"),
            ("postgres://app:w@secret@db/shop", "%40"),
        ] {
            let error = parse(url).unwrap_err();
            assert!(error.contains(reason), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
