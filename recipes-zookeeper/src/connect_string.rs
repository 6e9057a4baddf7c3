//! The servers and the chroot that a connect string names.

use std::fmt;

use recipes_core::ConfigError;
use recipes_core::internal::validate_path;

/// The port of a server that is given without one.
const PORT: u16 = 2181;

/// A server of a connect string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// `None` if the connect string leaves it to the options of the session.
    pub(crate) tls: Option<bool>,
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, .. } = self;
        match host.contains(':') {
            true => write!(f, "[{host}]:{port}"),
            false => write!(f, "{host}:{port}"),
        }
    }
}

/// A connect string that the client takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectString {
    text: String,
    servers: Vec<Server>,
    chroot: String,
}

impl ConnectString {
    /// Reads `host:port,host:port/chroot`; `zk://` may stand in front.
    ///
    /// The client would take some mistakes for names of hosts, and look for them until its time is
    /// over.
    ///
    /// # Errors
    /// [`ConfigError::InvalidAddress`] with the reason, [`ConfigError::InvalidPath`] for a chroot
    /// that is no path.
    pub(crate) fn parse(address: &str) -> Result<Self, ConfigError> {
        let text = address.strip_prefix("zk://").unwrap_or(address);
        let flawed = |reason: &str| ConfigError::invalid_address(address, reason);
        if text.is_empty() {
            return Err(flawed("it is empty"));
        }
        if text.contains(|it: char| it.is_whitespace() || it.is_control()) {
            return Err(flawed("it has white space or control characters"));
        }
        let (hosts, chroot) = split_chroot(text);
        let servers = hosts.split(',').map(server).collect::<Result<Vec<_>, _>>();
        if hosts.contains('@') || servers.is_err() && text.contains('@') {
            // Its parts must not be shown.
            return Err(flawed(
                "a user and a password do not stand in it: they are an identity of the session",
            ));
        }
        if hosts.ends_with(':') && hosts.len() < text.len() {
            return Err(flawed(
                "it has a colon and a slash after it: a URL has two slashes there, and a server a port",
            ));
        }
        let servers = servers.map_err(|reason| flawed(&reason))?;
        if let Some(path) = chroot {
            validate_path(path).map_err(|flaw| match flaw {
                ConfigError::InvalidPath { reason, .. } => {
                    flawed(&format!("its chroot {path:?} is no path: {reason}"))
                }
                other => other,
            })?;
        }
        Ok(Self {
            text: text.to_owned(),
            servers,
            chroot: chroot.unwrap_or_default().to_owned(),
        })
    }

    /// As the client takes it.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The path below which all nodes are, empty if there is none.
    pub(crate) fn chroot(&self) -> &str {
        &self.chroot
    }
}

/// Splits off what comes after the last server, unless it is the root.
fn split_chroot(text: &str) -> (&str, Option<&str>) {
    let last = text.rfind(',').map_or(0, |comma| comma + 1);
    let (_, server) = text.split_at(last);
    let address = server
        .split_once("://")
        .map_or(server, |(_, address)| address);
    let Some(slash) = address.find('/') else {
        return (text, None);
    };
    let at = text.len() - address.len() + slash;
    let (hosts, path) = text.split_at(at);
    (hosts, Some(path).filter(|it| *it != "/"))
}

/// Reads one server, or says what is wrong with it.
fn server(text: &str) -> Result<Server, String> {
    if text.is_empty() {
        return Err("a server is missing in it".to_owned());
    }
    let (tls, address) = match text.split_once("://") {
        None => (None, text),
        Some(("tcp", address)) => (Some(false), address),
        Some(("tcp+tls", address)) => (Some(true), address),
        Some((scheme, _)) => {
            return Err(format!(
                "{scheme:?} in front of a server is neither \"tcp\" nor \"tcp+tls\""
            ));
        }
    };
    if address.contains('/') {
        return Err(format!(
            "{text:?} is no server: only the last one is followed by a chroot"
        ));
    }
    let (host, port) = host_and_port(address).map_err(|reason| format!("{text:?} {reason}"))?;
    Ok(Server {
        host: host.to_owned(),
        port,
        tls,
    })
}

fn host_and_port(address: &str) -> Result<(&str, u16), &'static str> {
    let (host, port) = match address.strip_prefix('[') {
        Some(bracketed) => {
            let (host, rest) = bracketed
                .split_once(']')
                .ok_or("has a bracket that is not closed")?;
            let port = match rest {
                "" => "",
                rest => rest
                    .strip_prefix(':')
                    .ok_or("has something between its bracket and its port")?,
            };
            (host, port)
        }
        None => {
            let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
            if host.contains(':') {
                return Err("has more than one colon: IPv6 addresses stand in brackets");
            }
            (host, port)
        }
    };
    if host.is_empty() {
        return Err("has no host");
    }
    if port.is_empty() {
        return Ok((host, PORT));
    }
    // `u16::from_str` takes a sign.
    let digits = Some(port).filter(|it| it.bytes().all(|byte| byte.is_ascii_digit()));
    let number = digits.and_then(|it| it.parse().ok());
    let number = number.filter(|it: &u16| *it != 0);
    let number = number.ok_or("has a port that is no number from 1 to 65535")?;
    Ok((host, number))
}

#[cfg(test)]
mod tests;
