use std::collections::VecDeque;

use futures::future::{BoxFuture, FutureExt};
use futures::poll;

use super::*;
use crate::error::{AcquireError, ConnectError, Error};
use crate::lock::session::Session;
use crate::scripted::{Answer, Asked, SECOND, Scripted, Sessions, Stage, T, settle, unknown};
use crate::session::options::SessionOptions;
use crate::sync::{Mutex, lock};

/// A store that says this when it is connected to, and then the last of it for ever.
#[derive(Debug)]
struct Says {
    all: Mutex<VecDeque<Result<Arc<Scripted>, NodesError>>>,
    reopens: bool,
    connects: Mutex<usize>,
}

impl Says {
    fn new(all: impl IntoIterator<Item = Result<Arc<Scripted>, NodesError>>) -> Self {
        Self {
            all: Mutex::new(all.into_iter().collect()),
            reopens: true,
            connects: Mutex::default(),
        }
    }

    fn connects(&self) -> usize {
        *lock(&self.connects)
    }
}

impl Store for Says {
    fn traits(&self) -> Traits {
        Traits {
            reopens: self.reopens,
            ..Traits::default()
        }
    }

    fn connect(&self) -> BoxFuture<'_, Result<Arc<dyn Nodes>, NodesError>> {
        *lock(&self.connects) += 1;
        let mut all = lock(&self.all);
        let says = match all.len() {
            1 => all.front().cloned(),
            _ => all.pop_front(),
        };
        let nodes = says.unwrap().map(|it| it as Arc<dyn Nodes>);
        async { nodes }.boxed()
    }
}

fn expires(nodes: &Scripted) {
    nodes.connection_is(Connection::Ended(EndReason::Expired));
}

/// Why no epoch is open, and none will be.
async fn why_over(session: &Session) -> AcquireError {
    let opened = tokio::time::timeout(T, session.core().open_epoch("/a")).await;
    opened.expect("it does not wait for ever").unwrap_err()
}

fn opens() -> Arc<Scripted> {
    Scripted::new(Some(T))
}

#[tokio::test(start_paused = true)]
async fn what_no_retry_mends_ends_the_session_at_once() {
    let store = Arc::new(Says::new([Err(NodesError::NoAuth)]));
    let session = SessionOptions::new().start(Arc::clone(&store) as Arc<dyn Store>);
    let refused = why_over(&session).await;
    assert!(
        matches!(refused, AcquireError::SessionEnded { .. }),
        "{refused}"
    );
    // Also for who comes later, and who waits for something else.
    let over = session.core().over("/a").await;
    assert!(matches!(over, AcquireError::SessionEnded { .. }), "{over}");
    assert_eq!(store.connects(), 1);
}

#[tokio::test(start_paused = true)]
async fn store_that_cannot_be_reached_is_asked_with_pauses_until_it_can() {
    let failures = (0..9).map(|_| Err(unknown()));
    let store = Arc::new(Says::new(failures.chain([Ok(opens())])));
    let began = Instant::now();
    let session = SessionOptions::new().start(Arc::clone(&store) as Arc<dyn Store>);
    session.core().open_epoch("/a").await.unwrap();
    assert_eq!(store.connects(), 10);
    let time = began.elapsed();
    assert!(time > SECOND && time < 5 * SECOND, "{time:?}");
}

/// Each makes all contenders queue again.
#[tokio::test(start_paused = true)]
async fn sessions_that_end_soon_are_followed_with_pauses_and_others_at_once() {
    let dead = opens();
    expires(&dead);
    let (long, last) = (opens(), opens());
    let soon = (0..9).map(|_| Ok(Arc::clone(&dead)));
    let store = Arc::new(Says::new(soon.chain([
        Ok(Arc::clone(&long)),
        Ok(Arc::clone(&dead)),
        Ok(last),
    ])));
    let began = Instant::now();
    let _session = SessionOptions::new().start(Arc::clone(&store) as Arc<dyn Store>);
    while store.connects() < 10 {
        settle().await;
        tokio::time::advance(SECOND / 1000).await;
    }
    let time = began.elapsed();
    assert!(time > SECOND && time < 5 * SECOND, "{time:?}");
    tokio::time::advance(2 * SECOND).await;
    expires(&long);
    settle().await;
    assert_eq!(store.connects(), 11, "there is no pause");
    // That was a new beginning: the first pause is short again.
    tokio::time::advance(SECOND / 10).await;
    settle().await;
    assert_eq!(store.connects(), 12);
}

