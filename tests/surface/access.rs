//! Access control, credentials and chroot.

use std::error::Error as StdError;
use std::time::Duration;

use lock_recipes::{
    Acl, Acls, AcquireError, AuthId, Error, InterProcessMutex, NodesError, Permission, QueryError,
    ReleaseError, Session, Step, ZooKeeper,
};
use test_rig::{MemoryEnsemble, Operation, TestEnsemble, ZooKeeperServer};
use zookeeper_client::{Client, CreateMode};

const PATH: &str = "/locks/orders";

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

/// An ensemble where everyone has these permissions, but only in the lock directory. An operator
/// may do everything there.
async fn server_that_grants(permissions: Permission) -> ZooKeeperServer {
    let server = ZooKeeperServer::start().await.unwrap();
    let operator = server.client().await.unwrap();
    let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
    operator.create("/locks", b"", &open).await.unwrap();
    let acl = [
        Acl::new(permissions, AuthId::anyone()),
        Acl::new(Permission::ALL, ops()),
    ];
    let few = CreateMode::Persistent.with_acls(Acls::new(&acl));
    operator.create(PATH, b"", &few).await.unwrap();
    server
}

/// The operator, as ACLs name it.
fn ops() -> AuthId {
    AuthId::new("digest", "ops:6oydJrFeF0qMiG4jeCQ0VpiwJpM=")
}

async fn as_operator(server: &ZooKeeperServer) -> Client {
    let operator = server.client().await.unwrap();
    operator.auth("digest", b"ops:opspass").await.unwrap();
    operator
}

async fn connect(server: &ZooKeeperServer) -> Session {
    let builder = ZooKeeper::builder().session_timeout(Duration::from_secs(10));
    builder.connect(&server.connect_string()).await.unwrap()
}

/// Whether the permission for this step is missing on this node or directory.
fn lacks(wanted: Step, at: &str) -> impl Fn(&Error) -> bool {
    move |error| {
        matches!(error, Error::Acquire(AcquireError::NotAuthorized { step, node, .. })
            if *step == wanted && node == at)
    }
}

fn is_refused_at(wanted: Step) -> impl Fn(&Error) -> bool {
    move |error| {
        matches!(error, Error::Acquire(AcquireError::NotAuthorized { path, .. }) if path == PATH)
            && lacks(wanted, PATH)(error)
    }
}

#[tokio::test(start_paused = true)]
async fn each_refused_step_is_told_and_leaves_nothing_in_memory() {
    let ensemble = MemoryEnsemble::new();
    let session = ensemble.session();
    ensemble.create(PATH, b"").unwrap();
    for (operation, step) in [
        (Operation::Create, Step::Create),
        (Operation::List, Step::List),
    ] {
        ensemble.deny(PATH, operation);
        let refused = mutex(&session).acquire().await.unwrap_err();
        assert!(is_refused_at(step)(&refused), "{refused}");
        ensemble.allow_all();
        mutex(&session)
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        assert!(ensemble.children(PATH).is_empty());
    }
    let held = mutex(&session).acquire().await.unwrap();
    ensemble.deny(PATH, Operation::Delete);
    let refused = held.release().await.unwrap_err();
    assert!(
        matches!(&refused, Error::Release(ReleaseError::Refused { path, source: NodesError::NoAuth }) if path == PATH),
        "{refused}"
    );
    session.close().await;
    assert!(ensemble.children(PATH).is_empty());
}

#[tokio::test]
async fn refused_create_is_told() {
    let server = server_that_grants(Permission::READ | Permission::DELETE).await;
    let session = connect(&server).await;
    let refused = mutex(&session).acquire().await.unwrap_err();
    assert!(is_refused_at(Step::Create)(&refused), "{refused}");
    assert!(mutex(&session).participants().await.unwrap().is_empty());
}

#[tokio::test]
async fn refused_list_is_told_and_the_node_is_deleted() {
    let server = server_that_grants(Permission::CREATE | Permission::DELETE).await;
    let session = connect(&server).await;
    let refused = mutex(&session).acquire().await.unwrap_err();
    assert!(is_refused_at(Step::List)(&refused), "{refused}");
    let unread = mutex(&session).participants().await.unwrap_err();
    assert!(
        matches!(&unread, Error::Query(QueryError::NotAuthorized { .. })),
        "{unread}"
    );
    // The session goes on, but its node is gone.
    let operator = as_operator(&server).await;
    let ensemble = TestEnsemble::Real(server.into());
    let childless = async || {
        let stat = operator.check_stat(PATH).await.unwrap().unwrap();
        (stat.num_children == 0).then_some(())
    };
    ensemble.until("nothing left", childless).await;
    assert!(session.session_id().is_some());
}

