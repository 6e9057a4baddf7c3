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
/// Stands for no session, in a `ConnectRequest` and in its refusal.
const NEW_SESSION: i64 = 0;
/// Replies here are tens of bytes; more means that no ZooKeeper is at the other end.
const FRAME_BYTES_MAX: usize = 1 << 16;

/// The result of ending a session.
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
/// session back before it is closed. Each attempt is a new race. The caller sets the time limit.
pub(super) async fn end(port: u16, session_id: i64) -> io::Result<Ended> {
    let mut first = true;
    loop {
        match attempt(port, session_id).await {
            Err(error) if lost_race(&error) => first = false,
            // The close was committed, and only its reply was lost. The server forgets a session
            // before it deletes its nodes, so they may still be there.
            Ok(Ended::Unknown) if !first => {
                catch_up(port).await?;
                return Ok(Ended::Closed);
            }
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
    // Both are sent at once. Waiting for the first reply would lose nearly every race.
    let requests = [frame(&connect_request(session_id))?, frame(&close())?].concat();
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

/// Returns after the server has applied everything that was committed before the call. Opening a
/// session is a transaction, and its reply means that it is applied.
async fn catch_up(port: u16) -> io::Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let requests = [frame(&connect_request(NEW_SESSION))?, frame(&close())?].concat();
    stream.write_all(&requests).await?;
    read_frame(&mut stream).await.map(drop)
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
    // The shortest timeout. If this task dies between the requests, the session soon ends anyway.
    request.extend(1_i32.to_be_bytes());
    request.extend(session_id.to_be_bytes());
    let password = password::of_session(session_id);
    request.extend(16_i32.to_be_bytes());
    request.extend(password);
    request.push(0);
    request
}

fn close() -> Vec<u8> {
    [XID.to_be_bytes(), CLOSE_SESSION.to_be_bytes()].concat()
}

/// The session that a `ConnectResponse` grants; [`NEW_SESSION`] if the server refused.
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

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Reads both requests, and returns the id of the session that they name.
    async fn requests(stream: &mut TcpStream) -> i64 {
        let connect = read_frame(stream).await.unwrap();
        assert_eq!(read_frame(stream).await.unwrap(), close());
        i64::from_be_bytes(connect[16..24].try_into().unwrap())
    }

    async fn answer(stream: &mut TcpStream, session_id: i64) {
        let reply = [&[0; 8][..], &session_id.to_be_bytes(), &[0; 20]].concat();
        stream.write_all(&frame(&reply).unwrap()).await.unwrap();
    }

    // Once, a server that had forgotten the session but still showed its nodes was believed.
    #[tokio::test]
    async fn end_whose_reply_was_lost_waits_for_the_nodes_to_be_deleted() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut ended = tokio::spawn(end(listener.local_addr().unwrap().port(), 7));

        let (mut first, _) = listener.accept().await.unwrap();
        assert_eq!(requests(&mut first).await, 7);
        drop(first);
        let (mut second, _) = listener.accept().await.unwrap();
        assert_eq!(requests(&mut second).await, 7);
        answer(&mut second, 0).await;
        let (mut third, _) = tokio::select! {
            ended = &mut ended => panic!("{ended:?} before the server has caught up"),
            accepted = listener.accept() => accepted.unwrap(),
        };
        assert_eq!(requests(&mut third).await, NEW_SESSION);
        answer(&mut third, 8).await;

        assert_eq!(ended.await.unwrap().unwrap(), Ended::Closed);
    }
}
