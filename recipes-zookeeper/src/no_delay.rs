//! Switches off Nagle's algorithm on the connections to an ensemble.
//!
//! With it, the second of two requests that leave together waits for the reply to the first, so an
//! uncontended acquire takes two round trips. The client neither switches it off nor exposes its
//! socket. So we search the process for sockets whose peer is one of the servers. An option that is
//! set on a duplicate of a descriptor holds for the socket, and a message to ourselves makes a
//! duplicate from a number in safe code. Only latency depends on it.

use std::collections::BTreeSet;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::{io, mem, thread};

use recipes_core::internal::log::STORE;
use tracing::{debug, info};

use crate::connect_string::Server;

/// The servers of a connect string, whose connections must not delay requests.
#[derive(Clone, Debug)]
pub(crate) struct NoDelay {
    servers: Arc<[Server]>,
}

impl NoDelay {
    pub(crate) fn new(servers: &[Server]) -> Self {
        Self {
            servers: servers.into(),
        }
    }

    /// Sets `TCP_NODELAY` on each connection of this process to one of the servers, soon.
    ///
    /// Runs on a thread of its own, because the end of a runtime would wait for a name server that
    /// does not answer. There is one at a time: a search looks at all sockets of the process, and those who
    /// ask meanwhile share the next.
    pub(crate) fn apply(&self) {
        if !asked().is_first(&self.servers) {
            return;
        }
        let spawned = thread::Builder::new()
            .name("zookeeper-no-delay".to_owned())
            .spawn(search);
        if let Err(error) = spawned {
            *asked() = Search::default();
            report(&error);
        }
    }
}

/// The search of this process.
static SEARCH: Mutex<Search> = Mutex::new(Search {
    wanted: Vec::new(),
    runs: false,
});

fn asked() -> MutexGuard<'static, Search> {
    SEARCH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who has asked for a search.
#[derive(Default)]
struct Search {
    /// Whose connections the next one is for.
    wanted: Vec<Arc<[Server]>>,
    /// Somebody looks after those who ask.
    runs: bool,
}

impl Search {
    /// Whether whoever asks must look after it.
    fn is_first(&mut self, servers: &Arc<[Server]>) -> bool {
        if !self.wanted.contains(servers) {
            self.wanted.push(Arc::clone(servers));
        }
        !mem::replace(&mut self.runs, true)
    }

    /// What to look for next. `None` if nobody has asked meanwhile; whoever asks then is the first again.
    fn next(&mut self) -> Option<Vec<Arc<[Server]>>> {
        let wanted = mem::take(&mut self.wanted);
        self.runs = !wanted.is_empty();
        self.runs.then_some(wanted)
    }
}

fn search() {
    // Not in the loop's head, which would hold the lock.
    let next = || asked().next();
    while let Some(wanted) = next() {
        let peers = wanted.iter().flat_map(|it| addresses(it)).collect();
        match sockets::set(&peers) {
            Ok(set) => debug!(target: STORE, connections = set, "TCP_NODELAY set"),
            Err(error) => report(&error),
        }
    }
}

/// Logs the consequence once, because it is the same for each connection.
fn report(error: &io::Error) {
    static REPORTED: Once = Once::new();
    debug!(target: STORE, %error, "TCP_NODELAY not set");
    REPORTED.call_once(|| {
        info!(
            target: STORE,
            %error,
            "TCP_NODELAY cannot be set on connections to ZooKeeper: \
             an acquire may take two round trips instead of one"
        );
    });
}

fn addresses(servers: &[Server]) -> BTreeSet<SocketAddr> {
    let resolved = servers.iter().filter_map(|Server { host, port, .. }| {
        let resolved = (host.as_str(), *port).to_socket_addrs();
        let failed = |error| debug!(target: STORE, %host, %error, "server not resolved");
        resolved.map_err(failed).ok()
    });
    resolved.flatten().map(plain).collect()
}

/// The canonical address: the same for all ways to write one peer.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Other systems have no way in safe code.
#[cfg(not(target_os = "linux"))]
mod sockets {
    use std::collections::BTreeSet;
    use std::io;
    use std::net::SocketAddr;

    pub(super) fn set(_: &BTreeSet<SocketAddr>) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(target_os = "linux")]
mod sockets {
    use std::collections::BTreeSet;
    use std::io::{IoSlice, IoSliceMut};
    use std::mem::MaybeUninit;
    use std::net::SocketAddr;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::os::unix::net::UnixDatagram;
    use std::path::Path;
    use std::{fs, io};

