//! Browsers that stay silent, and too many browsers.

use futures::future::join_all;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Served, connect, start};
use crate::lockctl::PATIENCE;

const CONNECTIONS_MAX: usize = 128;

async fn sent(address: &str, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// The code of the answer, if there is one.
async fn code(stream: &mut TcpStream) -> String {
    let mut head = [0; 12];
    let read = timeout(PATIENCE, stream.read_exact(&mut head)).await;
    match read.expect("no answer") {
        Ok(_) => String::from_utf8_lossy(&head[9..]).into_owned(),
        Err(error) => error.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_that_is_not_finished_and_none_at_all_are_not_waited_for() {
    let ensemble = start().await;
    let served = Served::start(&connect(&ensemble), &[]).await;
    let whole = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", served.address);
    let requests = ["", "GET / HTTP/1.1\r\nHost: loc", &whole];
    let ended = requests.map(async |request| {
        let mut stream = sent(&served.address, request).await;
        let mut answer = Vec::new();
        let read = timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        read.expect("still open").unwrap();
        let is_answered = answer.starts_with(b"HTTP/1.1 200");
        assert_eq!(is_answered, request == whole, "{request}");
    });
    join_all(ended).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn browser_that_reads_nothing_any_more_is_let_go() {
    let ensemble = start().await;
    let served = Served::start(&connect(&ensemble), &[]).await;
    let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", served.address);
    let mut stream = TcpStream::connect(&served.address).await.unwrap();
    // First the answers fill all buffers between the two, and then the requests do too.
    let ended = async { while stream.write_all(request.as_bytes()).await.is_ok() {} };
    timeout(PATIENCE, ended).await.expect("still open");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_when_all_places_are_taken_is_told_and_finds_one_later() {
    let ensemble = start().await;
    let served = Served::start(&connect(&ensemble), &[]).await;
    let request = format!("GET /events HTTP/1.1\r\nHost: {}\r\n\r\n", served.address);
    let mut viewers = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        let mut viewer = sent(&served.address, &request).await;
        assert_eq!(code(&mut viewer).await, "200");
        viewers.push(viewer);
    }
    let mut late = TcpStream::connect(&served.address).await.unwrap();
    assert_eq!(code(&mut late).await, "503");
    drop(viewers.pop());
    let found = async || {
        let mut again = sent(&served.address, &request).await;
        (code(&mut again).await == "200").then_some(())
    };
    ensemble.until("a place", found).await;
}
