//! A connection to the server that can be shut off.

use std::io;
use std::net::Ipv4Addr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// While it is shut, it accepts connections and forwards nothing. So a client that connects
/// meanwhile gets through at once when it opens.
#[derive(Debug)]
pub(crate) struct Gate {
    port: u16,
    open: watch::Sender<bool>,
    keeper: JoinHandle<()>,
}

impl Gate {
    pub(crate) async fn before(server: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let open = watch::Sender::new(true);
        let seen = open.subscribe();
        let keeper = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, server, seen.clone()));
            }
        });
        Ok(Self { port, open, keeper })
    }

    pub(crate) fn connect_string(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Breaks all connections.
    pub(crate) fn shut(&self) {
        self.open.send_replace(false);
    }

    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

async fn pass(mut client: TcpStream, server: u16, mut open: watch::Receiver<bool>) {
    if open.wait_for(|open| *open).await.is_err() {
        return;
    }
    let Ok(mut upstream) = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await else {
        return;
    };
    // Otherwise requests that are sent together would wait for the reply to the first.
    if upstream.set_nodelay(true).is_err() {
        return;
    }
    tokio::select! {
        // An error of either side also ends the other.
        _ = copy_bidirectional(&mut client, &mut upstream) => {}
        _ = open.wait_for(|open| !*open) => {}
    }
}