    use nix::errno::Errno;
    use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
    use rustix::cmsg_space;
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
    use rustix::net::{getpeername, recvmsg, sockopt};

    /// Returns the number of sockets on which it was set.
    pub(super) fn set(peers: &BTreeSet<SocketAddr>) -> io::Result<usize> {
        let copier = Copier::new()?;
        let mut set = 0;
        for entry in fs::read_dir("/proc/self/fd")? {
            let path = entry?.path();
            let Some(descriptor) = socket(&path) else {
                continue;
            };
            let Some(duplicate) = copier.duplicate(descriptor)? else {
                continue;
            };
            let is_ours = peer(&duplicate).is_some_and(|peer| peers.contains(&peer));
            // An error means that it is not TCP, or was reset meanwhile.
            if is_ours && sockopt::tcp_nodelay(&duplicate) == Ok(false) {
                set += usize::from(sockopt::set_tcp_nodelay(&duplicate, true).is_ok());
            }
        }
        Ok(set)
    }

    /// Duplicates descriptors by their numbers: the kernel passes a descriptor with a message, and
    /// the receiver owns what it gets.
    ///
    /// `pidfd_getfd` would be one call, but default profiles of containers refuse it. They allow
    /// `sendmsg`.
    struct Copier {
        from: UnixDatagram,
        to: UnixDatagram,
    }

    impl Copier {
        fn new() -> io::Result<Self> {
            let (from, to) = UnixDatagram::pair()?;
            Ok(Self { from, to })
        }

        /// `None` if the descriptor was closed meanwhile.
        fn duplicate(&self, descriptor: i32) -> io::Result<Option<OwnedFd>> {
            let descriptors = [descriptor];
            let passed = [ControlMessage::ScmRights(&descriptors)];
            let (from, text) = (self.from.as_raw_fd(), [IoSlice::new(b"?")]);
            match sendmsg::<()>(from, &text, &passed, MsgFlags::MSG_DONTWAIT, None) {
                Ok(_) => {}
                // The number may belong to another descriptor by now, and not every kind can be
                // passed.
                Err(Errno::EBADF | Errno::EINVAL) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
            let mut received = RecvAncillaryBuffer::new(&mut space);
            let mut text = [0];
            let text = &mut [IoSliceMut::new(&mut text)];
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            recvmsg(&self.to, text, &mut received, flags)?;
            let duplicates = received.drain().filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                _ => None,
            });
            match duplicates.flatten().next() {
                // The kernel drops what exceeds the limit of the process.
                None => Err(rustix::io::Errno::MFILE.into()),
                duplicate => Ok(duplicate),
            }
        }
    }

    /// The number of an entry of `/proc/self/fd` that is a socket.
    fn socket(entry: &Path) -> Option<i32> {
        let target = fs::read_link(entry).ok()?;
        let is_socket = target.to_str()?.starts_with("socket:");
        let descriptor = entry.file_name()?.to_str()?.parse().ok()?;
        is_socket.then_some(descriptor)
    }

    /// The peer of a connected internet socket.
    fn peer(socket: &OwnedFd) -> Option<SocketAddr> {
        let peer = getpeername(socket).ok()??;
        SocketAddr::try_from(peer).ok().map(super::plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(host: &str) -> Arc<[Server]> {
        let (host, port, tls) = (host.to_owned(), 2181, None);
        Arc::new([Server { host, port, tls }])
    }

    #[test]
    fn those_who_ask_during_a_search_share_the_next() {
        let mut search = Search::default();
        assert!(search.is_first(&servers("a")));
        assert_eq!(search.next(), Some(vec![servers("a")]));
        for host in ["b", "a", "b"] {
            assert!(!search.is_first(&servers(host)));
        }
        assert_eq!(search.next(), Some(vec![servers("b"), servers("a")]));
        assert_eq!(search.next(), None);
        assert!(search.is_first(&servers("a")));
    }

    #[test]
    fn mapped_address_is_the_same_peer() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let mapped = plain(address("[::ffff:10.0.0.1]:2181"));
        assert_eq!(mapped, plain(address("10.0.0.1:2181")));
        assert_eq!(
            plain(address("[fe80::2%3]:2181")),
            plain(address("[fe80::2]:2181"))
        );
        assert_ne!(mapped, plain(address("10.0.0.1:2182")));
    }
}
