//! The network between the servers of an ensemble, which can be cut.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

/// The most bytes in flight on a link.
const BUFFER_BYTES: usize = 1 << 14;

/// How long to wait for a server that is about to listen, and how often to try it.
const LISTEN_MAX: Duration = Duration::from_secs(1);
const LISTEN_POLL: Duration = Duration::from_millis(10);

/// By what a member of etcd says in each of its requests that matter to the quorum who it is.
const SENDER: &[u8] = b"X-Server-From: ";

/// Which side of a cut each server is on. Servers on one side reach each other and no others.
#[derive(Debug, Default)]
struct Cut {
    sides: BTreeMap<usize, u64>,
    /// Number of sides so far.
    last: u64,
    /// The servers that say who they are.
    known: BTreeMap<u64, usize>,
}

impl Cut {
    fn joins(&self, [one, other]: [usize; 2]) -> bool {
        self.sides.get(&one) == self.sides.get(&other)
    }
}

/// Forwarded ports of servers, whose connections can be cut.
#[derive(Debug, Default)]
pub(super) struct Links {
    cut: watch::Sender<Cut>,
    tasks: Vec<AbortHandle>,
}

impl Links {
    /// Learns which server calls itself so.
    pub(super) fn introduce(&self, index: usize, id: u64) {
        self.cut.send_modify(|cut| {
            cut.known.insert(id, index);
        });
    }

    /// Whether two servers reach each other.
    pub(super) fn joins(&self, ends: [usize; 2]) -> bool {
        self.cut.borrow().joins(ends)
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

    /// Forwards connections on the current runtime, from a port of its own, which it returns. Without the server that
    /// they come from, each must say it.
    pub(super) fn forward(
        &mut self,
        from: Option<usize>,
        to: usize,
        target: u16,
    ) -> io::Result<u16> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let listener = TcpListener::from_std(listener)?;
        let cut = self.cut.subscribe();
        let accepting = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let link = Link {
                    from,
                    said: Arc::default(),
                    to,
                    cut: cut.clone(),
                };
                // It is refused at once. A server that waited for an answer here would not look for
                // another leader meanwhile.
                if from.is_none() || link.is_whole(&cut.borrow()) {
                    tokio::spawn(link.carry(near, target));
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
    from: Option<usize>,
    /// Who says to have connected; zero if that was not said yet.
    said: Arc<AtomicU64>,
    to: usize,
    cut: watch::Receiver<Cut>,
}

impl Link {
    /// A connection that may be of any server passes nothing while one is cut off.
    fn is_whole(&self, cut: &Cut) -> bool {
        let said = || cut.known.get(&self.said.load(Ordering::Relaxed)).copied();
        match self.from.or_else(said) {
            Some(from) => cut.joins([from, self.to]),
            None => cut.sides.is_empty(),
        }
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
            let read = buffer.get(..count).unwrap_or_default();
            if self.from.is_none() && self.said.load(Ordering::Relaxed) == 0 {
                let said = sender(read).unwrap_or_default();
                self.said.store(said, Ordering::Relaxed);
            }
            // As on a real network, what is sent during a cut arrives later, even the end of a
            // connection.
            let link = self.clone();
            let waited = self.cut.wait_for(|cut| link.is_whole(cut)).await.map(drop);
            if waited.is_err() || count == 0 {
                return Ok(());
            }
            to.write_all(read).await?;
        }
    }
}

fn sender(request: &[u8]) -> Option<u64> {
    let mut parts = request.windows(SENDER.len());
    let id = request.get(parts.position(|it| it == SENDER)? + SENDER.len()..)?;
    let id = id.split(|byte| *byte == b'\r').next()?;
    u64::from_str_radix(std::str::from_utf8(id).ok()?, 16).ok()
}
