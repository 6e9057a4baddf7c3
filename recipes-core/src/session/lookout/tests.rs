use futures::{FutureExt, poll};

use super::*;
use crate::scripted::{Asked, SECOND, Scripted, settle};

/// A lookout with its requests, and a task that it runs in.
struct Stage {
    lookout: Arc<Lookout>,
    nodes: Arc<Scripted>,
}

impl Stage {
    fn new() -> Self {
        let (lookout, nodes) = (Lookout::new(&Traits::default()), Scripted::new(None));
        let stage = Self {
            lookout: Arc::new(lookout),
            nodes,
        };
        let (lookout, nodes) = (Arc::clone(&stage.lookout), Arc::clone(&stage.nodes));
        tokio::spawn(async move { lookout.run(&*nodes).await });
        stage
    }

    /// Answers the requests that were sent until now; these nodes are gone. Returns which nodes
    /// were asked for.
    async fn answer(&self, gone: &[&str]) -> Vec<String> {
        settle().await;
        let mut listed = Vec::new();
        while let Some(asked) = self.nodes.asked() {
            let Asked::List(path, answer) = asked else {
                panic!("{asked:?}");
            };
            let listing = match gone.contains(&&*path) {
                true => Err(NodesError::NoNode),
                false => Ok(Vec::new()),
            };
            assert!(answer.send(listing).is_ok());
            listed.push(path);
            settle().await;
        }
        listed
    }
}

