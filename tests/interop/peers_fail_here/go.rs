//! Faults of go-zookeeper's `Lock` 1.0.4.

use test_rig::{ForeignPeer, Naming, TestEnsemble};

use super::{OURS, PATIENCE, THEIRS, mutex, server, soon};

/// Go with two clients, `c` and `d`, and a lock of each on one path, `m` and `n`.
async fn set_up() -> (TestEnsemble, ForeignPeer) {
    let ensemble = test_rig::own::on_a_real_server().await;
    let go = ForeignPeer::go().await.unwrap();
    assert_eq!(go.version(), "1.0.4");
    let at = server(&ensemble).connect_string();
    for (client, lock) in [("c", "m"), ("d", "n")] {
        go.open(client, &at, PATIENCE).await.unwrap();
        go.lock(lock, client, THEIRS, Naming::Own).await.unwrap();
    }
    (ensemble, go)
}

/// The path of the second of two nodes, wherever the first stands in the list.
fn other_than(first: &str, names: &[String]) -> String {
    let (directory, first) = first.rsplit_once('/').unwrap();
    let other = names.iter().find(|name| *name != first).unwrap();
    format!("{directory}/{other}")
}

/// Its number is smaller than all that are left, whether or not its node is among them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiter_is_granted_without_a_node_where_ours_queues_again() {
    let (ensemble, go) = set_up().await;
    assert!(go.acquire("t", "m", None).await.unwrap());
    let waiter = go.acquire("u", "n", None);
    let nodes = ensemble.await_children(THEIRS, 2).await;
    let holding = go.lock_path("t", "m").await.unwrap().unwrap();
    let waiting = other_than(&holding, &nodes);
    ensemble.delete(&waiting).await;
    go.release("t", "m").await.unwrap();
    assert!(soon(waiter).await.unwrap());
    assert_eq!(go.lock_path("u", "n").await.unwrap(), Some(waiting));
    assert!(go.acquire("t", "m", None).await.unwrap(), "two holders");

    let (holding, waiting) = (ensemble.session().await, ensemble.session().await);
    let held = mutex(&holding, OURS).acquire().await.unwrap();
    let waiter = tokio::spawn(mutex(&waiting, OURS).acquire());
    let nodes = ensemble.await_children(OURS, 2).await;
    let holding = held.members()[0].node_path.clone();
    let waiting = other_than(&holding, &nodes);
    ensemble.delete(&waiting).await;
    held.release().await.unwrap();
    let granted = soon(waiter).await.unwrap().unwrap();
    assert_ne!(granted.members()[0].node_path, waiting);
    granted.verify().await.unwrap();
}

/// It reads the numbers of all children. One without a number ends the acquire after its create.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stranger_ends_an_acquire_that_leaves_its_node_where_ours_passes_it() {
    let (ensemble, go) = set_up().await;
    for path in [THEIRS, OURS] {
        ensemble.create(&format!("{path}/zstranger"), b"").await;
    }
    let error = go.acquire("t", "m", None).await.unwrap_err();
    assert!(error.to_string().contains("zstranger"), "{error}");
    // Its node stays, so everybody waits until its session ends.
    ensemble.await_children(THEIRS, 2).await;
    let waiting = ensemble.session().await;
    let waiter = tokio::spawn(mutex(&waiting, THEIRS).acquire());
    ensemble.await_children(THEIRS, 3).await;
    assert!(!waiter.is_finished());
    go.close("c").await.unwrap();
    soon(waiter)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();

    let held = soon(mutex(&waiting, OURS).acquire()).await.unwrap();
    held.release().await.unwrap();
}
