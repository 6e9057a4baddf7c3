//! Requests that are made while the holder has no connection.

use super::*;

#[tokio::test(start_paused = true)]
async fn request_from_while_the_connection_was_down_is_told_when_it_is_back() {
    for is_watched in [false, true] {
        let memory = MemoryEnsemble::new();
        let session = memory.session();
        let held = mutex(&session).acquire().await.unwrap();
        if is_watched {
            TestEnsemble::Memory(memory.clone()).await_watches(1).await;
        }
        let id = session.session_id().unwrap();
        memory.disconnect(id);
        memory.set_data(&node(&held), REQUEST).unwrap();
        let mut requested = pin!(held.revocation_requested());
        let early = timeout(Duration::from_secs(5), requested.as_mut()).await;
        assert!(early.is_err() && matches!(held.state(), GuardState::Suspended { .. }));
        memory.reconnect(id);
        timeout(PATIENCE, requested).await.unwrap();
        assert_eq!(held.state(), GuardState::Held);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn request_from_while_the_connection_was_down_is_told_when_it_is_back_on_a_real_server() {
    let ensemble = test_rig::own::on_a_real_server().await;
    let TestEnsemble::Real(server) = &ensemble else {
        panic!("not a server")
    };
    let proxy = FaultProxy::start(&server.connect_string()).await.unwrap();
    let options = ZooKeeper::builder().session_timeout(Duration::from_secs(40));
    let session = options.connect(&proxy.connect_string()).await.unwrap();
    let held = mutex(&session).acquire().await.unwrap();
    ensemble.await_watches(1).await;
    proxy.refuse_connections().await;
    proxy.cut_all(Cut::Reset);
    let is_suspended = || matches!(held.state(), GuardState::Suspended { .. });
    let suspended = async || is_suspended().then_some(());
    ensemble.until("suspended", suspended).await;
    ensemble.set(&node(&held), REQUEST).await;
    let mut requested = pin!(held.revocation_requested());
    assert!(poll!(requested.as_mut()).is_pending());
    proxy.accept_connections().await.unwrap();
    timeout(PATIENCE, requested).await.unwrap();
    held.release().await.unwrap();
}