#[tokio::test(start_paused = true)]
async fn session_that_its_store_does_not_open_again_is_over() {
    let nodes = opens();
    let store = Arc::new(Says {
        reopens: false,
        ..Says::new([Ok(Arc::clone(&nodes))])
    });
    let session = SessionOptions::new().start(Arc::clone(&store) as Arc<dyn Store>);
    session.core().open_epoch("/a").await.unwrap();
    expires(&nodes);
    settle().await;
    let over = why_over(&session).await;
    assert!(matches!(over, AcquireError::SessionEnded { .. }), "{over}");
    assert_eq!(store.connects(), 1);
}

/// Whoever starts another process then finds its locks free.
#[tokio::test(start_paused = true)]
async fn close_waits_until_the_store_has_ended_the_session() {
    let stage = Stage::new().await;
    let mut closing = Box::pin(stage.session.close());
    assert!(poll!(closing.as_mut()).is_pending());
    tokio::time::advance(SECOND).await;
    settle().await;
    assert!(poll!(closing.as_mut()).is_pending());
    assert!(stage.epoch.nodes().is_err(), "it is given up");
    stage
        .nodes
        .connection_is(Connection::Ended(EndReason::Closed));
    settle().await;
    assert!(poll!(closing.as_mut()).is_ready());
}

/// A guard of it does not keep the session of a store open.
#[tokio::test(start_paused = true)]
async fn epoch_that_is_over_has_no_session() {
    for reason in [EndReason::Expired, EndReason::AuthFailed] {
        let stage = Stage::new().await;
        stage.nodes.connection_is(Connection::Ended(reason));
        settle().await;
        assert!(stage.epoch.nodes().is_err());
    }
}

async fn deleting(stage: &Stage) -> Answer<()> {
    match stage.asked().await {
        Asked::Delete(_, answer) => answer,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn close_waits_for_its_deletes_while_there_is_a_connection_or_soon_another() {
    for is_lost in [false, true] {
        let stage = Stage::new().await;
        let _lease = stage.lease(1);
        let mut closing = Box::pin(stage.session.close());
        assert!(poll!(closing.as_mut()).is_pending());
        let deleted = deleting(&stage).await;
        if is_lost {
            stage.nodes.connection_is(Connection::Disconnected);
            settle().await;
            tokio::time::advance(SECOND).await;
            stage.nodes.connection_is(Connection::Connected);
            settle().await;
        }
        tokio::time::advance(3 * SECOND).await;
        settle().await;
        assert!(poll!(closing.as_mut()).is_pending());
        assert!(stage.epoch.nodes().is_ok(), "it still deletes");
        deleted.send(Ok(())).unwrap();
        settle().await;
        assert!(stage.epoch.nodes().is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn close_does_not_wait_for_the_end_of_an_outage() {
    let stage = Stage::new().await;
    let _lease = stage.lease(1);
    let mut closing = Box::pin(stage.session.close());
    assert!(poll!(closing.as_mut()).is_pending());
    let _deleted = deleting(&stage).await;
    stage.nodes.connection_is(Connection::Disconnected);
    settle().await;
    tokio::time::advance(SECOND).await;
    settle().await;
    assert!(poll!(closing.as_mut()).is_pending());
    tokio::time::advance(SECOND).await;
    settle().await;
    assert!(poll!(closing.as_mut()).is_ready());
}

#[tokio::test(start_paused = true)]
async fn open_waits_for_the_session_as_long_as_it_may() {
    let slow = SessionOptions::new().open(Sessions::of(&opens(), 3 * SECOND), "here");
    assert!(slow.await.is_ok());
    let refuses = Says::new([Err(NodesError::NoAuth)]);
    let refused = SessionOptions::new().open(Arc::new(refuses), "here").await;
    let Err(Error::Connect(ConnectError::Refused { address, .. })) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(address, "here");
    let began = Instant::now();
    let fails = Says::new([Err(unknown())]);
    let options = SessionOptions::new().connect_timeout(5 * SECOND);
    let late = options.open(Arc::new(fails), "here").await;
    let Err(Error::Connect(ConnectError::TimedOut { waited, .. })) = late else {
        panic!("{late:?}");
    };
    assert_eq!(waited, 5 * SECOND);
    assert!(began.elapsed() >= waited && began.elapsed() < 6 * SECOND);
}
