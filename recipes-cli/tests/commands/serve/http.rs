//! The part of HTTP that the tests need: 1.0, so that bodies end with their connections.

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::lockctl::PATIENCE;

async fn send(address: &str, request: &str, host: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{request} HTTP/1.0\r\nHost: {host}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// The answer, with its headers.
pub(crate) async fn answer(address: &str, request: &str, host: &str) -> String {
    let mut answer = String::new();
    let mut stream = send(address, request, host).await;
    let read = timeout(PATIENCE, stream.read_to_string(&mut answer)).await;
    read.expect("the answer does not end").unwrap();
    answer
}

pub(crate) struct Events(BufReader<TcpStream>);

impl Events {
    pub(crate) async fn of(address: &str) -> Self {
        Self(BufReader::new(send(address, "GET /events", address).await))
    }

    /// The next event; `None` when the connection has ended.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        let (mut line, mut is_beat) = (String::new(), false);
        loop {
            line.clear();
            let read = timeout(PATIENCE, self.0.read_line(&mut line)).await;
            if read.expect("no event").unwrap_or(0) == 0 {
                return None;
            }
            // A beat says only that the connection is alive.
            is_beat |= line.starts_with("event: beat");
            if let Some(data) = line.strip_prefix("data: ") {
                if std::mem::take(&mut is_beat) {
                    continue;
                }
                return Some(serde_json::from_str(data).unwrap());
            }
        }
    }

    /// The next event of this kind.
    pub(crate) async fn until(&mut self, is_it: impl Fn(&Value) -> bool) -> Value {
        let search = async {
            loop {
                let event = self.next().await.expect("the connection has ended");
                if is_it(&event) {
                    return event;
                }
            }
        };
        timeout(PATIENCE, search).await.expect("not told")
    }
}
