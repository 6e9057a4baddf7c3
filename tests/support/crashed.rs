//! A holder that crashes.

use std::mem::forget;
use std::thread;
use std::time::Duration;

use lock_recipes::{InterProcessMutex, SessionOptions, connect_with};
use test_rig::TestEnsemble;
use tokio::runtime::Runtime;

/// The address of an ensemble, for any store.
pub(crate) fn address(ensemble: &TestEnsemble) -> String {
    match ensemble {
        TestEnsemble::Real(place) => format!("zk://{}", place.connect_string()),
        other => other.url(),
    }
}

/// Takes a lock, and ends as a process that is killed does: its connections break, and it says nothing.
pub(crate) async fn take_and_crash(url: &str, path: &'static str, session_timeout: Duration) {
    let url = url.to_owned();
    let crash = move || {
        let runtime = Runtime::new().unwrap();
        let held = runtime.block_on(async {
            let options = SessionOptions::new().session_timeout(session_timeout);
            let session = connect_with(&url, options).await.unwrap();
            let lock = InterProcessMutex::new(&session, path).unwrap();
            (lock.acquire().await.unwrap(), session)
        });
        // Dropped, they would begin to release and to close.
        forget(held);
        runtime.shutdown_background();
    };
    let crashed = tokio::task::spawn_blocking(|| thread::spawn(crash).join());
    crashed.await.unwrap().unwrap();
}
