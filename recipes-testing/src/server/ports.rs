//! Ports that a server can listen on, and get again after a restart.

use std::net::{Ipv4Addr, TcpListener};
use std::{fs, io};

use uuid::Uuid;

/// Ports below are assigned to well-known services.
const LOWEST: u16 = 10_000;
/// Fewer than this many candidates are not worth preferring.
const CANDIDATES_MIN: u16 = 1_000;
/// Tries before the kernel may choose any port.
const TRIES_MAX: usize = 50;

/// A port of loopback that no other test takes as long as this value exists, not even while
/// nobody listens on it.
///
/// On Linux it is known by a name that one socket can have. The kernel gives that back however the
/// process ends. Elsewhere another test may take the port of a server that is down.
#[derive(Debug)]
pub struct Port {
    number: u16,
    #[cfg(target_os = "linux")]
    _name: std::os::unix::net::UnixListener,
}

impl Port {
    /// Fails if another test has it.
    fn reserve(number: u16) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        use std::os::{linux::net::SocketAddrExt as _, unix::net};

        Ok(Self {
            number,
            #[cfg(target_os = "linux")]
            _name: {
                let name = format!("lock-recipes test port {number}");
                net::UnixListener::bind_addr(&net::SocketAddr::from_abstract_name(name)?)?
            },
        })
    }

    pub fn number(&self) -> u16 {
        self.number
    }
}

/// Returns distinct ports that were free on loopback a moment ago.
///
/// A process that is no test may still take one. The caller then tries again with other ports.
pub fn free(count: usize) -> io::Result<Vec<Port>> {
    // All are listened on until the last is chosen, so that none is chosen twice.
    let held = (0..count)
        .map(|_| listener())
        .collect::<io::Result<Vec<_>>>()?;
    Ok(held.into_iter().map(|(port, _)| port).collect())
}

fn listener() -> io::Result<(Port, TcpListener)> {
    let candidates = ephemeral_start().unwrap_or(0).saturating_sub(LOWEST);
    if candidates >= CANDIDATES_MIN {
        for _ in 0..TRIES_MAX {
            let [high, low, ..] = Uuid::new_v4().into_bytes();
            let number = LOWEST + u16::from_be_bytes([high, low]) % candidates;
            let Ok(port) = Port::reserve(number) else {
                continue;
            };
            if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, number)) {
                return Ok((port, listener));
            }
        }
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let number = listener.local_addr()?.port();
    Ok((Port::reserve(number)?, listener))
}

/// The first port of the kernel's range for outgoing connections, if it reports one (Linux).
///
/// A server port from that range can be lost while the server is down. A client that keeps trying
/// to reconnect gets it as its own port sooner or later, and is then connected to itself.
fn ephemeral_start() -> Option<u16> {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    range.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Port, ephemeral_start, free};

    #[test]
    fn ports_are_distinct_and_not_for_outgoing_connections() {
        let ports = free(9).unwrap();
        let ports: Vec<_> = ports.iter().map(Port::number).collect();
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 9);
        if let Some(start) = ephemeral_start().filter(|start| *start >= 11_000) {
            assert!(ports.iter().all(|port| *port < start), "{ports:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn port_on_which_nobody_listens_is_not_taken_by_another() {
        let port = free(1).unwrap().remove(0);
        assert!(Port::reserve(port.number()).is_err());
        let number = port.number();
        drop(port);
        assert!(Port::reserve(number).is_ok());
    }
}
