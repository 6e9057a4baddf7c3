//! What the log says of a loss: a warning, unless the service itself closes its session.

use lock_recipes::{InterProcessMutex, LostReason, Member, MultiLock, ReleaseError, Session};
use recipes_testing::MemoryEnsemble;

use crate::log::Log;

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, "/locks/orders").unwrap()
}

/// What is logged on this thread as a warning or an error.
async fn warnings(work: impl Future<Output = ()>) -> Vec<String> {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone());
    let logging = tracing::subscriber::set_default(subscriber.with_ansi(false).finish());
    work.await;
    drop(logging);
    let text = log.text();
    let is_bad = |line: &&str| line.contains("WARN") || line.contains("ERROR");
    text.lines().filter(is_bad).map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn session_that_its_service_closes_warns_of_nothing() {
    let told = warnings(async {
        let session = MemoryEnsemble::new().session();
        let set = ["/locks/a", "/locks/b"].map(Member::mutex);
        let set = MultiLock::new(&session, set).unwrap();
        let (held, both) = (mutex(&session).acquire().await, set.acquire().await);
        let (held, both) = (held.unwrap(), both.unwrap());
        session.close().await;
        assert_eq!(held.lost().await.reason, LostReason::SessionClosed);
        assert!(!both.is_valid());
        assert!(matches!(held.release().await, Err(ReleaseError::Lost(_))));
    });
    assert_eq!(told.await, [] as [&str; 0]);
}

#[tokio::test(start_paused = true)]
async fn loss_that_nobody_asked_for_is_a_warning() {
    let told = warnings(async {
        let ensemble = MemoryEnsemble::new();
        let session = ensemble.session();
        let held = mutex(&session).acquire().await.unwrap();
        assert!(ensemble.expire(session.session_id().unwrap()));
        held.lost().await;
        session.close().await;
    });
    let told = told.await;
    let losses = told.iter().filter(|it| it.contains("lock lost"));
    assert_eq!(losses.count(), 1, "{told:?}");
}
