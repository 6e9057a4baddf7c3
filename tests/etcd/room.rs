//! Room for data, and what is made of the old.

use lock_recipes::{Error, ReleaseOutcome};
use recipes_core::internal::log::Causes;
use test_rig::EtcdServer;
use tokio::time::timeout;

use super::{PATIENCE, mutex, refused, session, shell, waiter};

const QUOTA: usize = 2 * 1024 * 1024;

/// Has the server raise the alarm `NOSPACE`.
async fn fill(server: &EtcdServer) {
    let value = "x".repeat(64 * 1024);
    // Far more than there is room for.
    for number in 0..QUOTA / 1024 {
        let key = format!("/other/{number}");
        if let Err(full) = server.command(&["put", &key, &value]).await {
            assert!(full.to_string().contains("space"), "{full}");
            break;
        }
    }
    let alarms = shell(server, "alarm list").await;
    assert!(alarms.contains("NOSPACE"), "{alarms}");
}

async fn make_room(server: &EtcdServer) {
    shell(server, "del --prefix /other/").await;
    shell(server, &format!("compact {}", revision(server).await)).await;
    shell(server, "defrag").await;
    shell(server, "alarm disarm").await;
}

async fn revision(server: &EtcdServer) -> u64 {
    let told = shell(server, "get / --write-out=fields").await;
    let line = told
        .lines()
        .find_map(|it| it.strip_prefix("\"Revision\" : "));
    line.unwrap().parse().unwrap()
}

#[tokio::test]
async fn full_database_keeps_holders_and_takes_nobody_on_etcd() {
    let quota = QUOTA.to_string();
    let server = EtcdServer::builder().setting("quota-backend-bytes", &quota);
    let server = server.start().await.unwrap();
    let (holding, waiting) = (session(&server).await, session(&server).await);
    let held = mutex(&holding).acquire().await.unwrap();
    let waiter = waiter(&waiting).await;
    fill(&server).await;

    held.verify().await.unwrap();
    let says = "alarm NOSPACE";
    let refused_too = timeout(PATIENCE, mutex(&holding).acquire()).await;
    let error = refused_too.unwrap().unwrap_err();
    assert!(matches!(error, Error::Acquire(_)), "{error}");
    let told = Causes(&error).to_string();
    assert!(told.contains(says), "{told}");
    let told = refused(&server.url()).await;
    assert!(told.contains(says), "{told}");
    // Who waits is there already.
    let released = held.release().await.unwrap();
    assert_eq!(released, ReleaseOutcome::Released);
    let next = timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();
    next.release().await.unwrap();

    make_room(&server).await;
    let again = timeout(PATIENCE, mutex(&holding).acquire()).await.unwrap();
    again.unwrap().release().await.unwrap();
    session(&server).await.close().await;
}

/// An alert on a name that the server does not have never comes.
#[tokio::test]
async fn server_has_the_numbers_that_the_guide_has_operators_watch_on_etcd() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/etcd.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let server = EtcdServer::start().await.unwrap();
    let metrics = server.metrics().await.unwrap();
    let words = guide.split('`').filter(|it| it.starts_with("etcd_"));
    let mut looked = 0;
    for name in words {
        let help = format!("# TYPE {name} ");
        assert!(metrics.contains(&help), "{name}");
        looked += 1;
    }
    assert!(looked >= 8, "{looked}");
}

#[tokio::test]
async fn waiter_is_granted_after_a_compaction_under_its_watch_on_etcd() {
    let server = EtcdServer::start().await.unwrap();
    let (holding, waiting) = (session(&server).await, session(&server).await);
    let held = mutex(&holding).acquire().await.unwrap();
    let waiter = waiter(&waiting).await;
    for number in 0..100 {
        shell(&server, &format!("put /other {number}")).await;
    }
    shell(&server, &format!("compact {}", revision(&server).await)).await;
    // The sessions watch again, and what was between is gone.
    server.kill().await.unwrap();
    server.start_again().await.unwrap();
    shell(&server, "put /other again").await;
    shell(&server, &format!("compact {}", revision(&server).await)).await;
    held.release().await.unwrap();
    let next = timeout(PATIENCE, waiter).await.unwrap().unwrap().unwrap();
    next.verify().await.unwrap();
}
