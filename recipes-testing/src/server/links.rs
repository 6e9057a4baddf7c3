//! The network between the servers of an ensemble, which can be cut.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::config::Ports;

/// The most bytes in flight on a link.
const BUFFER_BYTES: usize = 1 << 14;

/// How long to wait for a server that is about to listen, and how often to try it.
const LISTEN_MAX: Duration = Duration::from_secs(1);
const LISTEN_POLL: Duration = Duration::from_millis(10);

/// Which side of a cut each server is on. Servers on one side reach each other and no others.
#[derive(Debug, Default)]
struct Cut {
    sides: BTreeMap<usize, u64>,
    /// Number of sides so far.
    last: u64,
}

impl Cut {
    fn joins(&self, [one, other]: [usize; 2]) -> bool {
        self.sides.get(&one) == self.sides.get(&other)
    }
}

/// A forwarded port from each server to each port of every other.
#[derive(Debug)]
pub(super) struct Links {
    cut: watch::Sender<Cut>,
    ports: BTreeMap<(usize, usize), [u16; 2]>,
    tasks: Vec<AbortHandle>,
}

impl Links {
    /// Starts forwarding, on the current runtime.
    pub(super) fn start(all: &[Ports]) -> io::Result<Self> {
        let mut links = Self {
            cut: watch::Sender::new(Cut::default()),
            ports: BTreeMap::new(),
            tasks: Vec::new(),
        };
        for (to, ports) in all.iter().enumerate() {
            for from in (0..all.len()).filter(|from| *from != to) {
                let quorum = links.forward([from, to], ports.quorum)?;
                let election = links.forward([from, to], ports.election)?;
                links.ports.insert((from, to), [quorum, election]);
            }
        }
        Ok(links)
    }

    /// The ports under which a server reaches the others.
    pub(super) fn seen_by(&self, index: usize, all: &[Ports]) -> Vec<Ports> {
        let seen = all.iter().enumerate().map(|(other, ports)| {
            let [quorum, election] = self
                .ports
                .get(&(index, other))
                .copied()
                .unwrap_or([ports.quorum, ports.election]);
            Ports {
                client: ports.client,
                quorum,
                election,
            }
        });
        seen.collect()
    }

    pub(super) fn cut_off(&self, together: &[usize]) {
        self.cut.send_modify(|cut| {
            cut.last += 1;
            let side = cut.last;
            cut.sides.extend(together.iter().map(|it| (*it, side)));
        });
    }

    pub(super) fn join_again(&self, index: usize) {
        self.cut.send_modify(|cut| {
            cut.sides.remove(&index);
        });
    }

    /// Accepts connections on a port of its own, which it returns.
    fn forward(&mut self, ends: [usize; 2], target: u16) -> io::Result<u16> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let listener = TcpListener::from_std(listener)?;
        let link = Link {
            ends,
            cut: self.cut.subscribe(),
        };
        let accepting = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                // It is refused at once. A server that waited for an answer here would not look for
                // another leader meanwhile.
                if link.is_whole(&link.cut.borrow()) {
                    tokio::spawn(link.clone().carry(near, target));
                }
            }
        });
        self.tasks.push(accepting.abort_handle());
        Ok(port)
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        // The connections end with the servers.
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

#[derive(Clone)]
struct Link {
    ends: [usize; 2],
    cut: watch::Receiver<Cut>,
}

impl Link {
    fn is_whole(&self, cut: &Cut) -> bool {
        cut.joins(self.ends)
    }

    async fn carry(self, near: TcpStream, target: u16) {
        // A leader that was just elected does not listen yet. A follower whose connection ends
        // instead of being refused gives it up. If the server is down, trying a little longer does
        // not matter.
        let connected = async {
            loop {
                match TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await {
                    Ok(far) => return far,
                    Err(_) => sleep(LISTEN_POLL).await,
                }
            }
        };
        let Ok(far) = timeout(LISTEN_MAX, connected).await else {
            return;
        };
        let ((near_read, near_write), (far_read, far_write)) =
            (near.into_split(), far.into_split());
        let there = self.clone().pump(near_read, far_write);
        let back = self.pump(far_read, near_write);
        // Errors mean that a server has closed its end, or has ended.
        let (_, _) = tokio::join!(there, back);
    }

    async fn pump(mut self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
        let mut buffer = vec![0; BUFFER_BYTES];
        loop {
            let count = from.read(&mut buffer).await?;
            // As on a real network, what is sent during a cut arrives later, even the end of a
            // connection.
            let link = self.clone();
            let waited = self.cut.wait_for(|cut| link.is_whole(cut)).await.map(drop);
            if waited.is_err() || count == 0 {
                return Ok(());
            }
            to.write_all(buffer.get(..count).unwrap_or_default())
                .await?;
        }
    }
}
