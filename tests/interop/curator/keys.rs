//! Keys of a factory below a path that Curator uses as a lock.

use std::time::Duration;

use lock_recipes::LockFactory;
use zookeeper_client::{Acls, CreateMode};

use super::{PATH, PATIENCE, Stage};

/// How long a lock is waited for that is blocked for ever.
const IMPATIENCE: Duration = Duration::from_millis(300);
/// Names that a lock of Curator's takes for a contender ahead, each with that lock.
const LOOKALIKES: [(&str, &str); 5] = [
    ("m", "lock-0000000000"),
    ("m", "block-"),
    ("m", "-a"),
    ("rw.write", "__READ__"),
    ("rw.read", "__WRIT__"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_do_not_block_a_lock_of_curators_at_their_root() {
    let stage = Stage::set_up().await;
    let curator = &stage.curator;
    curator.read_write_lock("rw", "c", PATH).await.unwrap();
    let locks = LockFactory::new(&stage.ours, PATH).unwrap();
    let mut held = Vec::new();
    for (_, key) in LOOKALIKES {
        held.push(locks.mutex(key).unwrap().acquire().await.unwrap());
    }
    for lock in ["m", "rw.write", "rw.read"] {
        let granted = curator.acquire("t", lock, Some(PATIENCE)).await.unwrap();
        assert!(granted, "{lock}");
        curator.release("t", lock).await.unwrap();
    }
    // The same names as they are do block: this is why they are escaped.
    let operator = stage.operator().await;
    let persistent = CreateMode::Persistent.with_acls(Acls::anyone_all());
    for (lock, name) in LOOKALIKES {
        let path = format!("{PATH}/{name}");
        operator.create(&path, b"", &persistent).await.unwrap();
        let granted = curator.acquire("t", lock, Some(IMPATIENCE)).await.unwrap();
        assert!(!granted, "{lock} with {name}");
        operator.delete(&path, None).await.unwrap();
    }
    for guard in held {
        guard.release().await.unwrap();
    }
}
