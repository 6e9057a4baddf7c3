//! Servers that answer with a refusal.

use std::time::Duration;

use lock_recipes::{
    AcquireError, ConnectError, Error, LostReason, Member, MultiLock, NodesError, Step, ZooKeeper,
};
use test_rig::{Cut, Direction, Fault, Opcode, ZooKeeperEnsemble, ZooKeeperServer};
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode};

use super::{LONG, PATH, PATIENCE, await_queue, children, connect, mutex, proxy, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_with_a_password_may_release_and_list_after_a_reconnection() {
    let server = ZooKeeperServer::start().await.unwrap();
    let proxy = proxy(&server).await;
    let options = ZooKeeper::builder()
        .session_timeout(LONG)
        .auth("digest", b"orders:secret")
        .acl(Acls::creator_all());
    let session = options.connect(&proxy.connect_string()).await.unwrap();
    let held = mutex(&session).acquire().await.unwrap();
    let stranger = connect(&server.connect_string(), LONG).await;
    let refused = mutex(&stranger).acquire().await.unwrap_err();
    let is_refused = matches!(refused, Error::Acquire(AcquireError::NotAuthorized { .. }));
    assert!(is_refused, "{refused}");

    let sent = || proxy.on(Direction::ToServer).opcode(Opcode::Auth);
    let again = sent().nth(sent().count() + 1).seen();
    proxy.cut_all(Cut::Reset);
    timeout(PATIENCE, again).await.unwrap();
    until("verified", async || held.verify().await.is_ok()).await;
    assert_eq!(mutex(&session).participants().await.unwrap().len(), 1);
    held.release().await.unwrap();
    assert!(mutex(&session).participants().await.unwrap().is_empty());
    let again = mutex(&session).acquire().await.unwrap();
    again.release().await.unwrap();
    assert_eq!(session.epoch(), 1);
}

/// A server's answer to an unknown request, after which it ends the connection.
const UNIMPLEMENTED: i32 = -6;

// A server before 3.6 is not available. So this imitates its answer and cuts the connection as it
// does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_does_not_know_reads_of_many_is_asked_for_one_by_one_from_then_on() {
    let server = ZooKeeperServer::start().await.unwrap();
    let proxy = proxy(&server).await;
    let session = connect(&proxy.connect_string(), LONG).await;
    let members = ["/seats/1", "/seats/2", "/seats/3"].map(Member::mutex);
    let set = MultiLock::new(&session, members).unwrap();
    let answer = proxy.on(Direction::FromServer).opcode(Opcode::MultiRead);
    let refused = answer.each().then(Fault::Refuse(UNIMPLEMENTED));
    let first = set.acquire().await.unwrap();
    proxy.cut_all(Cut::Fin);
    first.release().await.unwrap();
    assert_eq!(refused.count(), 1);
    let lists = || {
        proxy
            .on(Direction::ToServer)
            .opcode(Opcode::GetChildren)
            .count()
    };
    assert_eq!(lists(), 3);
    set.acquire().await.unwrap().release().await.unwrap();
    assert_eq!((refused.count(), lists()), (1, 6));
}

/// As `setquota` of ZooKeeper's command line does.
async fn limit(operator: &Client, path: &str, nodes: usize) {
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    let directory = format!("/zookeeper/quota{path}");
    operator.mkdir(&directory, &options).await.unwrap();
    let limits = format!("count=-1,bytes=-1;byteHardLimit=-1;countHardLimit={nodes}");
    for (name, data) in [
        ("zookeeper_limits", limits.as_str()),
        ("zookeeper_stats", "count=0,bytes=0"),
    ] {
        let path = format!("{directory}/{name}");
        let created = operator.create(&path, data.as_bytes(), &options).await;
        created.unwrap();
    }
}

