//! The connections of browsers to the live page. Each has bounds, so that no browser keeps others
//! out by sending or reading nothing.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Sleep, sleep};

/// Connections at a time. A browser tab has one, and another while it loads.
const CONNECTIONS_MAX: usize = 128;
/// How long the head of a request may take, and how long a connection may stay without one.
const HEAD_MAX: Duration = Duration::from_secs(10);
/// How long sent data may stay unread. A browser that was only slow reconnects.
const UNREAD_MAX: Duration = Duration::from_secs(10);
/// The pause after an error that is not of one connection, such as no free descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\
    connection: close\r\n\r\n";

/// Serves until the future is dropped.
pub(crate) async fn serve(listener: TcpListener, router: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) if is_of_one(&error) => continue,
            Err(_) => {
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        match Arc::clone(&places).try_acquire_owned() {
            Ok(place) => drop(tokio::spawn(serve_one(stream, router.clone(), place))),
            // As much as fits is sent, and then the connection is closed.
            Err(_) => drop(stream.into_std().map(|it| io::Write::write(&mut &it, FULL))),
        }
    }
}

fn is_of_one(error: &io::Error) -> bool {
    use ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}

async fn serve_one(stream: TcpStream, router: Router, _place: OwnedSemaphorePermit) {
    let stream = TokioIo::new(Bounded {
        stream,
        unread: None,
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_MAX)
        .serve_connection(stream, TowerToHyperService::new(router));
    // Whatever has ended the connection, the browser is gone.
    drop(connection.await);
}

/// A connection that ends if nothing can be written for a while.
struct Bounded {
    stream: TcpStream,
    /// When it has been too long since anything could be written.
    unread: Option<Pin<Box<Sleep>>>,
}

impl AsyncRead for Bounded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Bounded {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(written) = Pin::new(&mut self.stream).poll_write(cx, bytes) {
            self.unread = None;
            return Poll::Ready(written);
        }
        let unread = self
            .unread
            .get_or_insert_with(|| Box::pin(sleep(UNREAD_MAX)));
        let too_long = || io::Error::from(ErrorKind::TimedOut);
        unread.as_mut().poll(cx).map(|()| Err(too_long()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
