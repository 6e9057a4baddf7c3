//! What an inspection may not read, and how it reports that.

use std::time::Duration;

use lock_recipes::{
    Acl, Acls, AuthId, ConfigError, Error, InterProcessMutex, LockKind, Permission, QueryError,
    Standing, WaitForGraph, ZooKeeper, inspect, scan,
};
use test_rig::{
    MemoryEnsemble, Operation, TestEnsemble, ZooKeeperServer, on_ensembles_of_their_own,
    on_every_ensemble,
};
use zookeeper_client::CreateMode;

const PATH: &str = "/locks/orders";

on_every_ensemble!(
    bad_paths_are_refused_before_anything_is_sent,
    session_that_is_closed_has_no_connection,
);
on_every_ensemble!(
    but_etcd:
    what_is_no_lock_is_told_apart_from_what_is_not_there,
);
on_ensembles_of_their_own!(ensemble_that_is_down_is_no_connection);

async fn bad_paths_are_refused_before_anything_is_sent(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    for bad in [
        "",
        "locks",
        "/locks/",
        "//",
        "/locks/../a",
        "/zookeeper",
        "/zookeeper/quota",
        "/a\0",
    ] {
        for refused in [
            inspect(&session, bad).await.map(drop),
            scan(&session, bad).await.map(drop),
        ] {
            let refused = refused.unwrap_err();
            assert!(is_invalid(&refused, bad), "{refused}");
            assert!(
                refused.to_string().contains(&format!("{bad:?}")),
                "{refused}"
            );
        }
    }
    // The parent of all locks is not itself a lock.
    let refused = inspect(&session, "/").await.unwrap_err();
    assert!(is_invalid(&refused, "/"), "{refused}");
    assert!(scan(&session, "/").await.unwrap().locks.is_empty());
    if let TestEnsemble::Memory(ensemble) = &ensemble {
        ensemble.reset_requests();
        drop(inspect(&session, "/locks/").await.unwrap_err());
        drop(scan(&session, "/locks/").await.unwrap_err());
        assert_eq!(ensemble.requests(), []);
    }
}

async fn what_is_no_lock_is_told_apart_from_what_is_not_there(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    // A number after something that ends like a marker, and a lock's name on a node that is not
    // ephemeral.
    ensemble.create("/data/block-0000000001", b"").await;
    ensemble.create("/data/sub/lock-0000000001", b"").await;
    for path in ["/data", "/data/sub", "/data/block-0000000001"] {
        let refused = inspect(&session, path).await.unwrap_err();
        assert!(
            matches!(&refused, Error::Query(QueryError::NotALock { path: named }) if named == path),
            "{refused}"
        );
    }
    for refused in [
        inspect(&session, "/nowhere").await.map(drop),
        scan(&session, "/nowhere").await.map(drop),
    ] {
        let refused = refused.unwrap_err();
        assert!(
            matches!(&refused, Error::Query(QueryError::NoSuchNode { path }) if path == "/nowhere"),
            "{refused}"
        );
    }
}

async fn session_that_is_closed_has_no_connection(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    session.close().await;
    for refused in [
        inspect(&session, PATH).await.map(drop),
        scan(&session, "/").await.map(drop),
    ] {
        let refused = refused.unwrap_err();
        assert!(
            matches!(refused, Error::Query(QueryError::SessionClosed { .. })),
            "{refused}"
        );
    }
}

fn is_invalid(refused: &Error, bad: &str) -> bool {
    let Error::Query(QueryError::Config(ConfigError::InvalidPath { path, .. })) = refused else {
        return false;
    };
    path == bad
}

