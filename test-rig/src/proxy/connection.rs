//! One connection: from its acceptance to its cut.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures::future;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::debug;

use super::frame::Direction;
use super::lock;
use super::pump::Pump;
use super::rule::Cut;
use super::shared::Shared;

/// Clients and servers close a connection soon after the other end has.
const HANG_UP_MAX: Duration = Duration::from_secs(5);
/// Accepting fails when file descriptors run out. They may become free again.
const ACCEPT_AGAIN: Duration = Duration::from_millis(10);

/// The tasks of the connections; they end with it.
pub(super) type Connections = Mutex<JoinSet<()>>;

/// Takes connections until it is dropped.
pub(super) async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    connections: Weak<Connections>,
) {
    loop {
        let accepted = listener.accept().await;
        let Some(connections) = connections.upgrade() else {
            return;
        };
        match accepted {
            Ok((client, _)) => {
                let number = shared.connections.fetch_add(1, Ordering::Relaxed) + 1;
                // Before anything else happens to the connection, so that no cut is missed.
                let cuts = shared.cut.subscribe();
                let shared = Arc::clone(&shared);
                let mut connections = lock(&connections);
                while connections.try_join_next().is_some() {}
                connections.spawn(async move { serve(&shared, number, client, cuts).await });
            }
            Err(error) => {
                debug!(%error, "no connection accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

async fn serve(
    shared: &Shared,
    number: u64,
    mut client: TcpStream,
    mut cuts: watch::Receiver<Cut>,
) {
    let upstream = lock(&shared.upstream).clone();
    let Ok(mut server) = TcpStream::connect(&upstream).await else {
        debug!(upstream, "no server");
        return cut(Cut::Reset, [client]).await;
    };
    let ends = [&client, &server].map(|it| it.set_nodelay(true));
    debug!(number, upstream, ?ends, "connection");
    let conversation = Mutex::new(shared.protocol.conversation());
    let how = {
        let (client_read, client_write) = client.split();
        let (server_read, server_write) = server.split();
        let pump = |direction| Pump::new(shared, number, direction, &conversation);
        let requests = pump(Direction::ToServer).run(client_read, server_write);
        let replies = pump(Direction::FromServer).run(server_read, client_write);
        tokio::select! {
            biased;
            _ = cuts.changed() => Err(*cuts.borrow()),
            ended = future::try_join(requests, replies) => ended,
        }
    };
    if let Err(how) = how {
        debug!(number, ?how, "cut");
        cut(how, [client, server]).await;
    }
}

async fn cut<const N: usize>(how: Cut, ends: [TcpStream; N]) {
    match how {
        Cut::Reset => ends.into_iter().for_each(reset),
        Cut::Fin => {
            future::join_all(ends.map(hang_up)).await;
        }
    }
}

fn reset(stream: TcpStream) {
    // An error means that the connection has ended already.
    drop(stream.set_zero_linger());
    drop(stream);
}

/// Closes a connection so that everything written before arrives. Closing it with unread bytes
/// would reset it.
async fn hang_up(mut stream: TcpStream) {
    let read_to_the_end = async {
        stream.shutdown().await?;
        let mut unread = vec![0; 1 << 10];
        while stream.read(&mut unread).await? > 0 {}
        io::Result::Ok(())
    };
    drop(timeout(HANG_UP_MAX, read_to_the_end).await);
}
