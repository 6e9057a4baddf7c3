//! How a session begins.

use tokio::time::Instant;

use super::*;
use recipes_core::{NodesError, Store as _};

use crate::wire::{Open, Opened};

const SECOND: Duration = Duration::from_secs(1);

fn told(quarantine: Duration, doubt: Duration) -> Opened {
    Opened {
        id: 5,
        quarantine,
        doubt,
    }
}

/// A holder in an earlier run of the server may not have noticed yet that it has forgotten the lock.
#[tokio::test(start_paused = true)]
async fn run_is_known_only_to_who_knows_that_the_store_is_new() {
    for is_new in [true, false] {
        let (says, mut heard) = mpsc::unbounded_channel();
        let server = Arc::new(Scripted::new(says, TOGETHER));
        *server.facts.lock().unwrap() = Facts {
            run: "run".to_owned(),
            guarantee: Guarantee::BestEffort,
        };
        let terms = Terms {
            is_new,
            ..server.terms()
        };
        let sessions = Sessions::new(terms);
        // One that was opened proves that there was a store.
        for is_known in [is_new, false] {
            let opens = async {
                match heard.recv().await {
                    Some(Heard::Open(Open { is_known, .. }, reply)) => {
                        let opened = told(SECOND, SECOND);
                        drop(reply.send(Ok(opened)));
                        is_known
                    }
                    other => panic!("{other:?}"),
                }
            };
            let (nodes, told) = tokio::join!(sessions.open("secret"), opens);
            assert_eq!(told, is_known, "{is_new}");
            assert_eq!(nodes.unwrap().guarantee(), Guarantee::BestEffort);
            while !matches!(heard.recv().await, Some(Heard::Close(_))) {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn session_tells_what_it_was_told_when_it_was_opened() {
    let began = Instant::now();
    let scene = Scene::told(TOGETHER, told(SECOND * 3, SECOND * 4)).await;
    let Scene { nodes, server, .. } = &scene;
    assert_eq!(nodes.session(), 5);
    assert_eq!(nodes.session_timeout(), Some(TIMEOUT));
    assert_eq!(nodes.grants_from(), Some(began + SECOND * 3));
    // The session's own beat ends the others, a twelfth of the timeout later at the latest.
    assert_eq!(nodes.in_doubt_until(), Some(began + SECOND * 5));
    assert_eq!(*server.subscribed.lock().unwrap(), [(1, 5)]);
    let scene = Scene::open(TOGETHER).await;
    assert_eq!(scene.nodes.grants_from(), None);
    assert_eq!(scene.nodes.in_doubt_until(), None);
}

#[tokio::test(start_paused = true)]
async fn why_no_session_is_opened_is_told_once() {
    let server = Arc::new(Scripted::new(mpsc::unbounded_channel().0, APART));
    server.panics.store(1, Ordering::Relaxed);
    let sessions = Sessions::new(server.terms());
    sessions.open("secret").await.map(drop).unwrap_err();
    for expected in ["no such plugin", "did not answer within 7s, behind a proxy"] {
        let why = sessions.diagnose().await.unwrap().to_string();
        assert!(why.contains(expected), "{why}");
    }
}

/// Another server may be promoted in a moment.
#[tokio::test(start_paused = true)]
async fn refusal_that_may_pass_is_no_reason_to_give_up_where_the_server_may_move() {
    let (says, mut heard) = mpsc::unbounded_channel();
    let server = Arc::new(Scripted::new(says, TOGETHER));
    let sessions = Sessions::new(server.terms());
    let mut open = async |told: Result<Opened, &'static str>| {
        let told = told.map_err(|why| CallError::Refused(Arc::new(std::io::Error::other(why))));
        let opens = async {
            match heard.recv().await {
                Some(Heard::Open(_, reply)) => drop(reply.send(told)),
                other => panic!("{other:?}"),
            }
        };
        let (opened, ()) = tokio::join!(sessions.open("secret"), opens);
        let opened = opened.map(drop);
        if opened.is_ok() {
            while !matches!(heard.recv().await, Some(Heard::Close(_))) {}
        }
        opened
    };
    let refused = |it: Result<(), NodesError>| matches!(it, Err(NodesError::Refused(_)));
    let passes = |it: Result<(), NodesError>| matches!(it, Err(NodesError::Unknown(_)));
    assert!(refused(open(Err("replica")).await));
    server.moves.store(true, Ordering::Relaxed);
    assert!(passes(open(Err("replica")).await));
    assert!(refused(open(Err("version")).await));
    server.moves.store(false, Ordering::Relaxed);
    open(Ok(told(SECOND, SECOND))).await.unwrap();
    // Where a session was, one may be again.
    assert!(passes(open(Err("replica")).await));
    assert!(refused(open(Err("version")).await));
}
