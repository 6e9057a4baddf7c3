//! Go's mutex and election and the commands of `etcdctl` do what is said of them, judged from outside.
#![cfg(unix)]

use std::error::Error;
use std::time::Duration;

use test_rig::history::History;
use test_rig::{EtcdPeer, EtcdServer, EtcdctlPeer, check_grants};
use tokio::time::timeout;

type Outcome = Result<(), Box<dyn Error>>;

/// Far more than anything here takes, so that a test that hangs fails.
const PATIENCE: Duration = Duration::from_secs(300);
const SESSION: Duration = Duration::from_secs(60);
/// Many times what a grant takes.
const A_WHILE: Duration = Duration::from_millis(300);

/// Has two processes contend for locks at the given prefixes over one counter, and returns what they wrote down.
async fn contend(prefixes: [&str; 2]) -> Result<(Vec<test_rig::Grant>, History), Box<dyn Error>> {
    const ROUNDS: u32 = 100;
    let server = EtcdServer::start().await?;
    server.command(&["put", "counter", "0"]).await?;
    let folder = tempfile::tempdir()?;
    let journal = folder.path().join("journal");
    let peers = [EtcdPeer::start().await?, EtcdPeer::start().await?];
    let mut contending = Vec::new();
    for (worker, (peer, prefix)) in (1..).zip(peers.iter().zip(prefixes)) {
        peer.open("client", &server.address(), SESSION).await?;
        let written = Some((journal.as_path(), worker));
        contending.push(peer.contend("client", prefix, "counter", (ROUNDS, 3), written));
    }
    let granted = futures::future::try_join_all(contending);
    let granted = timeout(PATIENCE, granted).await??.concat();
    assert_eq!(granted.len(), 2 * ROUNDS as usize);
    let history = History::parse(&std::fs::read_to_string(journal)?)?;
    Ok((granted, history))
}

#[tokio::test]
async fn go_processes_exclude_each_other_in_the_order_of_their_keys() -> Outcome {
    let (granted, history) = contend(["/lock", "/lock"]).await?;
    check_grants(0, &granted)?;
    assert_eq!(history.attempts().len(), granted.len());
    let violations = history.check(PATIENCE);
    assert!(violations.is_empty(), "{violations:?}");
    Ok(())
}

/// The judges would see it.
#[tokio::test]
async fn go_processes_with_two_locks_do_not_exclude_each_other() -> Outcome {
    let (granted, _) = contend(["/lock/a", "/lock/b"]).await?;
    assert!(check_grants(0, &granted).is_err());
    Ok(())
}

#[tokio::test]
async fn go_mutex_is_tried_timed_out_and_lost() -> Outcome {
    let server = EtcdServer::start().await?;
    let peer = EtcdPeer::start().await?;
    assert!(peer.version().starts_with("3."));
    // Go asks for its lease three times in this, and so learns late that it is over.
    let session = SESSION / 4;
    for (client, lock) in [("one", "first"), ("two", "second")] {
        peer.open(client, &server.address(), session).await?;
        peer.lock(lock, client, "/lock").await?;
    }
    assert!(peer.acquire("t", "first", None).await?);
    let key = format!("/lock/{:x}", peer.session("one").await?);
    assert_eq!(peer.lock_path("t", "first").await?, Some(key.clone()));
    let found = server.command(&["get", &key, "--write-out=fields"]).await?;
    let revision = peer.revision("t", "first").await?;
    assert!(found.contains(&format!("\"CreateRevision\" : {revision}\n")));
    assert!(!peer.try_acquire("u", "second").await?);
    assert!(!peer.acquire("u", "second", Some(A_WHILE)).await?);
    assert_eq!(peer.lock_path("u", "second").await?, None);
    assert!(!peer.lost("one", A_WHILE).await?);
    let waiting = peer.acquire("u", "second", None);
    let lease = format!("{:x}", peer.session("one").await?);
    server.command(&["lease", "revoke", &lease]).await?;
    assert!(timeout(PATIENCE, waiting).await??);
    assert!(peer.lost("one", PATIENCE).await?);
    // It says nothing of having been lost.
    peer.release("t", "first").await?;
    peer.release("u", "second").await?;
    assert!(peer.try_acquire("u", "second").await?);
    peer.exit().await?;
    let left = server.command(&["get", "--prefix", "/lock"]).await?;
    assert_eq!(left, "");
    Ok(())
}

#[tokio::test]
async fn go_candidates_campaign_proclaim_and_resign() -> Outcome {
    let server = EtcdServer::start().await?;
    let peer = EtcdPeer::start().await?;
    for name in ["one", "two"] {
        peer.open(name, &server.address(), SESSION).await?;
        peer.candidate(name, name, "/election").await?;
    }
    assert_eq!(peer.leader("one").await?, None);
    let seen = peer.observe("two", 3, PATIENCE);
    assert!(peer.campaign("t", "one", "a", None).await?);
    assert_eq!(peer.leader("two").await?, Some("a".to_owned()));
    assert!(!peer.campaign("u", "two", "b", Some(A_WHILE)).await?);
    let waiting = peer.campaign("u", "two", "b", None);
    peer.proclaim("one", "c").await?;
    let (key, first) = peer.term("one").await?;
    assert!(key.starts_with("/election/"));
    peer.resign("one").await?;
    assert!(timeout(PATIENCE, waiting).await??);
    assert!(peer.term("two").await?.1 > first);
    let seen = timeout(PATIENCE, seen).await??;
    assert_eq!(seen.last().map(String::as_str), Some("b"), "{seen:?}");
    Ok(())
}

#[tokio::test]
async fn etcdctl_and_go_are_in_one_queue() -> Outcome {
    let server = EtcdServer::start().await?;
    let peer = EtcdPeer::start().await?;
    peer.open("client", &server.address(), SESSION).await?;
    peer.lock("lock", "client", "/lock").await?;
    peer.candidate("election", "client", "/election").await?;
    let start = |words: &[&str]| EtcdctlPeer::start(&server, &server.address(), words);

    let mut shell = start(&["lock", "/lock"])?;
    let key = shell.line().await?.ok_or("it has ended")?;
    assert!(key.starts_with("/lock/"), "{key}");
    let mut waiting = Box::pin(peer.acquire("t", "lock", None));
    assert!(timeout(A_WHILE, &mut waiting).await.is_err());
    shell.release().await?;
    assert!(timeout(PATIENCE, waiting).await??);
    peer.release("t", "lock").await?;
    let mut shell = start(&["lock", "/lock", "printenv", "ETCD_LOCK_KEY"])?;
    let key = shell.line().await?.ok_or("it has ended")?;
    assert!(key.starts_with("/lock/"), "{key}");
    shell.ended().await?;
    assert!(peer.try_acquire("t", "lock").await?);

    let mut shell = start(&["elect", "/election", "shell"])?;
    let key = shell.line().await?.ok_or("it has ended")?;
    assert!(key.starts_with("/election/"), "{key}");
    assert_eq!(shell.line().await?.as_deref(), Some("shell"));
    assert_eq!(peer.leader("election").await?, Some("shell".to_owned()));
    let waiting = peer.campaign("t", "election", "go", None);
    shell.release().await?;
    assert!(timeout(PATIENCE, waiting).await??);
    Ok(())
}
