//! What a session is over its connections, lost ones and those of a client that panics.

use std::sync::Mutex;
use std::task::{Context, Wake};

use super::*;

#[tokio::test(start_paused = true)]
async fn next_wire_is_told_of_the_session_once_it_goes_on() {
    let mut scene = Scene::open(APART).await;
    scene.server.loss.send_replace(Some((1, Loss::Connection)));
    let (resume, reply) = scene.resume().await;
    assert_eq!(resume.caller.lasting_name(), "5:12000000:secret");
    assert_eq!((resume.caller.connection, &*resume.run), (2, "run"));
    assert_eq!(resume.known_by, [1, 2]);
    assert!(!resume.wants_nodes && resume.watches.is_empty());
    assert!(scene.is_quiet().await);
    goes_on(reply);
    assert_eq!(scene.started().await, (2, "5:12000000:secret:2".to_owned()));
    assert!(
        scene.nodes.connection().next().now_or_never().is_none(),
        "it is connected"
    );
}

/// Servers let only so many of them be.
#[tokio::test(start_paused = true)]
async fn lost_connection_is_closed_before_the_next_is_made() {
    let mut scene = Scene::open(APART).await;
    let wires = |scene: &Scene| Arc::strong_count(&scene.server.subscribed) - 1;
    assert_eq!(wires(&scene), 1);
    scene.lose(1);
    let _resume = scene.resume().await;
    assert_eq!(wires(&scene), 1);
}

/// The server chooses how to log in, and a client may know no such way.
#[tokio::test(start_paused = true)]
async fn client_that_panics_costs_connections_and_not_the_session() {
    let mut scene = Scene::open(Kind {
        panics: true,
        ..APART
    })
    .await;
    scene.server.panics.store(3, Ordering::Relaxed);
    scene.nodes.list("/a").await.unwrap_err();
    goes_on(scene.resume().await.1);
    assert_eq!(scene.started().await, (5, "5:12000000:secret:5".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn client_that_panics_while_it_connects_is_an_error() {
    let server = Arc::new(Scripted::new(mpsc::unbounded_channel().0, APART));
    server.panics.store(1, Ordering::Relaxed);
    let sessions = Sessions::new(server.terms());
    let Err(NodesError::Unknown(why)) = sessions.open("secret").await else {
        panic!("it was opened")
    };
    assert!(why.to_string().contains("no such plugin"), "{why}");
}

/// Whoever takes one answer for another may be granted what others hold.
#[tokio::test(start_paused = true)]
async fn answers_of_another_number_than_was_asked_for_cost_the_connection() {
    let mut scene = Scene::open(TOGETHER).await;
    let nodes = Arc::clone(&scene.nodes);
    for said in [vec![], vec![names(&["x"]), names(&["y"])]] {
        let listed = nodes.list("/a");
        scene.requests().await.answer(said);
        let (_, resume) = scene.resume().await;
        assert!(matches!(listed.await, Err(NodesError::Unknown(_))));
        let news = vec![None];
        let resumed = Resumed {
            news,
            ..Resumed::default()
        };
        drop(resume.send(Ok(Some(resumed))));
        goes_on(scene.resume().await.1);
        scene.started().await;
    }
}

/// Nobody uses it any more: it is not to be kept.
#[tokio::test(start_paused = true)]
async fn session_that_is_closed_during_an_outage_is_closed_after_it() {
    let mut scene = Scene::open(TOGETHER).await;
    scene.server.loss.send_replace(Some((1, Loss::Connection)));
    let (_, resume) = scene.resume().await;
    let other = Scene::open(TOGETHER).await;
    scene.nodes = Arc::clone(&other.nodes);
    assert!(scene.is_quiet().await);
    goes_on(resume);
    assert_eq!(scene.started().await.0, 2);
    scene.is_closed().await;
}

/// A server that has forgotten its last second knows the session by one of the last.
#[tokio::test(start_paused = true)]
async fn session_is_known_by_its_last_connections_however_many_there_were() {
    let mut scene = Scene::open(TOGETHER).await;
    for number in 2..40 {
        let loss = (number - 1, Loss::Connection);
        scene.server.loss.send_replace(Some(loss));
        let (Resume { known_by, .. }, reply) = scene.resume().await;
        let last: Vec<_> = (1..=number).rev().take(4).collect();
        assert!(last.iter().all(|it| known_by.contains(it)), "{known_by:?}");
        assert!(known_by.len() < 16, "{known_by:?}");
        goes_on(reply);
        assert_eq!(scene.started().await.0, number);
    }
}

/// Tries follow each other in milliseconds, and none of these may have reached the server.
#[tokio::test(start_paused = true)]
async fn session_is_known_by_its_last_answered_connection_however_many_were_not() {
    let mut scene = Scene::open(APART).await;
    scene.lose(1);
    for _ in 2..22 {
        drop(scene.resume().await.1);
    }
    goes_on(scene.resume().await.1);
    assert_eq!(scene.started().await.0, 22);
    // It forgets its last second.
    scene.lose(22);
    let (Resume { known_by, .. }, reply) = scene.resume().await;
    let expected: Vec<_> = (1..=23).collect();
    assert_eq!(known_by, expected);
    goes_on(reply);
    assert_eq!(scene.started().await.0, 23);
    scene.lose(23);
    let (Resume { known_by, .. }, _reply) = scene.resume().await;
    assert!(known_by.ends_with(&[22, 23, 24]), "{known_by:?}");
    assert!(known_by.len() < 16, "{known_by:?}");
}

#[tokio::test(start_paused = true)]
async fn session_that_is_over_when_it_is_taken_up_again_has_expired() {
    let mut scene = Scene::open(APART).await;
    let nodes = Arc::clone(&scene.nodes);
    scene.lose(1);
    let (_, reply) = scene.resume().await;
    let waits = nodes.list("/a");
    drop(reply.send(Ok(None)));
    let ended = waits.await;
    assert!(matches!(ended, Err(NodesError::SessionEnded)), "{ended:?}");
    let last = nodes.connection().next().await;
    assert_eq!(last, Some(Connection::Ended(EndReason::Expired)));
    assert!(scene.is_quiet().await);
}

/// What a session's connection was when somebody was woken first.
struct Woken(Arc<dyn Nodes>, Mutex<Option<Connection>>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        let now = self.0.connection().next().now_or_never().flatten();
        let mut seen = self.1.lock().unwrap();
        *seen = seen.or(now);
    }
}

/// Whoever asks again at once must not believe in the connection that has lost the answer.
#[tokio::test(start_paused = true)]
async fn who_is_refused_because_the_connection_is_lost_finds_it_lost() {
    let mut scene = Scene::open(APART).await;
    let nodes = Arc::clone(&scene.nodes);
    let mut listed = nodes.list("/a");
    let _call = scene.requests().await;
    let woken = Arc::new(Woken(Arc::clone(&nodes), Mutex::default()));
    let waker = Arc::clone(&woken).into();
    let polled = listed.poll_unpin(&mut Context::from_waker(&waker));
    assert!(polled.is_pending());
    scene.lose(1);
    let _resume = scene.resume().await;
    let seen = *woken.1.lock().unwrap();
    assert_eq!(seen, Some(Connection::Disconnected));
}
