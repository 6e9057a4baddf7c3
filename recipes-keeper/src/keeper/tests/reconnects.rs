//! What a session is over its connections, lost ones and those of a client that panics.

use super::*;

#[tokio::test(start_paused = true)]
async fn next_wire_is_told_of_the_session_once_it_goes_on() {
    let mut scene = Scene::open(APART).await;
    scene.server.loss.send_replace(Some((1, Loss::Connection)));
    let resume = scene.call().await;
    assert_eq!(resume.function, Function::Resume);
    let words = ["5:12000000:secret", "5", "12000000", "2", "run", "0", "1,2"];
    assert_eq!(resume.words, words);
    assert!(scene.is_quiet().await);
    resume.answer([Value::Number(0), list([]), list([])]);
    assert_eq!(scene.started().await, (2, "5:12000000:secret:2".to_owned()));
    assert!(
        scene.nodes.connection().next().now_or_never().is_none(),
        "it is connected"
    );
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
    let resume = scene.call().await;
    assert_eq!(resume.function, Function::Resume);
    resume.answer([Value::Number(0), list([]), list([])]);
    assert_eq!(scene.started().await, (5, "5:12000000:secret:5".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn client_that_panics_while_it_connects_is_an_error() {
    let server = Arc::new(Scripted {
        heard: mpsc::unbounded_channel().0,
        shared: watch::Sender::new(None),
        loss: watch::Sender::new(None),
        kind: APART,
        panics: AtomicUsize::new(1),
    });
    let sessions = Sessions::new(Terms {
        server,
        connect_timeout: TIMEOUT,
        session_timeout: TIMEOUT,
        is_new: true,
        container_rest: TIMEOUT,
    });
    let Err(NodesError::Unknown(why)) = sessions.open("secret").await else {
        panic!("it was opened")
    };
    assert!(why.to_string().contains("no such plugin"), "{why}");
}

/// Nobody uses it any more: it is not to be kept.
#[tokio::test(start_paused = true)]
async fn session_that_is_closed_during_an_outage_is_closed_after_it() {
    let mut scene = Scene::open(TOGETHER).await;
    scene.server.loss.send_replace(Some((1, Loss::Connection)));
    let resume = scene.call().await;
    assert_eq!(resume.function, Function::Resume);
    let other = Scene::open(TOGETHER).await;
    scene.nodes = Arc::clone(&other.nodes);
    assert!(scene.is_quiet().await);
    resume.answer([Value::Number(0), list([]), list([])]);
    assert_eq!(scene.started().await.0, 2);
    assert_eq!(scene.call().await.function, Function::Close);
}

/// A server that has forgotten its last second knows the session by one of the last.
#[tokio::test(start_paused = true)]
async fn session_is_known_by_its_last_connections_however_many_there_were() {
    let mut scene = Scene::open(TOGETHER).await;
    for number in 2..40 {
        let loss = (number - 1, Loss::Connection);
        scene.server.loss.send_replace(Some(loss));
        let resume = scene.call().await;
        assert_eq!(resume.function, Function::Resume);
        let known_by = resume.words[6].split(',').map(str::parse::<u64>);
        let known_by: Vec<_> = known_by.map(Result::unwrap).collect();
        let last: Vec<_> = (1..=number).rev().take(4).collect();
        assert!(last.iter().all(|it| known_by.contains(it)), "{known_by:?}");
        assert!(known_by.len() < 16, "{known_by:?}");
        resume.answer([Value::Number(0), list([]), list([])]);
        assert_eq!(scene.started().await.0, number);
    }
}
