//! The server that a URL names.

use std::fmt;

#[cfg(feature = "tls")]
use mysql_async::SslOpts;
use mysql_async::{Opts, OptsBuilder};
use recipes_core::ConfigError;
use recipes_core::internal::{check_secrets, parameters, without_secrets};

/// A URL, taken apart.
#[derive(Clone)]
pub(super) struct Address {
    pub(super) options: Opts,
    pub(super) database: String,
    /// `?prefix=`
    pub(super) prefix: Option<String>,
    /// The URL without its password.
    pub(super) shown: String,
}

/// Shows no secrets.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.shown).finish()
    }
}

/// What a service sets beside the URL.
#[derive(Clone, Default)]
pub(super) struct Credentials {
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
}

/// How the connections are encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Encryption {
    #[default]
    Off,
    /// The server proves its name. A certificate that nobody checks is none.
    Proven { authorities: Option<String> },
}

impl Address {
    pub(super) fn parse(url: &str, credentials: &Credentials) -> Result<Self, ConfigError> {
        check_secrets(url)?;
        let invalid = |reason: String| ConfigError::invalid_address(url, reason);
        let plain = url.split('?').next().unwrap_or_default();
        let rest = match plain.split_once("://") {
            Some(("mysql" | "mariadb", rest)) => rest,
            Some((scheme, _)) => {
                let known = "it begins with mysql:// or mariadb://";
                return Err(invalid(format!("{known}, not {scheme}://")));
            }
            None => return Err(invalid("it begins with mysql://".to_owned())),
        };
        let parameters = Parameters::of(parameters(url)?).map_err(invalid)?;
        let options = Opts::from_url(&format!("mysql://{rest}"));
        // What the client says may have the password in it.
        let options = options.map_err(|_| invalid("it is no URL: mysql://host/database".into()))?;
        let database = options.db_name().unwrap_or_default().to_owned();
        if database.is_empty() {
            let reason = "it names no database: mysql://host/database";
            return Err(invalid(reason.to_owned()));
        }
        // The client keeps the brackets of an IPv6 address.
        let host = options.ip_or_hostname().trim_matches(['[', ']']).to_owned();
        let mut builder = OptsBuilder::from_opts(options)
            .ip_or_hostname(host)
            .tcp_nodelay(true)
            // It would connect twice to find a local socket.
            .prefer_socket(false);
        if let Some(username) = &credentials.username {
            builder = builder.user(Some(username));
        }
        if let Some(password) = &credentials.password {
            builder = builder.pass(Some(password));
        }
        let builder = encrypted(builder, parameters.encryption).map_err(invalid)?;
        Ok(Self {
            options: builder.into(),
            database,
            prefix: parameters.prefix,
            shown: without_secrets(url),
        })
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Parameters {
    prefix: Option<String>,
    encryption: Encryption,
}

impl Parameters {
    fn of(all: Vec<(String, String)>) -> Result<Self, String> {
        let mut parameters = Self::default();
        let mut authorities = None;
        for (name, value) in all {
            match name.as_str() {
                "prefix" => parameters.prefix = Some(value),
                "ssl-ca" => authorities = Some(value),
                "ssl-mode" => {
                    parameters.encryption = match value.to_ascii_lowercase().as_str() {
                        "disabled" => Encryption::Off,
                        "required" | "verify_ca" | "verify_identity" => {
                            Encryption::Proven { authorities: None }
                        }
                        _ => {
                            let known = "disabled, required, verify_ca or verify_identity";
                            return Err(format!("ssl-mode is {known}, not {value:?}"));
                        }
                    }
                }
                _ => {
                    return Err("unknown parameter; there are prefix, ssl-mode, ssl-ca".to_owned());
                }
            }
        }
        if authorities.is_some() {
            parameters.encryption = Encryption::Proven { authorities };
        }
        Ok(parameters)
    }
}

#[cfg(not(feature = "tls"))]
fn encrypted(builder: OptsBuilder, encryption: Encryption) -> Result<OptsBuilder, String> {
    match encryption {
        Encryption::Off => Ok(builder),
        _ => Err("TLS needs the feature `tls`".to_owned()),
    }
}

#[cfg(feature = "tls")]
fn encrypted(builder: OptsBuilder, encryption: Encryption) -> Result<OptsBuilder, String> {
    let options = SslOpts::default().with_disable_built_in_roots(true);
    let options = match encryption {
        Encryption::Off => return Ok(builder),
        Encryption::Proven {
            authorities: Some(path),
        } => {
            let unreadable = |error| format!("ssl-ca {path:?} cannot be read: {error}");
            let authorities = std::fs::read(&path).map_err(unreadable)?;
            options.with_root_certs(vec![authorities.into()])
        }
        Encryption::Proven { authorities: None } => {
            let trusted = rustls_native_certs::load_native_certs().certs;
            options.with_root_certs(trusted.into_iter().map(|it| it.to_vec().into()).collect())
        }
    };
    // Other crates of the process may bring another one, and then nobody would know which to take.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        // Another thread may have been faster.
        drop(provider.install_default());
    }
    Ok(builder.ssl_opts(Some(options)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Address, String> {
        Address::parse(url, &Credentials::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn url_names_server_database_and_prefix() {
        let address = parse("mysql://bob:se%40cret@db:3307/shop?prefix=orders_").unwrap();
        assert_eq!(address.shown, "mysql://bob:***@db:3307/shop?prefix=orders_");
        assert_eq!(address.prefix.as_deref(), Some("orders_"));
        let options = &address.options;
        assert_eq!((options.ip_or_hostname(), options.tcp_port()), ("db", 3307));
        assert_eq!(
            (options.user(), options.pass()),
            (Some("bob"), Some("se@cret"))
        );
        assert_eq!(address.database, "shop");
        assert!(!format!("{address:?}").contains("cret"));
        let address = parse("mariadb://db/shop").unwrap();
        assert_eq!(address.options.tcp_port(), 3306);
        let address = parse("mysql://[::1]:3307/shop").unwrap();
        let options = address.options;
        assert_eq!(
            (options.ip_or_hostname(), options.tcp_port()),
            ("::1", 3307)
        );
        let credentials = Credentials {
            username: Some("eve".to_owned()),
            password: Some("other".to_owned()),
        };
        let address = Address::parse("mysql://bob:secret@db/shop", &credentials).unwrap();
        let options = address.options;
        assert_eq!(
            (options.user(), options.pass()),
            (Some("eve"), Some("other"))
        );
    }

    #[test]
    fn what_is_no_address_is_refused_without_its_password() {
        for (url, reason) in [
            ("db:3306/shop", "begins with mysql://"),
            ("postgres://db/shop", "not postgres://"),
            ("mysql://db", "names no database"),
            ("mysql://u:secret@db:port/shop", "no URL"),
            ("mysql://u:secret@db/shop?prefx=b", "unknown parameter"),
            ("u:secret@db/shop", "begins with mysql://"),
            ("mysql://db/shop?ssl-mode=maybe", "ssl-mode is disabled"),
            ("mysql://u:secret/x@db/shop", "%2F"),
            ("mysql://u:x@secret@db/shop", "%40"),
        ] {
            let error = parse(url).unwrap_err();
            assert!(error.contains(reason), "{url}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn encryption_is_named_by_parameters() {
        let encryption = |text: &str| {
            let all = parameters(&format!("mysql://db/shop?{text}")).unwrap();
            Parameters::of(all).unwrap().encryption
        };
        assert_eq!(encryption(""), Encryption::Off);
        let proven = |authorities: Option<&str>| Encryption::Proven {
            authorities: authorities.map(ToOwned::to_owned),
        };
        for mode in ["REQUIRED", "verify_ca", "verify_identity"] {
            assert_eq!(encryption(&format!("ssl-mode={mode}")), proven(None));
        }
        assert_eq!(
            encryption("ssl-ca=/a.pem&ssl-mode=required"),
            proven(Some("/a.pem"))
        );
    }
}