#[tokio::test(start_paused = true)]
async fn node_is_looked_at_until_it_is_gone() {
    let stage = Stage::new();
    assert_eq!(stage.answer(&[]).await, [""; 0]);
    let mut gone = Box::pin(stage.lookout.gone("/l/a"));
    for _ in 0..3 {
        assert!(poll!(gone.as_mut()).is_pending());
        assert_eq!(stage.answer(&[]).await, ["/l/a"]);
        tokio::time::advance(PAUSE_MAX).await;
    }
    assert_eq!(stage.answer(&["/l/a"]).await, ["/l/a"]);
    assert!(gone.await.is_ok());
    tokio::time::advance(PAUSE_MAX).await;
    assert_eq!(stage.answer(&[]).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn node_that_nobody_waits_for_any_more_is_not_looked_at() {
    let stage = Stage::new();
    let (mut one, mut other) = (
        Box::pin(stage.lookout.gone("/l/a")),
        Box::pin(stage.lookout.gone("/l/a")),
    );
    assert!(poll!(one.as_mut()).is_pending() && poll!(other.as_mut()).is_pending());
    assert_eq!(stage.answer(&[]).await, ["/l/a"], "once for both");
    drop(one);
    tokio::time::advance(PAUSE_MAX).await;
    assert_eq!(stage.answer(&[]).await, ["/l/a"]);
    drop(other);
    tokio::time::advance(PAUSE_MAX).await;
    assert_eq!(stage.answer(&[]).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn all_that_wait_for_a_node_are_told() {
    let stage = Stage::new();
    let mut waiting: Vec<_> = (0..3)
        .map(|_| Box::pin(stage.lookout.gone("/l/a")))
        .collect();
    let mut other = Box::pin(stage.lookout.gone("/l/b"));
    for it in &mut waiting {
        assert!(poll!(it).is_pending());
    }
    assert!(poll!(other.as_mut()).is_pending());
    assert_eq!(stage.answer(&["/l/a"]).await, ["/l/a", "/l/b"]);
    for it in waiting {
        assert!(it.now_or_never().is_some_and(|seen| seen.is_ok()));
    }
    assert!(poll!(other.as_mut()).is_pending());
}

#[tokio::test(start_paused = true)]
async fn refusal_is_told_and_a_lost_connection_is_not() {
    let stage = Stage::new();
    let mut gone = Box::pin(stage.lookout.gone("/l/a"));
    assert!(poll!(gone.as_mut()).is_pending());
    for error in [NodesError::Throttled, NodesError::NoAuth] {
        settle().await;
        let Some(Asked::List(_, answer)) = stage.nodes.asked() else {
            panic!("no look");
        };
        let is_lasting = error.is_lasting();
        assert!(answer.send(Err(error)).is_ok());
        settle().await;
        match poll!(gone.as_mut()) {
            std::task::Poll::Ready(Err(NodesError::NoAuth)) if is_lasting => return,
            seen => assert!(seen.is_pending() && !is_lasting, "{seen:?}"),
        }
        tokio::time::advance(PAUSE_MAX).await;
    }
}

#[tokio::test(start_paused = true)]
async fn looks_are_few_at_a_time_and_reach_all() {
    let stage = Stage::new();
    let paths: Vec<_> = (0..3 * BATCH_NODES)
        .map(|it| format!("/l/{it:05}"))
        .collect();
    let mut all: Vec<_> = paths
        .iter()
        .map(|path| Box::pin(stage.lookout.gone(path)))
        .collect();
    for it in &mut all {
        assert!(poll!(it).is_pending());
    }
    let mut seen = Vec::new();
    settle().await;
    for _ in 0..3 {
        let batch: Vec<_> = std::iter::from_fn(|| stage.nodes.asked()).collect();
        assert_eq!(batch.len(), BATCH_NODES);
        for asked in batch {
            let Asked::List(path, answer) = asked else {
                panic!("{asked:?}");
            };
            seen.push(path);
            assert!(answer.send(Ok(Vec::new())).is_ok());
        }
        settle().await;
    }
    assert_eq!(seen, paths);
    assert!(stage.nodes.asked().is_none());
}

#[test]
fn long_paths_make_small_requests() {
    let lookout = Lookout::new(&Traits::default());
    let looks: Vec<_> = (0..4)
        .map(|it| {
            let path = format!("/{it}{}", "x".repeat(BATCH_BYTES / 2 - 10));
            lookout.look(path.into(), oneshot::channel().0)
        })
        .collect();
    let first = lookout.batch_after(None);
    assert_eq!(first.len(), 2);
    assert_eq!(lookout.batch_after(first.last()).len(), 2);
    drop(looks);
    let long = format!("/{}", "x".repeat(2 * BATCH_BYTES));
    let _look = lookout.look(long.into(), oneshot::channel().0);
    assert_eq!(lookout.batch_after(None).len(), 1);
}

/// A round that takes long is followed by a long pause.
#[tokio::test(start_paused = true)]
async fn slow_store_is_looked_at_less_often() {
    let stage = Stage::new();
    let mut gone = Box::pin(stage.lookout.gone("/l/a"));
    assert!(poll!(gone.as_mut()).is_pending());
    settle().await;
    tokio::time::advance(10 * SECOND).await;
    assert_eq!(stage.answer(&[]).await, ["/l/a"]);
    tokio::time::advance(REST_MAX - SECOND).await;
    assert_eq!(stage.answer(&[]).await, [""; 0]);
    tokio::time::advance(2 * SECOND).await;
    assert_eq!(stage.answer(&[]).await, ["/l/a"]);
}

#[tokio::test(start_paused = true)]
async fn looks_become_rarer_while_nothing_changes() {
    let stage = Stage::new();
    let (mut one, mut other) = (
        Box::pin(stage.lookout.gone("/l/a")),
        Box::pin(stage.lookout.gone("/l/b")),
    );
    assert!(poll!(one.as_mut()).is_pending() && poll!(other.as_mut()).is_pending());
    for _ in 0..10 {
        stage.answer(&[]).await;
        tokio::time::advance(PAUSE_MAX).await;
    }
    assert_eq!(stage.answer(&["/l/a"]).await.len(), 2);
    // The next grant may depend on what was found.
    tokio::time::advance(PAUSE_MIN).await;
    assert_eq!(stage.answer(&[]).await, ["/l/b"]);
    tokio::time::advance(PAUSE_MIN).await;
    assert_eq!(stage.answer(&[]).await, [""; 0]);
}
