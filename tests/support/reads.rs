//! What a user can do who may only read.

use std::time::Duration;

use lock_recipes::{InterProcessMutex, MutexGuard, SessionOptions, connect_with, inspect, scan};

/// Is told that the holder is silent, which `silence` makes it look like until it is heard again.
pub(crate) async fn assert_shows_silence(url: &str, held: &MutexGuard, silence: impl AsyncFn()) {
    for _ in 0..1_000 {
        silence().await;
        if silent_for(url, held).await.is_some() {
            return;
        }
    }
    panic!("nobody is silent");
}

/// Is not told so, and sees the rest.
pub(crate) async fn assert_shows_no_silence(url: &str, held: &MutexGuard, silence: impl AsyncFn()) {
    silence().await;
    assert_eq!(silent_for(url, held).await, None);
}

async fn silent_for(url: &str, held: &MutexGuard) -> Option<Duration> {
    let reads = SessionOptions::new().read_only(true);
    let session = connect_with(url, reads).await.unwrap();
    let lock = inspect(&session, held.path()).await.unwrap();
    // The connection has outlived a refusal.
    let again = inspect(&session, held.path()).await.unwrap();
    assert_eq!(again.contenders.len(), 1);
    session.close().await;
    lock.contenders[0].silent_for
}

/// Sees who holds a lock, and cannot take it.
pub(crate) async fn assert_reads(url: &str, held: &MutexGuard) {
    let reads = SessionOptions::new().read_only(true);
    let session = connect_with(url, reads).await.unwrap();
    let path = held.path();
    let seen = scan(&session, "/").await.unwrap();
    assert!(seen.locks.iter().any(|lock| lock.path == path), "{seen:?}");
    let lock = inspect(&session, path).await.unwrap();
    let [holder] = &lock.contenders[..] else {
        panic!("{lock:?}");
    };
    assert_eq!(holder.participant.path, held.members()[0].node_path);
    let ours = InterProcessMutex::new(&session, path).unwrap();
    let refused = ours.acquire().await.unwrap_err().to_string();
    assert!(refused.contains("only reads"), "{refused}");
    let refused = holder.participant.revoke(&session).await.unwrap_err();
    assert!(refused.to_string().contains("refused"), "{refused}");
    session.close().await;
}
