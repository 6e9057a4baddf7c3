//! The four-letter words, by which a server reports about itself.

use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// A server answers at once unless it is paused or dead, or the machine is busy.
pub(super) const REPLY_MAX: Duration = Duration::from_secs(30);
/// The longest replies list one line for each watch or connection.
const REPLY_BYTES_MAX: u64 = 64 << 20;

/// Why there is no reply.
#[derive(Debug)]
pub(super) enum Silence {
    Io(std::io::Error),
    TimedOut,
}

/// Sends the word on a connection of its own, because the server closes it after the reply.
pub(super) async fn ask(port: u16, command: &str) -> Result<String, Silence> {
    let exchange = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.write_all(command.as_bytes()).await?;
        let mut reply = Vec::new();
        stream.take(REPLY_BYTES_MAX).read_to_end(&mut reply).await?;
        Ok(String::from_utf8_lossy(&reply).into_owned())
    };
    match timeout(REPLY_MAX, exchange).await {
        Ok(reply) => reply.map_err(Silence::Io),
        Err(_) => Err(Silence::TimedOut),
    }
}

/// The role of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Standalone,
    Leader,
    Follower,
}

/// Reads the role from a reply to `srvr`. `None` while the server is not serving.
pub(super) fn mode(srvr: &str) -> Option<Mode> {
    match field(srvr, "Mode: ")? {
        "standalone" => Some(Mode::Standalone),
        "leader" => Some(Mode::Leader),
        "follower" => Some(Mode::Follower),
        _ => None,
    }
}

/// Reads the last transaction from a reply to `srvr`.
pub(super) fn zxid(srvr: &str) -> Option<i64> {
    i64::from_str_radix(field(srvr, "Zxid: 0x")?, 16).ok()
}

/// Reads the number of watches from a reply to `wchs`.
pub(super) fn watch_count(wchs: &str) -> Option<usize> {
    field(wchs, "Total watches:")?.parse().ok()
}

/// Whether a reply to `cons` lists a connection of the session.
pub(super) fn is_connected(cons: &str, session_id: i64) -> bool {
    let session = format!("sid=0x{session_id:x}");
    cons.split(['(', ')', ',']).any(|field| field == session)
}

fn field<'a>(reply: &'a str, name: &str) -> Option<&'a str> {
    reply
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::{Mode, is_connected, mode, watch_count, zxid};

    #[test]
    fn replies_are_read() {
        let srvr = "Zookeeper version: 3.8.0\nZxid: 0x10000000a\nMode: follower\nNode count: 5\n";
        assert_eq!(mode(srvr), Some(Mode::Follower));
        assert_eq!(zxid(srvr), Some(0x1_0000_000a));
        let wchs = "1 connections watching 2 paths\nTotal watches:3\n";
        assert_eq!(watch_count(wchs), Some(3));
    }

    #[test]
    fn server_that_does_not_serve_has_no_mode() {
        assert_eq!(
            mode("This ZooKeeper instance is not currently serving requests\n"),
            None
        );
    }

    #[test]
    fn session_is_found_by_its_whole_number() {
        let cons = " /127.0.0.1:5[1](queued=0,recved=4,sent=4,sid=0x1000ab,lop=PING,est=1)\n";
        assert!(is_connected(cons, 0x1000ab));
        assert!(!is_connected(cons, 0x1000a));
    }
}
