//! Input that is refused before any request is sent.

use std::error::Error as StdError;
use std::time::Duration;

use lock_recipes::{
    ConfigError, ConnectError, Error, InterProcessMutex, LockFactory, LockOptions, Session,
    ZooKeeper,
};
use test_rig::{TestEnsemble, ZooKeeperServer, on_ensembles_of_their_own, on_every_ensemble};

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

on_every_ensemble!(options_that_differ_from_the_live_ones_are_refused);
on_ensembles_of_their_own!(bad_paths_are_refused_by_name_and_nothing_is_sent);

fn refuses(session: &Session, path: &str) {
    let mutex = InterProcessMutex::new(session, path).map(drop);
    let factory = LockFactory::new(session, path).map(drop);
    for refused in [mutex, factory] {
        let refused = refused.unwrap_err();
        let Error::Config(ConfigError::InvalidPath {
            path: named,
            reason,
        }) = &refused
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

async fn bad_paths_are_refused_by_name_and_nothing_is_sent(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    mutex_round(&session).await;
    if let TestEnsemble::Memory(ensemble) = &ensemble {
        ensemble.reset_requests();
    }
    let refused = async || {
        let before = ensemble.zxid().await;
        BAD_PATHS.iter().for_each(|path| refuses(&session, path));
        // On a slow machine a heartbeat, which is a transaction, may come in between.
        (ensemble.zxid().await == before).then_some(())
    };
    ensemble.until("refusals that send nothing", refused).await;
    if let TestEnsemble::Memory(ensemble) = &ensemble {
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
    assert!(
        matches!(&refused, Error::Config(ConfigError::OptionsDiffer { path, .. }) if path == "/locks/a")
    );
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
            Error::Config(ConfigError::IdentityTooLarge {
                bytes: 1_000_001,
                ..
            })
        ),
        "{refused}"
    );
    assert!(refused.to_string().contains("1000001"), "{refused}");
    let refused = LockOptions::new().identity(*b"__REVOKE__").unwrap_err();
    assert!(
        matches!(refused, Error::Config(ConfigError::IdentityReserved)),
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
        Err(Error::Config(ConfigError::IdentityTooLarge { .. }))
    ));
    // The client would request the 32 bits of it that fit: zero, or a negative number.
    let longest = Duration::from_millis(0x7fff_ffff);
    let short = Duration::from_millis(1);
    for timeout in [
        Duration::ZERO,
        short,
        longest + Duration::from_nanos(1),
        Duration::MAX,
    ] {
        let refused = ZooKeeper::builder().session_timeout(timeout);
        let refused = refused.connect(nowhere).await.unwrap_err();
        let Error::Config(flaw) = &refused else {
            panic!("{refused}")
        };
        let is_it =
            matches!(flaw, ConfigError::SessionTimeout { timeout: it, .. } if *it == timeout);
        assert!(is_it, "{flaw}");
        assert!(flaw.to_string().contains(&format!("{longest:?}")), "{flaw}");
    }
    let longest = ZooKeeper::builder().session_timeout(longest);
    let silent = longest.connect_timeout(Duration::from_millis(100));
    let refused = silent.connect(nowhere).await.unwrap_err();
    assert!(
        matches!(refused, Error::Connect(ConnectError::TimedOut { .. })),
        "{refused}"
    );
}

/// Each would otherwise be a time-out, after the client has looked for such a host.
#[tokio::test]
async fn connect_string_that_makes_no_sense_is_refused_and_nothing_is_sent() {
    for (address, reason) in [
        ("", "it is empty"),
        (
            "host:port:what",
            "\"host:port:what\" has more than one colon: IPv6 addresses stand in brackets",
        ),
        (
            "127.0.0.1:x",
            "\"127.0.0.1:x\" has a port that is no number from 1 to 65535",
        ),
        (
            "127.0.0.1:0",
            "\"127.0.0.1:0\" has a port that is no number from 1 to 65535",
        ),
        (":2181", "\":2181\" has no host"),
        ("127.0.0.1:1,,127.0.0.1:2", "a server is missing in it"),
        (
            "127.0.0.1:1, 127.0.0.1:2",
            "it has white space or control characters",
        ),
        (
            "127.0.0.1:1/app/",
            "its chroot \"/app/\" is no path: it ends with '/'",
        ),
        (
            "tcp+tls://127.0.0.1:1",
            "127.0.0.1:1 is to be reached over TLS, but TLS has no options",
        ),
    ] {
        let refused = lock_recipes::connect(address).await.unwrap_err();
        assert!(matches!(refused, Error::Config(_)), "{refused}");
        assert_eq!(
            refused.to_string(),
            format!("{address:?} is no address of a store: {reason}")
        );
    }
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
        matches!(refused, Error::Connect(ConnectError::TimedOut { .. })),
        "{refused}"
    );
    assert!(refused.to_string().contains("127.0.0.1:1"), "{refused}");
}

/// The text of an error and of its sources.
pub(crate) fn chain(error: &dyn StdError) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

#[tokio::test]
async fn time_out_of_a_connection_says_what_each_server_did() {
    let builder = || ZooKeeper::builder().connect_timeout(Duration::from_millis(300));
    let refused = builder().connect("127.0.0.1:1").await.unwrap_err();
    assert_eq!(
        chain(&refused),
        "no server of \"127.0.0.1:1\" answered within 300 ms: 127.0.0.1:1 refuses connections"
    );
    // No resolver knows this domain, see RFC 6761.
    let refused = builder().connect("host.invalid,127.0.0.1:1").await;
    let text = chain(&refused.unwrap_err());
    let start = "no server of \"host.invalid,127.0.0.1:1\" answered within 300 ms: \
                 host.invalid:2181 is not known by this name (";
    assert!(text.starts_with(start), "{text}");
    assert!(
        text.ends_with("), 127.0.0.1:1 refuses connections"),
        "{text}"
    );
}

#[tokio::test]
async fn missing_chroot_is_named_by_the_connect_error_on_a_real_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    let address = format!("{}/app/locks", server.connect_string());
    let refused = lock_recipes::connect(&address).await.unwrap_err();
    assert!(
        matches!(refused, Error::Connect(ConnectError::ChrootMissing { .. })),
        "{refused}"
    );
    assert_eq!(
        chain(&refused),
        format!("cannot connect to {address:?}: chroot /app/locks does not exist")
    );
}

/// The server says so, and the client does not try again.
#[tokio::test]
async fn credentials_that_the_server_does_not_take_are_refused_by_it_on_a_real_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    let address = server.connect_string();
    let builder = ZooKeeper::builder().auth("no-such-scheme", b"secret");
    let refused = builder.connect(&address).await.unwrap_err();
    assert!(
        matches!(refused, Error::Connect(ConnectError::Refused { .. })),
        "{refused}"
    );
    assert_eq!(
        chain(&refused),
        format!("cannot connect to {address:?}: refused by the server: authentication failed")
    );
}

/// The server closes the connection without a word.
#[tokio::test]
async fn host_that_has_too_many_connections_is_told_on_a_real_server() {
    let server = ZooKeeperServer::builder().config("maxClientCnxns", "1");
    let server = server.start().await.unwrap();
    let address = server.connect_string();
    let first = ZooKeeper::connect(&address).await.unwrap();
    let builder = ZooKeeper::builder().connect_timeout(Duration::from_secs(5));
    let refused = builder.connect(&address).await.unwrap_err();
    assert!(
        matches!(refused, Error::Connect(ConnectError::TimedOut { .. })),
        "{refused}"
    );
    assert!(chain(&refused).contains("(maxClientCnxns)"), "{refused}");
    first.close().await;
}
