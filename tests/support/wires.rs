//! A proxy that can hold back what was sent, as a network does that has lost packets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) struct Wires {
    port: u16,
    /// What the first connection's client has sent arrives only when this is false.
    hold: watch::Sender<bool>,
    /// All connections are cut, and new ones refused.
    down: watch::Sender<bool>,
    pub(crate) count: Arc<AtomicUsize>,
}

impl Wires {
    /// `upstream`: the port for a connection with this number, from 1.
    pub(crate) async fn to(upstream: impl Fn(usize) -> u16 + Send + 'static) -> Self {
        Self::slow(upstream, Duration::ZERO).await
    }

    pub(crate) async fn slow(
        upstream: impl Fn(usize) -> u16 + Send + 'static,
        delay: Duration,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (hold, held) = watch::channel(false);
        let (down, is_down) = watch::channel(false);
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                if *is_down.borrow() {
                    continue;
                }
                let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
                let Ok(server) = TcpStream::connect(("127.0.0.1", upstream(number))).await else {
                    continue;
                };
                client.set_nodelay(true).unwrap();
                server.set_nodelay(true).unwrap();
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = server.into_split();
                let (mut held, mut cut) = (held.clone(), is_down.clone());
                let up = async move {
                    let mut buffer = vec![0; 65536];
                    while let Ok(length) = from_client.read(&mut buffer).await {
                        if length == 0 {
                            break;
                        }
                        tokio::time::sleep(delay).await;
                        if number == 1 {
                            held.wait_for(|held| !held).await.unwrap();
                        }
                        if to_server.write_all(&buffer[..length]).await.is_err() {
                            break;
                        }
                    }
                };
                let down = async move {
                    let mut buffer = vec![0; 65536];
                    while let Ok(length) = from_server.read(&mut buffer).await {
                        if length == 0 || to_client.write_all(&buffer[..length]).await.is_err() {
                            break;
                        }
                    }
                };
                let mut cut_too = cut.clone();
                tokio::spawn(async move {
                    tokio::select! { () = up => {}, _ = cut.wait_for(|it| *it) => {} }
                });
                tokio::spawn(async move {
                    tokio::select! { () = down => {}, _ = cut_too.wait_for(|it| *it) => {} }
                });
            }
        });
        Self {
            port,
            hold,
            down,
            count,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn hold(&self, is_held: bool) {
        self.hold.send_replace(is_held);
    }

    pub(crate) fn down(&self, is_down: bool) {
        self.down.send_replace(is_down);
    }
}
