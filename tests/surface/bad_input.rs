//! Input that is refused before any request is sent.

use std::error::Error;
use std::time::Duration;

use lock_recipes::{
    ConfigError, ConnectError, InterProcessMutex, LockFactory, LockOptions, Session, ZooKeeper,
};
use recipes_testing::{TestEnsemble, on_every_ensemble};

const BAD_PATHS: [&str; 17] = [
    "",
    "locks",
    "locks/orders",
    "/",
    "/locks/",
    "//",
    "/locks//orders",
    "/.",
    "/..",
    "/locks/./orders",
    "/locks/../orders",
    "/locks/\0",
    "/locks/a\nb",
    "/locks/\u{1f}",
    "/locks/\u{7f}",
    "/zookeeper",
    "/zookeeper/quota",
];

on_every_ensemble!(
    bad_paths_are_refused_by_name_and_nothing_is_sent,
    options_that_differ_from_the_live_ones_are_refused
);

async fn bad_paths_are_refused_by_name_and_nothing_is_sent(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    mutex_round(&session).await;
    let before = ensemble.zxid().await;
    for path in BAD_PATHS {
        let mutex = InterProcessMutex::new(&session, path).map(drop);
        let factory = LockFactory::new(&session, path).map(drop);
        for refused in [mutex, factory] {
            let refused = refused.unwrap_err();
            let ConfigError::InvalidPath {
                path: named,
                reason,
            } = &refused
            else {
                panic!("{refused}")
            };
            assert_eq!(named, path);
            let text = refused.to_string();
            assert!(
                text.contains(reason) && text.contains(&format!("{path:?}")),
                "{text}"
            );
        }
    }
    assert_eq!(ensemble.zxid().await, before);
    if let TestEnsemble::Memory(ensemble) = &ensemble {
        ensemble.reset_requests();
        drop(InterProcessMutex::new(&session, "/zookeeper").unwrap_err());
        drop(InterProcessMutex::new(&session, "/good").unwrap());
        assert_eq!(ensemble.requests(), []);
    }
}

async fn options_that_differ_from_the_live_ones_are_refused(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let options = LockOptions::new().identity(*b"one").unwrap();
    let first = InterProcessMutex::with_options(&session, "/locks/a", &options).unwrap();
    let same = InterProcessMutex::with_options(&session, "/locks/a", &options).unwrap();
    let refused = InterProcessMutex::new(&session, "/locks/a").unwrap_err();
    assert!(matches!(&refused, ConfigError::OptionsDiffer { path, .. } if path == "/locks/a"));
    // A guard keeps them alive, too.
    let held = first.acquire().await.unwrap();
    drop((first, same));
    assert!(InterProcessMutex::new(&session, "/locks/a").is_err());
    held.release().await.unwrap();
    assert!(InterProcessMutex::new(&session, "/locks/a").is_ok());
}

async fn mutex_round(session: &Session) {
    let mutex = InterProcessMutex::new(session, "/locks/orders").unwrap();
    mutex.acquire().await.unwrap().release().await.unwrap();
}

#[test]
fn identities_that_no_server_takes_are_refused() {
    let refused = LockOptions::new().identity(vec![0; 1_000_001]).unwrap_err();
    assert!(
        matches!(
            refused,
            ConfigError::IdentityTooLarge {
                bytes: 1_000_001,
                ..
            }
        ),
        "{refused}"
    );
    assert!(refused.to_string().contains("1000001"), "{refused}");
    let refused = LockOptions::new().identity(*b"__REVOKE__").unwrap_err();
    assert!(
        matches!(refused, ConfigError::IdentityReserved),
        "{refused}"
    );
    assert!(LockOptions::new().identity(vec![0; 1_000_000]).is_ok());
}

#[tokio::test]
async fn bad_session_options_are_refused_before_a_connection_is_made() {
    // No server listens there, and a refusal from the network would show that.
    let nowhere = "127.0.0.1:1";
    let refused = ZooKeeper::builder()
        .identity(vec![0; 2_000_000])
        .connect(nowhere)
        .await;
    assert!(matches!(
        refused,
        Err(ConnectError::Config(ConfigError::IdentityTooLarge { .. }))
    ));
    // The client would request the 32 bits of it that fit: zero, or a negative number.
    let longest = Duration::from_millis(0x7fff_ffff);
    for timeout in [longest + Duration::from_nanos(1), Duration::MAX] {
        let refused = ZooKeeper::builder().session_timeout(timeout);
        let refused = refused.connect(nowhere).await.unwrap_err();
        let ConnectError::Config(flaw) = &refused else {
            panic!("{refused}")
        };
        let is_it = matches!(flaw, ConfigError::SessionTimeoutTooLong { timeout: it, .. } if *it == timeout);
        assert!(is_it, "{flaw}");
        assert!(flaw.to_string().contains(&format!("{longest:?}")), "{flaw}");
    }
    let longest = ZooKeeper::builder().session_timeout(longest);
    let silent = longest.connect_timeout(Duration::from_millis(100));
    let refused = silent.connect(nowhere).await.unwrap_err();
    assert!(
        matches!(refused, ConnectError::TimedOut { .. }),
        "{refused}"
    );
    let refused = ZooKeeper::builder()
        .connect("host:port:what")
        .await
        .unwrap_err();
    assert!(matches!(refused, ConnectError::Refused { .. }), "{refused}");
    assert!(refused.to_string().contains("host:port:what"), "{refused}");
    assert!(refused.source().is_some());
}

#[tokio::test]
async fn an_ensemble_that_does_not_answer_is_named() {
    let patience = Duration::from_millis(300);
    let refused = ZooKeeper::builder()
        .connect_timeout(patience)
        .connect("127.0.0.1:1")
        .await;
    let refused = refused.unwrap_err();
    assert!(
        matches!(refused, ConnectError::TimedOut { .. }),
        "{refused}"
    );
    assert!(refused.to_string().contains("127.0.0.1:1"), "{refused}");
}
