//! Faults of whole connections, not of single frames.

use std::io::ErrorKind;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::try_join_all;
use test_rig::{Cut, Direction, ZooKeeperServer};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};
use zookeeper_client::{Acls, CreateMode, SessionState};

use super::{CONNECTED_BYTES, Outcome, PATIENCE, Stage, client, greeted, read_out};

#[tokio::test]
async fn refused_connections_are_taken_again_on_the_same_port() -> Outcome {
    let stage = Stage::set().await?;
    let mut states = stage.client.state_watcher();
    stage.proxy.refuse_connections().await;
    let refused = TcpStream::connect(stage.proxy.connect_string()).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
    // Existing connections stay.
    stage.create("/a").await?;
    stage.proxy.cut_all(Cut::Reset);
    assert_eq!(
        timeout(PATIENCE, states.changed()).await?,
        SessionState::Disconnected
    );
    let connections = stage.proxy.connections();
    stage.proxy.accept_connections().await?;
    stage.proxy.accept_connections().await?;
    assert_eq!(
        timeout(PATIENCE, states.changed()).await?,
        SessionState::SyncConnected
    );
    assert_eq!(stage.proxy.connections(), connections + 1);
    stage.create("/b").await?;
    Ok(())
}

/// A process that is being started has all sockets of its parent until it runs its own program.
#[tokio::test]
async fn port_that_a_new_process_has_for_a_moment_is_waited_for() -> Outcome {
    let stage = Stage::set().await?;
    stage.proxy.refuse_connections().await;
    let held = TcpListener::bind(stage.proxy.connect_string()).await?;
    let mut accepted = std::pin::pin!(stage.proxy.accept_connections());
    assert!(accepted.as_mut().now_or_never().is_none());
    drop(held);
    timeout(PATIENCE, accepted).await??;
    client(&stage.proxy.connect_string()).await?;
    Ok(())
}

#[tokio::test]
async fn retargeted_proxy_leads_new_connections_elsewhere() -> Outcome {
    let stage = Stage::set().await?;
    stage.create("/only-here").await?;
    let other = ZooKeeperServer::start().await?;
    stage.proxy.retarget(&other.connect_string());
    assert!(stage.client.check_stat("/only-here").await?.is_some());
    let elsewhere = client(&stage.proxy.connect_string()).await?;
    assert!(elsewhere.check_stat("/only-here").await?.is_none());
    // The other server does not know the session.
    let mut states = stage.client.state_watcher();
    stage.proxy.cut_all(Cut::Fin);
    let expired = async { while states.changed().await != SessionState::Expired {} };
    timeout(PATIENCE, expired).await?;
    assert!(stage.server.four_letter("ruok").await.is_ok());
    Ok(())
}

#[tokio::test]
async fn server_that_is_down_resets_the_client() -> Outcome {
    let stage = Stage::set().await?;
    stage.server.kill().await?;
    let mut stream = TcpStream::connect(stage.proxy.connect_string()).await?;
    assert_eq!(read_out(&mut stream).await?, (0, true));
    Ok(())
}

#[tokio::test]
async fn partition_swallows_everything_until_it_is_over() -> Outcome {
    let stage = Stage::set().await?;
    let mut states = stage.client.state_watcher();
    stage.proxy.black_hole(Direction::ToServer);
    stage.proxy.black_hole(Direction::FromServer);
    assert!(stage.create("/a").await.is_err());
    assert_eq!(
        timeout(PATIENCE, states.changed()).await?,
        SessionState::Disconnected
    );
    // Connections are accepted, but get no answer.
    let mut stream = greeted(&stage.proxy).await?;
    assert!(!stage.has("/a").await?);
    stage.proxy.restore();
    // This one has lost its first frame.
    assert_eq!(read_out(&mut stream).await?, (0, true));
    assert_eq!(
        timeout(PATIENCE, states.changed()).await?,
        SessionState::SyncConnected
    );
    stage.create("/a").await?;
    Ok(())
}

#[tokio::test]
async fn stalled_bytes_arrive_when_the_stall_is_over() -> Outcome {
    let stage = Stage::set().await?;
    stage.proxy.stall(Direction::ToServer);
    let mut create = Box::pin(stage.create("/a"));
    assert!(create.as_mut().now_or_never().is_none());
    // A round trip of another connection takes longer than the create would have taken.
    assert!(!stage.has("/a").await?);
    stage.proxy.restore();
    create.await?;
    assert_eq!(stage.proxy.connections(), 1);
    Ok(())
}

#[tokio::test]
async fn latency_delays_every_frame_and_keeps_many_under_way() -> Outcome {
    const EACH_WAY: Duration = Duration::from_millis(40);
    const REQUESTS: usize = 1_000;
    let stage = Stage::set().await?;
    stage.proxy.set_latency(EACH_WAY);
    let sent = Instant::now();
    stage.create("/a").await?;
    assert!(sent.elapsed() >= 2 * EACH_WAY);

    let sent = Instant::now();
    let sequential = CreateMode::PersistentSequential.with_acls(Acls::anyone_all());
    let creates = (0..REQUESTS).map(|_| stage.client.create("/a/n", b"", &sequential));
    let creates = creates.collect::<Vec<_>>();
    let created = timeout(PATIENCE, try_join_all(creates)).await??;
    assert!(sent.elapsed() >= 2 * EACH_WAY);
    // One after the other, they would take eighty seconds.
    assert!(sent.elapsed() < EACH_WAY * 1_000, "{:?}", sent.elapsed());
    let order: Vec<_> = created.iter().map(|(_, it)| it.into_i64()).collect();
    assert!(order.is_sorted(), "{order:?}");
    Ok(())
}

#[tokio::test]
async fn drop_closes_all_connections() -> Outcome {
    let stage = Stage::set().await?;
    let mut stream = greeted(&stage.proxy).await?;
    let mut connected = [0; CONNECTED_BYTES];
    timeout(PATIENCE, stream.read_exact(&mut connected)).await??;
    let address = stage.proxy.connect_string();
    drop(stage.proxy);
    assert_eq!(read_out(&mut stream).await?.0, 0);
    // The port is closed with the proxy, or a moment later.
    let closed = async { while TcpStream::connect(&address).await.is_ok() {} };
    timeout(PATIENCE, closed).await?;
    Ok(())
}
