//! What a ring tells, and when: with a server whose looks are written down before.

use std::collections::VecDeque;
use std::future::pending;
use std::sync::{Arc, Mutex};

use futures::future::{BoxFuture, FutureExt, ready};
use recipes_keeper::Seen;
use tokio::sync::oneshot::Receiver;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::*;
use crate::aside::Beat;

/// The session whose news are told.
const ME: i64 = 1;
const OTHER: i64 = 2;

/// A server that rings.
struct Scripted {
    /// What looks find, one after the other. When all are used up, no look ends.
    found: Mutex<VecDeque<Result<Polled, CallError>>>,
    /// How many looks have begun.
    looks: watch::Sender<usize>,
    /// The watches that the last look was for.
    asked: Mutex<Vec<u64>>,
}

impl Aside for Scripted {
    fn beat(&self) -> BoxFuture<'_, Result<Option<Beat>, CallError>> {
        pending().boxed()
    }

    fn poll<'a>(
        &'a self,
        watches: &'a [Rewatch],
        _wants_ahead: bool,
    ) -> BoxFuture<'a, Result<Polled, CallError>> {
        *self.asked.lock().unwrap() = watches.iter().map(|it| it.number).collect();
        self.looks.send_modify(|count| *count += 1);
        match self.found.lock().unwrap().pop_front() {
            Some(found) => ready(found).boxed(),
            None => pending().boxed(),
        }
    }

    /// A ring is the number of the watch.
    fn deletion(&self, ring: &str) -> Option<(u64, NodeEvent)> {
        Some((ring.parse().ok()?, NodeEvent::DeletedAsFirst))
    }

    fn ring(&self, _is_wanted: bool) -> BoxFuture<'_, Result<bool, CallError>> {
        ready(Ok(true)).boxed()
    }
}

fn watch(watches: &Watches, path: &str, owner: i64) -> (u64, Receiver<NodeEvent>) {
    let (number, news) = watches.enter(path);
    let (czxid, mzxid) = (1, 1);
    let seen = Seen {
        czxid,
        mzxid,
        owner,
    };
    watches.confirm(path, number, seen);
    (number, news)
}

/// A session that watches its own node, and that of another ahead of it.
struct Scene {
    server: Arc<Scripted>,
    bell: Arc<Bell>,
    watches: Arc<Watches>,
    _own: Receiver<NodeEvent>,
    ahead: Receiver<NodeEvent>,
    /// The ring for the node ahead.
    ring: String,
    telling: JoinHandle<Loss>,
}

impl Scene {
    fn begin(found: impl IntoIterator<Item = Result<Polled, CallError>>) -> Self {
        let server = Arc::new(Scripted {
            found: Mutex::new(found.into_iter().collect()),
            looks: watch::Sender::new(0),
            asked: Mutex::default(),
        });
        let (watches, bell) = (Arc::new(Watches::default()), Arc::new(Bell::default()));
        let (_, _own) = watch(&watches, "/a/own", ME);
        let (number, ahead) = watch(&watches, "/a/ahead", OTHER);
        let telling = {
            let (server, bell) = (Arc::clone(&server), Arc::clone(&bell));
            let watches = Arc::clone(&watches);
            tokio::spawn(async move { tell(&*server, &watches, ME, 0, &bell).await })
        };
        Self {
            server,
            bell,
            watches,
            _own,
            ahead,
            ring: number.to_string(),
            telling,
        }
    }

    async fn has_looked(&self, times: usize) {
        let mut looks = self.server.looks.subscribe();
        looks.wait_for(|count| *count >= times).await.unwrap();
    }

    fn looks(&self) -> usize {
        *self.server.looks.borrow()
    }

    fn rings(&self, said: &str) {
        self.bell.signal(|it| it.rung.ring(said));
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.telling.abort();
    }
}

/// A look that finds nothing, and nobody at work at a watched node.
fn still() -> Result<Polled, CallError> {
    Ok(Polled {
        news: vec![None, None],
        ahead: None,
        is_still: true,
        is_own_still: true,
    })
}

fn busy() -> Result<Polled, CallError> {
    let why = std::io::Error::other("no time");
    Err(CallError::NotNow(Arc::new(why)))
}

/// What is told of the node ahead until nothing happens any more.
async fn told(scene: &mut Scene) -> Option<NodeEvent> {
    let ahead = timeout(Duration::from_secs(60), &mut scene.ahead).await;
    ahead.ok().map(|event| event.expect("a watch"))
}

#[tokio::test(start_paused = true)]
async fn deletion_that_a_ring_proves_is_told_before_a_look() {
    let mut scene = Scene::begin([still()]);
    scene.has_looked(1).await;
    scene.rings(&scene.ring);
    assert_eq!(told(&mut scene).await, Some(NodeEvent::DeletedAsFirst));
    assert_eq!(scene.looks(), 1);
}

/// Nobody saw the node before its watch was there, so its loss would have been rung.
#[tokio::test(start_paused = true)]
async fn ring_is_believed_before_a_look_if_the_own_node_was_created_with_its_watch() {
    for is_created in [true, false] {
        let mut scene = Scene::begin([still()]);
        scene.has_looked(1).await;
        let (number, _own) = watch(&scene.watches, "/a/next", ME);
        if is_created {
            scene.bell.signal(|it| it.created.push(number));
        }
        scene.rings(&scene.ring);
        let expected = is_created.then_some(NodeEvent::DeletedAsFirst);
        assert_eq!(told(&mut scene).await, expected);
    }
}

/// The session has told it itself.
#[cfg(feature = "postgres")]
#[tokio::test(start_paused = true)]
async fn ring_is_believed_after_a_change_of_the_session_that_is_told() {
    let mut scene = Scene::begin([still()]);
    scene.has_looked(1).await;
    scene.bell.changes();
    scene.bell.told();
    scene.rings(&scene.ring);
    assert_eq!(told(&mut scene).await, Some(NodeEvent::DeletedAsFirst));
    assert_eq!(scene.looks(), 1);
}

#[tokio::test(start_paused = true)]
async fn no_ring_is_believed_before_the_first_look_is_over() {
    let mut scene = Scene::begin([]);
    scene.rings(&scene.ring);
    assert_eq!(told(&mut scene).await, None);
    assert_eq!(scene.looks(), 1);
}

/// The ring that says nothing may have been for the loss of the own node.
#[tokio::test(start_paused = true)]
async fn no_ring_is_believed_after_a_look_that_the_server_had_no_time_for() {
    let mut scene = Scene::begin([still(), busy()]);
    scene.has_looked(1).await;
    scene.rings("");
    scene.has_looked(2).await;
    scene.rings(&scene.ring);
    assert_eq!(told(&mut scene).await, None);
    assert_eq!(scene.looks(), 3);
}

#[tokio::test(start_paused = true)]
async fn no_ring_is_believed_beside_one_that_says_nothing() {
    let mut scene = Scene::begin([still()]);
    scene.has_looked(1).await;
    scene.rings("");
    scene.rings(&scene.ring);
    assert_eq!(told(&mut scene).await, None);
    assert_eq!(scene.looks(), 2);
}

#[cfg(feature = "postgres")]
#[tokio::test(start_paused = true)]
async fn no_ring_is_believed_while_a_change_of_the_session_is_under_way() {
    let mut scene = Scene::begin([still()]);
    scene.has_looked(1).await;
    scene.bell.changes();
    scene.rings(&scene.ring);
    assert_eq!(told(&mut scene).await, None);
    assert_eq!(scene.looks(), 2);
}
