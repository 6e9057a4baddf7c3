//! Sets of locks, shared with Curator.

use futures::future::try_join_all;
use lock_recipes::{Member, MultiLock};

use super::{PATIENCE, Stage, count, increment};

const PATHS: [&str; 3] = ["/set/a", "/set/b", "/set/c"];
const COUNTER: &str = "/counter";
const ROUNDS: u32 = 100;

/// Both acquire the same paths in the same order. A counter that no lock guards shows overlaps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sets_of_both_over_the_same_paths_exclude_each_other() {
    let stage = Stage::set_up().await;
    let store = stage.counter(COUNTER).await;
    for (name, path) in ["a", "b", "c"].into_iter().zip(PATHS) {
        stage.curator.mutex(name, "c", path).await.unwrap();
    }
    stage
        .curator
        .multi_lock("set", &["a", "b", "c"])
        .await
        .unwrap();

    let theirs = async {
        for _ in 0..ROUNDS {
            assert!(
                stage
                    .curator
                    .acquire("t", "set", Some(PATIENCE))
                    .await
                    .unwrap()
            );
            increment(&store, COUNTER).await;
            stage.curator.release("t", "set").await.unwrap();
        }
    };
    let set = MultiLock::new(&stage.ours, PATHS.map(Member::mutex)).unwrap();
    let ours = (0..2).map(|_| {
        let (set, store) = (set.clone(), store.clone());
        tokio::spawn(async move {
            for _ in 0..ROUNDS / 2 {
                let guard = set.acquire().await.unwrap();
                increment(&store, COUNTER).await;
                guard.release().await.unwrap();
            }
        })
    });
    let (ours, ()) = tokio::join!(try_join_all(ours.collect::<Vec<_>>()), theirs);
    ours.unwrap();
    assert_eq!(count(&store, COUNTER).await, u64::from(2 * ROUNDS));
    for path in PATHS {
        assert!(stage.ensemble.children(path).await.is_empty());
    }
}
