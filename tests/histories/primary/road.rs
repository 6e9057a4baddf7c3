//! A port that stays the same, whatever server is behind it.

use std::io;
use std::net::Ipv4Addr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// Forwards connections to a server. When it leads elsewhere, they end.
pub(super) struct Road {
    port: u16,
    target: watch::Sender<Option<u16>>,
    accepting: AbortHandle,
}

impl Road {
    pub(super) async fn to(target: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let (sender, target) = watch::channel(Some(target));
        let accepting = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(carry(near, target.clone()));
            }
        });
        Ok(Self {
            port,
            target: sender,
            accepting: accepting.abort_handle(),
        })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn close(&self) {
        self.target.send_replace(None);
    }

    pub(super) fn open(&self, target: u16) {
        self.target.send_replace(Some(target));
    }
}

impl Drop for Road {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn carry(mut near: TcpStream, mut target: watch::Receiver<Option<u16>>) -> io::Result<()> {
    let Some(port) = *target.borrow_and_update() else {
        return Ok(());
    };
    let mut far = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    for end in [&near, &far] {
        end.set_nodelay(true)?;
    }
    tokio::select! {
        // An error means that the road leads nowhere any more.
        _ = target.changed() => Ok(()),
        carried = copy_bidirectional(&mut near, &mut far) => carried.map(drop),
    }
}
