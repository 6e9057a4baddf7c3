//! What is refused before any request is sent.

use lock_recipes::{
    ConfigError, ElectionLayout, Error, LeaderElection, LeaderLatch, LockOptions, Session,
};
use lock_recipes::{InterProcessMutex, LockFactory};
use test_rig::MemoryEnsemble;

use crate::PATH;

/// The same input to everything that takes it.
fn refused(session: &Session, path: &str, id: &str) -> [Error; 3] {
    [
        LeaderElection::new(session, path, id)
            .map(drop)
            .unwrap_err(),
        LeaderElection::with_layout(session, path, id, ElectionLayout::LeaderLatch)
            .map(drop)
            .unwrap_err(),
        LeaderLatch::start(session, path, id).map(drop).unwrap_err(),
    ]
}

#[tokio::test(start_paused = true)]
async fn bad_paths_and_ids_are_refused_before_anything_is_sent() {
    let memory = MemoryEnsemble::new();
    let session = memory.session();
    for path in [
        "",
        "/",
        "elections",
        "/elections/",
        "/a//b",
        "/a/../b",
        "/zookeeper/a",
        "/\0",
    ] {
        for refusal in refused(&session, path, "host") {
            assert!(
                matches!(refusal, Error::Config(ConfigError::InvalidPath { .. })),
                "{path:?}: {refusal}"
            );
        }
    }
    for refusal in refused(&session, PATH, "") {
        assert!(
            matches!(refusal, Error::Config(ConfigError::EmptyId)),
            "{refusal}"
        );
        assert_eq!(refusal.to_string(), "the id of a candidate is empty");
    }
    for refusal in refused(&session, PATH, &"x".repeat(1 << 20)) {
        let bytes = 1 << 20;
        assert!(
            matches!(refusal, Error::Config(ConfigError::IdentityTooLarge { bytes: it, .. }) if it == bytes),
            "{refusal}"
        );
    }
    for refusal in refused(&session, PATH, "__REVOKE__") {
        assert!(
            matches!(refusal, Error::Config(ConfigError::IdentityReserved)),
            "{refusal}"
        );
    }
    let factory = LockFactory::new(&session, "/factory").unwrap();
    assert!(matches!(
        factory.election("key", "").unwrap_err(),
        Error::Config(ConfigError::EmptyId)
    ));
    drop(LeaderElection::new(&session, PATH, &"x".repeat(1_000_000)).unwrap());
    tokio::task::yield_now().await;
    assert_eq!(memory.requests(), []);
}

#[tokio::test(start_paused = true)]
async fn other_nodes_and_other_options_on_the_path_are_refused() {
    let session = MemoryEnsemble::new().session();
    let selector = LeaderElection::new(&session, PATH, "a").unwrap();
    let latch = LeaderLatch::start(&session, PATH, "a").unwrap_err();
    assert!(
        matches!(latch, Error::Config(ConfigError::RecipeDiffers { .. })),
        "{latch}"
    );
    drop(selector);
    // A shared node would have the id of one of its candidates.
    let options = LockOptions::new().local_handoffs(3);
    let mutex = InterProcessMutex::with_options(&session, PATH, &options).unwrap();
    let differs = LeaderElection::new(&session, PATH, "a").unwrap_err();
    assert!(
        matches!(differs, Error::Config(ConfigError::OptionsDiffer { .. })),
        "{differs}"
    );
    drop(mutex);
    LeaderLatch::start(&session, PATH, "a")
        .unwrap()
        .stop()
        .await
        .unwrap();
}
