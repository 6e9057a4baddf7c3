//! What a user can do who may only read.

use lock_recipes::{InterProcessMutex, MutexGuard, SessionOptions, connect_with, inspect, scan};

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
