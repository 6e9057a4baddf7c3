//! Why no server opened a session, found out after that failed.
//!
//! The client goes on trying and tells nobody why it fails. So each server is tried once more, by a
//! thread of its own: its name is looked up, a connection is made, and the first bytes of its
//! answer are read.

use std::fmt;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc::{self, UnboundedSender};
use thiserror::Error;
use tokio::time::timeout;

use crate::connect_string::Server;

/// How long a server may take for a connection, and again for its answer.
const STEP_MAX: Duration = Duration::from_secs(1);

/// How long all of it may take; a name server may be slower.
const WAIT_MAX: Duration = Duration::from_secs(3);

/// What is read of an answer: the report of a server is shorter.
const ANSWER_BYTES_MAX: usize = 4096;

/// The first byte of what a server that speaks TLS answers: a handshake or an alert.
const TLS_RECORDS: [u8; 2] = [0x16, 0x15];

/// The start of a TLS handshake that any server answers, if only by an alert.
#[rustfmt::skip]
const CLIENT_HELLO: [u8; 58] = [
    // A record with a handshake of 53 bytes; every client calls it TLS 1.0.
    0x16, 0x03, 0x01, 0x00, 0x35,
    // A client hello of 49 bytes, TLS 1.2.
    0x01, 0x00, 0x00, 0x31, 0x03, 0x03,
    // 32 bytes that need not be random, and no session.
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0,
    // Five suites, no compression.
    0x00, 0x0a, 0x13, 0x01, 0xc0, 0x2b, 0xc0, 0x2f, 0x00, 0x9c, 0x00, 0xff, 0x01, 0x00,
];

/// What each server did when it was tried once more.
#[derive(Debug, Error)]
pub(crate) struct NoSession {
    findings: Vec<(Server, Finding)>,
}

impl fmt::Display for NoSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (server, finding)) in self.findings.iter().enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            write!(f, "{comma}{server} {finding}")?;
        }
        Ok(())
    }
}

/// What a server did.
#[derive(Debug, Error)]
enum Finding {
    #[error("is not known by this name ({0})")]
    NotResolved(io::Error),
    #[error("refuses connections")]
    RefusesConnections,
    #[error("cannot be reached ({0})")]
    Unreachable(io::Error),
    #[error("does not answer")]
    Silent,
    #[error(
        "accepts connections and closes them, as it does for a host that has too many (maxClientCnxns)"
    )]
    Closes,
    #[error("speaks no TLS on this port")]
    NoTls,
    #[error(
        "speaks TLS, but the handshake or the session failed: check who signed the certificates, \
         and for which names"
    )]
    TlsFailed,
    #[error("expects TLS on this port")]
    ExpectsTls,
    #[error("is up, but serves no requests: it has no quorum")]
    NoQuorum,
    #[error("is up, but opened no session")]
    NoSession,
    #[error("is no ZooKeeper server")]
    NoZooKeeper,
}

/// Tries each server once.
pub(crate) async fn diagnose(servers: &[(Server, bool)]) -> NoSession {
    let (found, findings) = mpsc::unbounded();
    for (index, (server, tls)) in servers.iter().enumerate() {
        try_on_a_thread(index, server.clone(), *tls, found.clone());
    }
    // The stream ends when each thread has sent its finding.
    drop(found);
    let mut all: Vec<Option<Finding>> = servers.iter().map(|_| None).collect();
    let collected = async {
        let mut findings = findings;
        while let Some((index, finding)) = findings.next().await {
            if let Some(place) = all.get_mut(index) {
                *place = Some(finding);
            }
        }
    };
    // What has no finding by then is silent.
    let _ = timeout(WAIT_MAX, collected).await;
    let findings = servers.iter().zip(all).map(|((server, _), finding)| {
        let finding = finding.unwrap_or(Finding::Silent);
        (server.clone(), finding)
    });
    NoSession {
        findings: findings.collect(),
    }
}

fn try_on_a_thread(
    index: usize,
    server: Server,
    tls: bool,
    found: UnboundedSender<(usize, Finding)>,
) {
    let unsent = found.clone();
    let tried = thread::Builder::new()
        .name("zookeeper-probe".to_owned())
        .spawn(move || {
            // Nobody may be waiting any more.
            drop(found.unbounded_send((index, try_once(&server, tls))));
        });
    if let Err(error) = tried {
        drop(unsent.unbounded_send((index, Finding::Unreachable(error))));
    }
}

fn try_once(server: &Server, tls: bool) -> Finding {
    let addresses = match (server.host.as_str(), server.port).to_socket_addrs() {
        Ok(addresses) => addresses,
        Err(error) => return Finding::NotResolved(error),
    };
    // A name may stand for several addresses. The first that answers counts, otherwise the last.
    let mut last = Finding::Silent;
    for address in addresses {
        match connect(address) {
            Ok(stream) => return answer(stream, tls),
            Err(finding) => last = finding,
        }
    }
    last
}

fn connect(address: SocketAddr) -> Result<TcpStream, Finding> {
    TcpStream::connect_timeout(&address, STEP_MAX).map_err(|error| match error.kind() {
        ErrorKind::ConnectionRefused => Finding::RefusesConnections,
        ErrorKind::TimedOut => Finding::Silent,
        _ => Finding::Unreachable(error),
    })
}

/// Sends what a server answers without a session: over TLS a client hello, otherwise the command
/// `srvr`, which servers permit by default.
fn answer(mut stream: TcpStream, tls: bool) -> Finding {
    let question: &[u8] = if tls { &CLIENT_HELLO } else { b"srvr" };
    let asked = stream
        .set_read_timeout(Some(STEP_MAX))
        .and_then(|()| stream.set_write_timeout(Some(STEP_MAX)))
        .and_then(|()| stream.write_all(question));
    if asked.is_err() {
        return Finding::Closes;
    }
    let mut answer = [0; ANSWER_BYTES_MAX];
    let read = match stream.read(&mut answer) {
        Ok(read) => read,
        Err(error) if is_silence(&error) => return Finding::Silent,
        // A server that does not understand the question may reset the connection.
        Err(_) => 0,
    };
    let answer = answer.get(..read).unwrap_or_default();
    match tls {
        true => judge_over_tls(answer),
        false => judge(answer),
    }
}

fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn judge_over_tls(answer: &[u8]) -> Finding {
    match answer.first() {
        Some(first) if TLS_RECORDS.contains(first) => Finding::TlsFailed,
        _ => Finding::NoTls,
    }
}

fn judge(answer: &[u8]) -> Finding {
    let text = String::from_utf8_lossy(answer);
    match answer.first() {
        None => Finding::Closes,
        Some(first) if TLS_RECORDS.contains(first) => Finding::ExpectsTls,
        Some(_) if text.contains("not currently serving requests") => Finding::NoQuorum,
        Some(_) if text.contains("Mode: read-only") => Finding::NoQuorum,
        // The second if the server does not permit the command.
        Some(_) if text.starts_with("Zookeeper version") || text.contains("whitelist") => {
            Finding::NoSession
        }
        Some(_) => Finding::NoZooKeeper,
    }
}

#[cfg(test)]
mod tests;