fn is_refused_create(error: &Error) -> bool {
    matches!(
        error,
        Error::Acquire(AcquireError::Refused {
            path,
            step: Step::Create,
            source: NodesError::Refused(_),
        }) if path == PATH
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_beyond_the_quota_is_refused_and_leaves_nothing() {
    let builder = ZooKeeperServer::builder().property("zookeeper.enforceQuota", "true");
    let server = builder.start().await.unwrap();
    let operator = server.client().await.unwrap();
    let session = connect(&server.connect_string(), LONG).await;
    let held = mutex(&session).acquire().await.unwrap();
    // The directory itself counts.
    limit(&operator, PATH, 2).await;
    let queue = await_queue(&operator, 1).await;

    let refused = mutex(&session).acquire().timeout(PATIENCE).await;
    let refused = refused.unwrap_err();
    assert!(is_refused_create(&refused), "{refused}");
    let members = [Member::mutex("/locks/a"), Member::mutex(PATH)];
    let set = MultiLock::new(&session, members).unwrap();
    let refused = set.acquire().timeout(PATIENCE).await.unwrap_err();
    assert!(is_refused_create(&refused), "{refused}");
    assert!(children(&operator, "/locks/a").await.is_empty());
    assert_eq!(await_queue(&operator, 1).await, queue);

    held.release().await.unwrap();
    let set = set.acquire().await.unwrap();
    set.release().await.unwrap();
    await_queue(&operator, 0).await;
}

/// A server closes a connection without an answer if a request seems too large.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn set_that_no_request_can_hold_is_refused_and_not_tried_again_and_again() {
    let server = ZooKeeperServer::start().await.unwrap();
    let proxy = proxy(&server).await;
    let options = ZooKeeper::builder()
        .session_timeout(LONG)
        .identity(vec![b'x'; 600_000]);
    let session = options.connect(&proxy.connect_string()).await.unwrap();
    let members = ["/locks/a", "/locks/b"].map(Member::mutex);
    let set = MultiLock::new(&session, members).unwrap();
    let refused = set.acquire().timeout(Duration::from_secs(10)).await;
    let refused = refused.unwrap_err();
    assert!(
        matches!(
            refused,
            Error::Acquire(AcquireError::Refused {
                step: Step::Create,
                ..
            })
        ),
        "{refused}"
    );
    assert_eq!(proxy.connections(), 1);
    let alone = mutex(&session).acquire().await.unwrap();
    alone.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_that_only_reads_grants_nothing() {
    const WAITS: Duration = Duration::from_secs(2);
    // A read-only server accepts only local sessions. The others are upgraded by their locks.
    let builder = ZooKeeperEnsemble::builder()
        .property("readonlymode.enabled", "true")
        .config("localSessionsEnabled", "true")
        .config("localSessionsUpgradingEnabled", "true");
    let ensemble = builder.start_ensemble(3).await.unwrap();
    let session = connect(&ensemble.connect_string(), Duration::from_secs(4)).await;
    let held = mutex(&session).acquire().await.unwrap();
    ensemble.kill(0).await.unwrap();
    ensemble.kill(1).await.unwrap();
    let lost = timeout(PATIENCE, held.lost()).await.unwrap();
    assert_eq!(lost.reason, LostReason::DeadlinePassed);
    let last = ensemble.server(2);
    let only_reads = async || last.four_letter("isro").await.is_ok_and(|it| it == "ro");
    until("a server that only reads", only_reads).await;

    let late = mutex(&session).acquire().timeout(WAITS).await.unwrap_err();
    assert!(
        matches!(late, Error::Acquire(AcquireError::TimedOut { .. })),
        "{late}"
    );
    let options = ZooKeeper::builder().connect_timeout(WAITS);
    let refused = options.connect(&last.connect_string()).await.unwrap_err();
    let is_late = matches!(refused, Error::Connect(ConnectError::TimedOut { .. }));
    assert!(is_late, "{refused}");

    // A client that accepts read-only servers, on the last state of this one.
    let connector = Client::connector().with_readonly(true);
    let reader = connector.connect(&last.connect_string()).await.unwrap();
    let reader = ZooKeeper::from_client(reader);
    assert!(mutex(&reader).try_acquire().await.unwrap().is_none());
    let refused = mutex(&reader)
        .acquire()
        .timeout(PATIENCE)
        .await
        .unwrap_err();
    assert!(is_refused_create(&refused), "{refused}");

    ensemble.start_again(0).await.unwrap();
    let again = mutex(&session).acquire().timeout(PATIENCE).await.unwrap();
    again.release().await.unwrap();
}