#[tokio::test]
async fn refused_delete_is_told_and_the_node_goes_with_the_session() {
    let server = server_that_grants(Permission::READ | Permission::CREATE).await;
    let session = connect(&server).await;
    let held = mutex(&session).acquire().await.unwrap();
    let refused = held.release().await.unwrap_err();
    assert!(
        matches!(&refused, Error::Release(ReleaseError::Refused { path, source: NodesError::NoAuth }) if path == PATH),
        "{refused}"
    );
    assert!(refused.source().is_some());
    session.close().await;
    TestEnsemble::Real(server.into())
        .await_children(PATH, 0)
        .await;
}

#[tokio::test]
async fn nodes_and_parents_carry_the_acls_that_were_asked_for() {
    let server = ZooKeeperServer::start().await.unwrap();
    let only_read = Acl::new(Permission::READ, AuthId::anyone());
    let owned = Acl::new(Permission::ALL, AuthId::anyone());
    let by_path = move |path: &str| {
        path.starts_with("/locks/special/")
            .then(|| vec![only_read.clone(), owned.clone()])
    };
    let session = ZooKeeper::builder()
        .auth("digest", b"orders:secret")
        .acl(Acls::creator_all())
        .acl_by_path(by_path)
        .connect(&server.connect_string())
        .await
        .unwrap();
    let creator = AuthId::new("digest", "orders:ZVwtWMNlnIAXH+N5UAbnb6pf75U=");
    let reader = server.client().await.unwrap();
    reader.auth("digest", b"orders:secret").await.unwrap();

    let held = mutex(&session).acquire().await.unwrap();
    for path in ["/locks", PATH, &held.members()[0].node_path] {
        let (acl, _) = reader.get_acl(path).await.unwrap();
        assert_eq!(acl.len(), 1, "{path}");
        assert_eq!(acl[0].permission(), Permission::ALL, "{path}");
        assert_eq!(acl[0].scheme(), creator.scheme(), "{path}");
        assert!(
            acl[0].id().starts_with("orders:"),
            "{path}: {}",
            acl[0].id()
        );
    }
    held.release().await.unwrap();

    let special = InterProcessMutex::new(&session, "/locks/special").unwrap();
    let held = special.acquire().await.unwrap();
    let (acl, _) = reader.get_acl(&held.members()[0].node_path).await.unwrap();
    assert_eq!(acl.len(), 2);
    assert_eq!(acl[0].permission(), Permission::READ);
    held.release().await.unwrap();
}

#[tokio::test]
async fn nobody_without_the_password_gets_in() {
    let server = ZooKeeperServer::start().await.unwrap();
    let builder = || ZooKeeper::builder().acl(Acls::creator_all());
    let address = server.connect_string();
    let ours = builder()
        .auth("digest", b"orders:secret")
        .connect(&address)
        .await
        .unwrap();
    let same = builder()
        .auth("digest", b"orders:secret")
        .connect(&address)
        .await
        .unwrap();
    let other = builder()
        .auth("digest", b"orders:guess")
        .connect(&address)
        .await
        .unwrap();
    let held = mutex(&ours).acquire().await.unwrap();
    assert!(mutex(&same).try_acquire().await.unwrap().is_none());
    let refused = mutex(&other).acquire().await.unwrap_err();
    assert!(
        matches!(refused, Error::Acquire(AcquireError::NotAuthorized { .. })),
        "{refused}"
    );
    held.release().await.unwrap();
}

