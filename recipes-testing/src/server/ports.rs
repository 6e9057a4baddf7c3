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

/// Returns distinct ports that were free on loopback a moment ago.
///
/// Another process may still take one. The caller then tries again with other ports.
pub(crate) fn free(count: usize) -> io::Result<Vec<u16>> {
    // All are held until the last is chosen, so that none is chosen twice.
    let listeners = (0..count)
        .map(|_| listener())
        .collect::<io::Result<Vec<_>>>()?;
    listeners
        .iter()
        .map(|listener| Ok(listener.local_addr()?.port()))
        .collect()
}

fn listener() -> io::Result<TcpListener> {
    let candidates = ephemeral_start().unwrap_or(0).saturating_sub(LOWEST);
    if candidates >= CANDIDATES_MIN {
        for _ in 0..TRIES_MAX {
            let [high, low, ..] = Uuid::new_v4().into_bytes();
            let port = LOWEST + u16::from_be_bytes([high, low]) % candidates;
            if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
                return Ok(listener);
            }
        }
    }
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
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

    use super::{ephemeral_start, free};

    #[test]
    fn ports_are_distinct_and_not_for_outgoing_connections() {
        let ports = free(9).unwrap();
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), 9);
        if let Some(start) = ephemeral_start().filter(|start| *start >= 11_000) {
            assert!(ports.iter().all(|port| *port < start), "{ports:?}");
        }
    }
}
