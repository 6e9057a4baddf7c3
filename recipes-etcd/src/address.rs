//! The members that a URL names.

use std::sync::Arc;

use recipes_core::ConfigError;
use recipes_core::internal::{check_secrets, decoded, parameters, without_secrets};

use crate::server::Etcd;
use crate::servers::{Secret, Servers};

/// The port of clients.
const PORT: u16 = 2379;

/// A URL, taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    pub(crate) servers: Servers,
    /// What all keys begin with, from the URL's path.
    pub(crate) prefix: String,
    /// The URL without its password.
    pub(crate) shown: String,
}

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Self, ConfigError> {
        check_secrets(url)?;
        let invalid = |reason: String| ConfigError::invalid_address(url, reason);
        let (given, _) = url.split_once('?').unwrap_or((url, ""));
        let scheme = match given.split_once("://") {
            Some(("etcd", _)) => "http",
            Some(("etcds", _)) if cfg!(feature = "tls") => "https",
            Some(("etcds", _)) => return Err(invalid("TLS needs the feature `tls`".to_owned())),
            _ => {
                let known = Etcd::SCHEMES.join("://, ");
                return Err(invalid(format!("it begins with one of {known}://")));
            }
        };
        if !parameters(url)?.is_empty() {
            return Err(invalid("it has no parameters".to_owned()));
        }
        let (_, rest) = given.split_once("://").unwrap_or_default();
        let (secrets, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
        let (names, prefix) = match rest.find('/') {
            Some(at) => rest.split_at_checked(at).unwrap_or((rest, "")),
            None => (rest, ""),
        };
        if prefix.contains("//") {
            return Err(invalid("the prefix has an empty part".to_owned()));
        }
        let members = names.split(',').map(|name| member(scheme, name));
        let members: Result<Vec<_>, _> = members.collect();
        let servers = Servers {
            members: members.map_err(invalid)?,
            login: login(secrets).map_err(invalid)?,
            next: Arc::default(),
        };
        Ok(Self {
            servers,
            prefix: prefix.to_owned(),
            shown: without_secrets(url),
        })
    }
}

/// `host[:port]`, of which an IPv6 address stands in brackets.
fn member(scheme: &str, name: &str) -> Result<String, String> {
    let after_host = name.rsplit(']').next().unwrap_or_default();
    let (host, port) = match after_host.rsplit_once(':') {
        Some((_, port)) => (name.strip_suffix(port).unwrap_or(name), port.parse()),
        None => (name, Ok(PORT)),
    };
    let host = host.strip_suffix(':').unwrap_or(host);
    let is_host = !host.is_empty() && !host.contains(char::is_whitespace);
    match port {
        Ok(port) if is_host => Ok(format!("{scheme}://{host}:{port}")),
        _ => Err(format!("{name:?} is no host with a port")),
    }
}

/// `user:password`
fn login(secrets: &str) -> Result<Option<(String, Secret)>, String> {
    if secrets.is_empty() {
        return Ok(None);
    }
    let (user, password) = secrets.split_once(':').unwrap_or((secrets, ""));
    let decode = |text: &str| {
        decoded(text).ok_or_else(|| "user or password are not encoded as in a URL".to_owned())
    };
    Ok(Some((decode(user)?, Secret(decode(password)?))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(url: &str) -> Result<Vec<String>, String> {
        let parsed = Address::parse(url).map_err(|error| error.to_string());
        parsed.map(|it| it.servers.members)
    }

    #[test]
    fn url_names_members_user_and_prefix() {
        let address = Address::parse("etcd://bob:s%40cret@e1:2380,e2,[::1]:7/app/locks").unwrap();
        let members = ["http://e1:2380", "http://e2:2379", "http://[::1]:7"];
        assert_eq!(address.servers.members, members);
        assert_eq!(address.prefix, "/app/locks");
        assert_eq!(address.shown, "etcd://bob:***@e1:2380,e2,[::1]:7/app/locks");
        let (user, Secret(password)) = address.servers.login.clone().unwrap();
        assert_eq!((&*user, &*password), ("bob", "s@cret"));
        assert!(!format!("{:?}", address.servers).contains("s@cret"));
        let address = Address::parse("etcd://bob:a&b=c;d+e@e1").unwrap();
        let (_, Secret(password)) = address.servers.login.clone().unwrap();
        assert_eq!(password, "a&b=c;d+e");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for (url, reason) in [
            ("redis://e1", "begins with one of etcd://, etcds://"),
            ("etcd://e1:x", "no host with a port"),
            ("etcd://", "no host with a port"),
            ("etcd://e1,,e2", "no host with a port"),
            ("etcd://e1/a//b", "empty part"),
            ("etcd://e1/a?x=1", "no parameters"),
        ] {
            let text = members(url).unwrap_err();
            assert!(text.contains(reason), "{text}");
        }
    }

    #[test]
    fn tls_is_a_feature() {
        assert_eq!(members("etcds://e1").is_ok(), cfg!(feature = "tls"));
    }
}