/// The setup that docs/operating/zookeeper.md describes.
#[tokio::test]
async fn service_with_locks_of_its_own_keeps_others_out_and_lets_the_operator_in() {
    let server = ZooKeeperServer::start().await.unwrap();
    let address = server.connect_string();
    let use_it = Permission::CREATE | Permission::READ | Permission::WRITE | Permission::DELETE;
    let orders = AuthId::new("digest", "orders:08sob9dMDb87qFrxEU6Yzq8j3HU=");
    let acl = [Acl::new(use_it, orders), Acl::new(Permission::ALL, ops())];
    let top = [
        Acl::new(Permission::READ, AuthId::anyone()),
        Acl::new(Permission::ALL, ops()),
    ];
    for (path, acl) in [("/locks", &top), ("/locks/orders", &acl)] {
        let persistent = CreateMode::Persistent.with_acls(Acls::new(acl));
        as_operator(&server)
            .await
            .create(path, b"", &persistent)
            .await
            .unwrap();
    }
    let builder = ZooKeeper::builder().auth("digest", b"orders:secret");
    let session = builder
        .acl(Acls::new(&acl))
        .connect(&address)
        .await
        .unwrap();
    let lock = |session: &Session, path: &str| InterProcessMutex::new(session, path).unwrap();
    let held = lock(&session, "/locks/orders/4711")
        .acquire()
        .await
        .unwrap();

    let billing = ZooKeeper::builder().auth("digest", b"billing:other");
    let billing = billing.connect(&address).await.unwrap();
    let foreign = lock(&billing, "/locks/orders/4711");
    let untold = lock(&billing, "/locks/other/1");
    let refused = foreign.try_acquire().await.unwrap_err();
    assert!(lacks(Step::List, foreign.path())(&refused), "{refused}");
    let refused = foreign.acquire().await.unwrap_err();
    assert!(lacks(Step::Create, foreign.path())(&refused), "{refused}");
    let refused = untold.try_acquire().await.unwrap_err();
    assert!(lacks(Step::CreateParents, "/locks")(&refused), "{refused}");
    let operator = as_operator(&server).await;
    assert_eq!(
        operator
            .list_children("/locks/orders/4711")
            .await
            .unwrap()
            .len(),
        1
    );
    operator
        .get_data(&held.members()[0].node_path)
        .await
        .unwrap();
    held.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nobody_without_the_password_gets_in_in_memory() {
    let ensemble = MemoryEnsemble::new();
    let options = || ZooKeeper::builder().acl(Acls::creator_all());
    let ours = ensemble.session_as("orders:secret", options());
    let same = ensemble.session_as("orders:secret", options());
    let other = ensemble.session_as("orders:guess", options());
    let held = mutex(&ours).acquire().await.unwrap();
    assert!(mutex(&same).try_acquire().await.unwrap().is_none());
    let refused = mutex(&other).acquire().await.unwrap_err();
    assert!(
        matches!(refused, Error::Acquire(AcquireError::NotAuthorized { .. })),
        "{refused}"
    );
    held.release().await.unwrap();
}

#[tokio::test]
async fn chroot_is_put_in_front_of_every_path() {
    let ensemble = test_rig::own::on_a_real_server().await;
    ensemble.create("/app", b"").await;
    let inside = ensemble.session_below("/app", ZooKeeper::builder()).await;
    let outside = ensemble.session().await;
    let held = mutex(&inside).acquire().await.unwrap();
    assert_eq!(ensemble.children("/app/locks/orders").await.len(), 1);
    assert_eq!(held.path(), PATH);
    assert!(held.members()[0].node_path.starts_with("/locks/orders/_c_"));
    let full = InterProcessMutex::new(&outside, "/app/locks/orders").unwrap();
    assert!(full.try_acquire().await.unwrap().is_none());
    held.release().await.unwrap();
    full.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn missing_chroot_is_refused_and_not_waited_for() {
    let ensemble = test_rig::own::on_a_real_server().await;
    ensemble.create("/nowhere", b"").await;
    let session = ensemble
        .session_below("/nowhere", ZooKeeper::builder())
        .await;
    ensemble.delete("/nowhere").await;
    let refused = mutex(&session).acquire().await.unwrap_err();
    assert!(
        matches!(
            &refused,
            Error::Acquire(AcquireError::Refused {
                step: Step::CreateParents,
                source: NodesError::NoNode,
                ..
            })
        ),
        "{refused}"
    );
}

/// A refused create made nothing, so nothing is searched for in a directory that may not be listed.
#[tokio::test(start_paused = true)]
async fn refused_create_leaves_nothing_to_clean_up() {
    let ensemble = MemoryEnsemble::new();
    ensemble.create(PATH, b"").unwrap();
    ensemble.deny(PATH, Operation::Create);
    let session = ensemble.session();
    let refused = mutex(&session).acquire().await.unwrap_err();
    assert!(is_refused_at(Step::Create)(&refused), "{refused}");
    // The clean-up is done after that.
    session.close().await;
    let requests: Vec<_> = ensemble.requests().iter().map(|it| it.operation).collect();
    assert_eq!(requests, [Operation::Create, Operation::List]);
}
