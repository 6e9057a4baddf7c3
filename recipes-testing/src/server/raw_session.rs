//! Ends a session from outside: takes it over by its id and password, then closes it.

use std::io;
use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::password;

/// `ZooDefs.OpCode.closeSession`.
const CLOSE_SESSION: i32 = -11;
/// Any number: the connection carries one request.
const XID: i32 = 1;
/// Replies here are tens of bytes; more means that no ZooKeeper is at the other end.
const FRAME_BYTES_MAX: usize = 1 << 16;

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The session is closed and its ephemeral nodes are deleted.
    Closed,
    /// The server does not know the session.
    Unknown,
}

/// Ends the session and returns after the server has deleted its ephemeral nodes.
///
/// The takeover closes the connection of the session's client, which may reconnect and take the
/// session back before it is closed. Each attempt is a new race; the caller sets the time limit.
pub(super) async fn end(port: u16, session_id: i64) -> io::Result<Ended> {
    let mut first = true;
    loop {
        match attempt(port, session_id).await {
            Err(error) if lost_race(&error) => first = false,
            // The close was applied, and only its reply was lost.
            Ok(Ended::Unknown) if !first => return Ok(Ended::Closed),
            ended => return ended,
        }
    }
}

fn lost_race(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
}

async fn attempt(port: u16, session_id: i64) -> io::Result<Ended> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let close = [XID.to_be_bytes(), CLOSE_SESSION.to_be_bytes()].concat();
    // Both at once: waiting for the first reply would lose nearly every race.
    let requests = [frame(&connect_request(session_id))?, frame(&close)?].concat();
    stream.write_all(&requests).await?;
    let reply = read_frame(&mut stream).await?;
    if accepted_session(&reply).ok_or_else(|| garbled("connect"))? != session_id {
        return Ok(Ended::Unknown);
    }
    // The server answers a close after it has applied it.
    let reply = read_frame(&mut stream).await?;
    match closed(&reply).ok_or_else(|| garbled("closeSession"))? {
        0 => Ok(Ended::Closed),
        code => Err(io::Error::other(format!(
            "closeSession failed with code {code}"
        ))),
    }
}

fn garbled(request: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("reply to {request} is not understood"),
    )
}

/// `ConnectRequest`: protocol version, last zxid seen, timeout, session id, password, read-only.
fn connect_request(session_id: i64) -> Vec<u8> {
    let mut request = Vec::new();
    request.extend(0_i32.to_be_bytes());
    request.extend(0_i64.to_be_bytes());
    // The shortest: should this task die between the requests, the session is over soon anyhow.
    request.extend(1_i32.to_be_bytes());
    request.extend(session_id.to_be_bytes());
    let password = password::of_session(session_id);
    request.extend(16_i32.to_be_bytes());
    request.extend(password);
    request.push(0);
    request
}

/// The session that a `ConnectResponse` grants; zero when the server refused.
fn accepted_session(reply: &[u8]) -> Option<i64> {
    // Protocol version, then timeout.
    let id = reply.get(8..16)?;
    Some(i64::from_be_bytes(id.try_into().ok()?))
}

/// The error code of the reply to [`XID`].
fn closed(reply: &[u8]) -> Option<i32> {
    let (xid, code) = (reply.get(..4)?, reply.get(12..16)?);
    (xid == XID.to_be_bytes()).then_some(())?;
    Some(i32::from_be_bytes(code.try_into().ok()?))
}

fn frame(body: &[u8]) -> io::Result<Vec<u8>> {
    let length = i32::try_from(body.len()).map_err(io::Error::other)?;
    Ok([&length.to_be_bytes(), body].concat())
}

async fn read_frame(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = usize::try_from(stream.read_i32().await?).unwrap_or(usize::MAX);
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "frame is too long",
        ));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok(body)
}
