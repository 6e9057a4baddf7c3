//! The Curator peer itself, as far as it works without a server.

use std::time::Duration;

use test_rig::{CuratorPeer, PeerError};

#[tokio::test]
async fn refusal_names_the_java_exception() {
    let peer = CuratorPeer::start().await.unwrap();
    assert!(
        peer.curator_version()
            .starts_with(|first: char| first.is_ascii_digit())
    );
    let error = peer.mutex("m", "nobody", "/locks/a").await.unwrap_err();
    assert_eq!(error.class(), Some("IllegalArgumentException"));
    let shown = error.to_string();
    assert!(
        shown.ends_with("IllegalArgumentException: unknown client: nobody"),
        "{shown}"
    );
    peer.exit().await.unwrap();
}

#[tokio::test]
async fn waits_of_one_peer_run_side_by_side() {
    let peer = CuratorPeer::start().await.unwrap();
    let long = Duration::from_secs(600);
    let (waited, answered) = tokio::select! {
        biased;
        waited = peer.revocation_requested("m", long) => (Some(waited), None),
        answered = peer.revocation_requested("m", Duration::ZERO) => (None, Some(answered)),
    };
    assert!(waited.is_none(), "{waited:?}");
    assert!(!answered.unwrap().unwrap());
    // The wait that was dropped goes on in the JVM. It must not keep the JVM from ending.
    peer.exit().await.unwrap();
}

#[tokio::test]
async fn end_of_the_jvm_ends_every_wait() {
    let peer = CuratorPeer::start().await.unwrap();
    let process_id = peer.process_id().unwrap().to_string();
    let long = Duration::from_secs(600);
    let killed = async {
        let status = tokio::process::Command::new("kill")
            .args(["-9", &process_id])
            .status()
            .await;
        assert!(status.unwrap().success());
    };
    let (waited, ()) = tokio::join!(peer.revocation_requested("m", long), killed);
    assert!(
        matches!(waited, Err(PeerError::Exited { .. })),
        "{waited:?}"
    );
    let later = peer.held("m").await;
    assert!(matches!(later, Err(PeerError::Exited { .. })), "{later:?}");
}