async fn ensemble_that_is_down_is_no_connection(ensemble: TestEnsemble) {
    let options = ZooKeeper::builder().connect_timeout(Duration::from_secs(10));
    let session = ensemble.session_with(options).await;
    assert!(scan(&session, "/").await.is_ok());
    ensemble.stop().await;
    for refused in [
        inspect(&session, PATH).await.map(drop),
        scan(&session, "/").await.map(drop),
    ] {
        let refused = refused.unwrap_err();
        assert!(
            matches!(refused, Error::Query(QueryError::Unanswered { .. })),
            "{refused}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn what_may_not_be_listed_or_read_is_told_in_memory() {
    let ensemble = MemoryEnsemble::new();
    let session = ensemble.session();
    let lock = InterProcessMutex::new(&session, PATH).unwrap();
    let held = lock.acquire().await.unwrap();
    ensemble.deny(PATH, Operation::List);
    let refused = inspect(&session, PATH).await.unwrap_err();
    assert!(
        matches!(&refused, Error::Query(QueryError::NotAuthorized { path }) if path == PATH),
        "{refused}"
    );
    let seen = scan(&session, "/").await.unwrap();
    assert!(seen.locks.is_empty());
    assert_eq!(seen.unreadable[0].0, PATH);
    ensemble.allow_all();
    held.release().await.unwrap();
}

/// Two sessions that wait for each other, with nodes that nobody else may read. A server before
/// 3.8.4 and 3.9.2 reports whose they are.
#[tokio::test(start_paused = true)]
async fn nodes_that_may_not_be_read_are_shown_with_what_is_known_in_memory() {
    const OTHER: &str = "/locks/other";
    for is_described in [true, false] {
        let ensemble = MemoryEnsemble::builder().stats_need_read(!is_described);
        let ensemble = ensemble.build();
        let closed = || {
            let options = ZooKeeper::builder().acl(Acls::creator_all());
            ensemble.session_as("orders:secret", options)
        };
        let (sessions, mut held) = ([closed(), closed()], Vec::new());
        for (session, path) in sessions.iter().zip([PATH, OTHER]) {
            ensemble.create(path, b"").unwrap();
            let lock = InterProcessMutex::new(session, path).unwrap();
            held.push(lock.acquire().await.unwrap());
        }
        for (session, path) in sessions.iter().zip([OTHER, PATH]) {
            let lock = InterProcessMutex::new(session, path).unwrap();
            tokio::spawn(lock.acquire());
            while ensemble.children(path).len() < 2 {
                tokio::task::yield_now().await;
            }
        }

        let seen = scan(&ensemble.session(), "/locks").await.unwrap();
        assert!(seen.unreadable.is_empty(), "{seen:?}");
        assert_eq!(seen.locks.len(), 2);
        let lock = &seen.locks[0];
        assert_eq!((lock.holders().count(), lock.waiters().count()), (1, 1));
        for contender in &lock.contenders {
            assert_eq!(contender.mode, Some(LockKind::Mutex));
            assert!(!contender.is_readable);
            assert_eq!(contender.participant.is_described, is_described);
        }
        let holder = lock.holders().next().unwrap().participant.session_id;
        let known = is_described.then(|| sessions[0].session_id().unwrap());
        assert_eq!(holder, known.unwrap_or(0));
        // Nodes of unknown sessions are not taken for one party.
        let cycles = WaitForGraph::of(&seen.locks).cycles();
        assert_eq!(cycles.len(), usize::from(is_described), "{cycles:?}");
    }
}

/// Two directories that only one session may list, and a lock whose nodes only one may read.
#[tokio::test]
async fn what_may_not_be_listed_or_read_is_told_on_a_real_server() {
    let server = ZooKeeperServer::start().await.unwrap();
    let owner = ZooKeeper::builder()
        .auth("digest", b"orders:secret")
        .acl(Acls::creator_all());
    let owner = owner.connect(&server.connect_string()).await.unwrap();
    let open = ZooKeeper::connect(&server.connect_string()).await.unwrap();
    let operator = server.client().await.unwrap();
    let everybody = CreateMode::Persistent.with_acls(Acls::anyone_all());
    operator.mkdir("/locks/half", &everybody).await.unwrap();
    operator.mkdir("/locks/open", &everybody).await.unwrap();
    let only_stat = [Acl::new(Permission::CREATE, AuthId::anyone())];
    let only_stat = CreateMode::Persistent.with_acls(Acls::new(&only_stat));
    operator
        .create("/locks/closed", b"", &only_stat)
        .await
        .unwrap();

    let half = InterProcessMutex::new(&owner, "/locks/half").unwrap();
    let half = half.acquire().await.unwrap();
    let whole = InterProcessMutex::new(&open, "/locks/open").unwrap();
    let whole = whole.acquire().await.unwrap();

    let refused = inspect(&open, "/locks/closed").await.unwrap_err();
    assert!(
        matches!(&refused, Error::Query(QueryError::NotAuthorized { path }) if path == "/locks/closed"),
        "{refused}"
    );
    // The name is known, but not the identity. Servers since 3.8.4 and 3.9.2 do not report the
    // session either.
    let node = &half.members()[0].node_path;
    let is_described = operator.check_stat(node).await.is_ok();
    let seen = inspect(&open, "/locks/half").await.unwrap();
    let [contender] = &seen.contenders[..] else {
        panic!("{seen:?}")
    };
    assert!(!contender.is_readable && contender.participant.data.is_empty());
    assert_eq!(contender.participant.is_described, is_described);
    let session_id = is_described.then(|| owner.session_id().unwrap());
    assert_eq!(contender.participant.session_id, session_id.unwrap_or(0));
    assert_eq!(contender.standing, Standing::Holds);

    let seen = scan(&open, "/locks").await.unwrap();
    let paths: Vec<_> = seen.locks.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(paths, ["/locks/half", "/locks/open"]);
    let [(path, error)] = &seen.unreadable[..] else {
        panic!("{seen:?}")
    };
    assert_eq!(path, "/locks/closed");
    assert!(matches!(error, QueryError::NotAuthorized { .. }), "{error}");
    half.release().await.unwrap();
    whole.release().await.unwrap();
}
