//! Requests that leave where they are asked for.

use std::task::{Context, Wake};

use super::*;

impl Scene {
    /// The requests that are on their way by now: nobody has had a turn since they were asked for.
    fn sent(&mut self) -> Option<Requests> {
        match self.heard.try_recv().ok()? {
            Heard::Requests(requests) => Some(requests),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn request_leaves_where_it_is_asked_for_if_the_connection_is_free() {
    let mut scene = Scene::open(ANYWHERE).await;
    assert!(scene.is_quiet().await);
    let nodes = Arc::clone(&scene.nodes);
    let first = nodes.list("/a");
    let call = scene.sent().expect("it has left");
    assert_eq!(*call.asked, [list("/a")]);
    // The connection is not free, so these leave together, in the order of the calls.
    let (second, third) = (nodes.list("/b"), nodes.list("/c"));
    assert!(scene.sent().is_none());
    let both = scene.requests().await;
    assert_eq!(*both.asked, [list("/b"), list("/c")]);
    // Answers that come in another order are handed out in theirs.
    both.answer([names(&["b"]), names(&["c"])]);
    call.answer([names(&["a"])]);
    assert_eq!(first.await.unwrap(), ["a"]);
    assert_eq!(second.await.unwrap(), ["b"]);
    assert_eq!(third.await.unwrap(), ["c"]);
    let again = nodes.list("/d");
    assert!(scene.sent().is_some(), "it is free again");
    drop(again);
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_together_leaves_together() {
    let mut scene = Scene::open(ANYWHERE).await;
    assert!(scene.is_quiet().await);
    let nodes = Arc::clone(&scene.nodes);
    let together = nodes.together();
    let (one, other) = (nodes.list("/a"), nodes.list("/b"));
    assert!(scene.sent().is_none());
    drop(together);
    let call = scene.sent().expect("it has left");
    assert_eq!(*call.asked, [list("/a"), list("/b")]);
    drop((one, other));
}

#[tokio::test(start_paused = true)]
async fn request_that_left_over_a_connection_that_is_lost_has_no_answer() {
    let mut scene = Scene::open(ANYWHERE).await;
    assert!(scene.is_quiet().await);
    let nodes = Arc::clone(&scene.nodes);
    scene.server.loss.send_replace(Some((1, Loss::Connection)));
    // The keeper does not know yet.
    let lost = nodes.list("/a");
    let lost_call = scene.sent().expect("it has left");
    let (_, resume) = scene.resume().await;
    assert!(matches!(lost.await, Err(NodesError::Unknown(_))));
    // From now on it waits for the next connection.
    let next = nodes.list("/b");
    assert!(scene.is_quiet().await);
    goes_on(resume);
    assert_eq!(scene.started().await.0, 2);
    let call = scene.requests().await;
    assert_eq!(call.caller.name(), "5:12000000:secret:2");
    call.answer([names(&["b"])]);
    assert_eq!(next.await.unwrap(), ["b"]);
    drop(lost_call);
}

#[tokio::test(start_paused = true)]
async fn request_that_cannot_be_sent_costs_the_connection() {
    let mut scene = Scene::open(Kind {
        is_broken: true,
        ..ANYWHERE
    })
    .await;
    assert!(scene.is_quiet().await);
    let nodes = Arc::clone(&scene.nodes);
    let began = tokio::time::Instant::now();
    let first = nodes.list("/a");
    assert!(matches!(first.await, Err(NodesError::Unknown(_))));
    assert_eq!(began.elapsed(), Duration::ZERO);
    let _resume = scene.resume().await;
}

#[tokio::test(start_paused = true)]
async fn close_sends_what_waits_and_hears_its_answers() {
    let mut scene = Scene::open(TOGETHER).await;
    let nodes = Arc::clone(&scene.nodes);
    let (first, second) = (nodes.delete("/a"), nodes.delete("/b"));
    let one = scene.requests().await;
    let third = nodes.delete("/c");
    // Nobody uses the session any more.
    let other = Scene::open(TOGETHER).await;
    scene.nodes = Arc::clone(&other.nodes);
    drop(nodes);
    let deleted = || Said::Multi(vec![NodeOpDone::Deleted]);
    one.answer([deleted(), deleted()]);
    let rest = scene.requests().await;
    let delete = NodeOp::Delete {
        path: "/c".to_owned(),
        version: None,
    };
    assert_eq!(*rest.asked, [Asked::Multi([delete].into())]);
    rest.answer([deleted()]);
    scene.is_closed().await;
    for deleted in [first, second, third] {
        deleted.await.unwrap();
    }
}

type Listed = BoxFuture<'static, Result<Vec<String>, NodesError>>;

/// Asks for something as soon as it is woken.
struct Asks {
    nodes: Arc<dyn Nodes>,
    asked: Mutex<Option<Listed>>,
}

impl Wake for Asks {
    fn wake(self: Arc<Self>) {
        let nodes = Arc::clone(&self.nodes);
        let mut listed = async move { nodes.list("/a").await }.boxed();
        assert!(listed.as_mut().now_or_never().is_none());
        self.asked.lock().unwrap().get_or_insert(listed);
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_told_that_the_connection_is_lost_and_asks_waits_for_the_next() {
    let mut scene = Scene::open(ANYWHERE).await;
    assert!(scene.is_quiet().await);
    let mut connection = scene.nodes.connection();
    let asks = Arc::new(Asks {
        nodes: Arc::clone(&scene.nodes),
        asked: Mutex::default(),
    });
    let waker = Waker::from(Arc::clone(&asks));
    while let Poll::Ready(state) = connection.poll_next_unpin(&mut Context::from_waker(&waker)) {
        assert_eq!(state, Some(Connection::Connected));
    }
    scene.server.loss.send_replace(Some((1, Loss::Connection)));
    let (_, resume) = scene.resume().await;
    let asked = asks.asked.lock().unwrap().take().expect("it was woken");
    goes_on(resume);
    assert_eq!(scene.started().await.0, 2);
    scene.requests().await.answer([names(&["a"])]);
    assert_eq!(asked.await.unwrap(), ["a"]);
}
