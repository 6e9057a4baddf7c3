//! Creates without an answer, late ones and refused ones.

use std::pin::Pin;

use super::*;
use crate::store::nodes::NodesError;

/// The connection breaks before the server answers the create.
#[tokio::test(start_paused = true)]
async fn node_of_an_unknown_create_is_looked_for_behind_a_commit_and_made_with_the_same_name() {
    let stage = Stage::new().await;
    let lock = internals(&stage, "/a", 0);
    let mut acquire = Box::pin(lock.acquire(None, Deadline::never()));
    let mut requested = Vec::new();
    for _ in 0..3 {
        assert!(poll!(acquire.as_mut()).is_pending());
        let mut listed = None;
        while let Some(asked) = stage.nodes.asked() {
            match asked {
                Asked::Create(node, answer) => {
                    requested.push(node.path);
                    answer.send(Err(unknown())).unwrap();
                }
                Asked::List(_, answer) => listed = Some(answer),
                Asked::Watch(_, answer) => assert!(answer.send(Ok(None)).is_ok()),
                _ => {}
            }
        }
        listed.unwrap().send(Ok(Vec::new())).unwrap();
        assert!(poll!(acquire.as_mut()).is_pending());
        // A deposed leader would still answer a listing or a `sync`, so only a commit counts.
        let Some(Asked::Multi(operations, committed)) = stage.nodes.asked() else {
            panic!("nothing is committed before the search");
        };
        assert_eq!(operations.len(), 1);
        assert!(stage.nodes.asked().is_none(), "looked for too early");
        committed.send(Ok(Vec::new())).unwrap();
        assert!(poll!(acquire.as_mut()).is_pending());
        let Some(Asked::List(_, listed)) = stage.nodes.asked() else {
            panic!("not looked for");
        };
        listed.send(Ok(vec![OTHER.to_owned()])).unwrap();
    }
    assert_eq!(requested.len(), 3);
    // All creates have one name, so the search finds whichever was carried out.
    assert!(
        requested.iter().all(|it| *it == requested[0]),
        "{requested:?}"
    );
}

/// Another contender may have held the lock by now.
#[tokio::test(start_paused = true)]
async fn grant_that_is_answered_past_its_deadline_waits_for_a_commit() {
    let stage = Stage::new().await;
    let lock = internals(&stage, "/a", 0);
    let mut acquire = Box::pin(lock.acquire(None, Deadline::never()));
    assert!(poll!(acquire.as_mut()).is_pending());
    let entering = entering(&stage).await;
    jump(T / 2);
    let Entering { path, name, .. } = entering;
    let czxid = Some(5);
    entering.created.send(Ok(Created { path, czxid })).unwrap();
    entering.listed.send(Ok(vec![name.clone()])).unwrap();
    assert!(poll!(acquire.as_mut()).is_pending());
    let sent = Instant::now();
    let mut granted = None;
    for _ in 0..10 {
        while let Some(asked) = stage.nodes.asked() {
            match asked {
                Asked::Multi(operations, answer) => {
                    assert_eq!(operations.len(), 1);
                    drop(answer.send(Ok(Vec::new())));
                }
                Asked::List(_, answer) => drop(answer.send(Ok(vec![name.clone()]))),
                Asked::Create(..) => panic!("its place is given up"),
                _ => {}
            }
        }
        if let Poll::Ready(guard) = poll!(acquire.as_mut()) {
            granted = guard.ok();
            break;
        }
    }
    let granted = granted.unwrap();
    assert!(granted.is_valid());
    assert_eq!(granted.valid_until(), Some(sent + T / 2));
}

#[tokio::test(start_paused = true)]
async fn grant_counts_from_the_sending_of_its_create() {
    let stage = Stage::new().await;
    let lock = internals(&stage, "/a", 0);
    tokio::time::advance(SECOND).await;
    let mut acquire = Box::pin(lock.acquire(None, Deadline::never()));
    assert!(poll!(acquire.as_mut()).is_pending());
    let Entering {
        path,
        name,
        created,
        listed,
    } = entering(&stage).await;
    jump(3 * SECOND);
    let czxid = Some(5);
    created.send(Ok(Created { path, czxid })).unwrap();
    listed.send(Ok(vec![name])).unwrap();
    let granted = acquire.await.unwrap();
    assert_eq!(granted.valid_until(), Some(stage.start + SECOND + T / 2));
}

#[tokio::test(start_paused = true)]
async fn refused_create_leaves_nothing_to_look_for_and_nothing_behind() {
    let stage = Stage::new().await;
    let lock = internals(&stage, "/a", 0);
    let mut acquire = Box::pin(lock.acquire(None, Deadline::never()));
    assert!(poll!(acquire.as_mut()).is_pending());
    let Entering {
        created, listed, ..
    } = entering(&stage).await;
    created
        .send(Err(crate::store::nodes::NodesError::NoAuth))
        .unwrap();
    listed.send(Ok(Vec::new())).unwrap();
    let refused = acquire.await.unwrap_err().into_error();
    assert!(
        matches!(refused, AcquireError::NotAuthorized { .. }),
        "{refused}"
    );
    assert!(stage.log().await.is_empty());
    drop(lock);
    let table = format!("{:?}", stage.session.paths());
    assert!(table.contains("paths: 0"), "{table}");
}

/// Fails the create of an acquire, which then looks for its node and finds none.
async fn is_not_found(stage: &Stage, mut acquire: Pin<&mut (impl Future + Unpin)>) {
    let Entering {
        created, listed, ..
    } = entering(stage).await;
    created.send(Err(unknown())).unwrap();
    listed.send(Ok(Vec::new())).unwrap();
    assert!(poll!(acquire.as_mut()).is_pending());
    let Asked::Multi(_, committed) = stage.asked().await else {
        panic!("nothing is committed");
    };
    committed.send(Ok(Vec::new())).unwrap();
    assert!(poll!(acquire.as_mut()).is_pending());
    listing(stage).await.send(Ok(Vec::new())).unwrap();
    assert!(poll!(acquire.as_mut()).is_pending());
}

/// The answer to the second does not tell what has become of the first.
#[tokio::test(start_paused = true)]
async fn both_creates_are_looked_for_when_the_second_is_given_up() {
    let stage = Stage::new().await;
    let lock = internals(&stage, "/a", 0);
    let mut acquire = Box::pin(lock.acquire(None, Deadline::never()));
    assert!(poll!(acquire.as_mut()).is_pending());
    is_not_found(&stage, Pin::new(&mut acquire)).await;
    let _second = entering(&stage).await;
    drop(acquire);
    assert_eq!(stage.log().await, ["multi of 1", "list /a"]);
}

#[tokio::test(start_paused = true)]
async fn create_that_the_store_has_no_room_for_is_sent_again_after_a_pause() {
    let stage = Stage::new().await;
    let lock = internals(&stage, "/a", 0);
    let mut acquire = Box::pin(lock.acquire(None, Deadline::never()));
    let mut paths = Vec::new();
    for _ in 0..3 {
        assert!(poll!(acquire.as_mut()).is_pending());
        let Entering {
            path,
            created,
            listed,
            ..
        } = entering(&stage).await;
        paths.push(path);
        created.send(Err(NodesError::Throttled)).unwrap();
        listed.send(Ok(Vec::new())).unwrap();
        assert!(poll!(acquire.as_mut()).is_pending());
        assert!(stage.log().await.is_empty(), "there is no pause");
        tokio::time::advance(SECOND).await;
    }
    assert!(poll!(acquire.as_mut()).is_pending());
    let Entering {
        path,
        name,
        created,
        listed,
    } = entering(&stage).await;
    assert!(paths.iter().all(|it| *it == path), "{paths:?}");
    let czxid = Some(5);
    created.send(Ok(Created { path, czxid })).unwrap();
    listed.send(Ok(vec![name])).unwrap();
    assert!(acquire.await.unwrap().is_valid());
}

/// The attempt is to find its own node, which may be there: adopting another would forget it.
#[tokio::test(start_paused = true)]
async fn attempt_with_a_create_of_unknown_outcome_adopts_no_other() {
    let stage = Stage::new().await;
    let lock = internals(&stage, "/a", 0);
    let mut acquire = Box::pin(lock.acquire(None, Deadline::never()));
    assert!(poll!(acquire.as_mut()).is_pending());
    let first = entering(&stage).await;
    let path = first.path;
    first.created.send(Err(unknown())).unwrap();
    first.listed.send(Ok(Vec::new())).unwrap();
    assert!(poll!(acquire.as_mut()).is_pending());
    let Asked::Multi(_, committed) = stage.asked().await else {
        panic!("nothing is committed");
    };
    committed.send(Ok(Vec::new())).unwrap();
    assert!(poll!(acquire.as_mut()).is_pending());
    let listed = listing(&stage).await;
    // Another one is given up before its answer.
    let mut other = Box::pin(lock.acquire(None, Deadline::never()));
    assert!(poll!(other.as_mut()).is_pending());
    let _unanswered = entering(&stage).await;
    drop(other);
    settle().await;
    listed.send(Ok(Vec::new())).unwrap();
    assert!(poll!(acquire.as_mut()).is_pending());
    assert_eq!(entering(&stage).await.path, path);
}

#[tokio::test(start_paused = true)]
async fn grant_waits_until_the_store_knows_all_holders_and_is_confirmed_then() {
    let stage = Stage::new().await;
    let lock = internals(&stage, "/a", 0);
    let mut acquire = Box::pin(lock.acquire(None, Deadline::never()));
    assert!(poll!(acquire.as_mut()).is_pending());
    let Entering {
        path,
        name,
        created,
        listed,
    } = entering(&stage).await;
    *crate::sync::lock(&stage.nodes.grants_from) = Some(Instant::now() + SECOND);
    let czxid = Some(5);
    created.send(Ok(Created { path, czxid })).unwrap();
    listed.send(Ok(vec![name])).unwrap();
    assert!(poll!(acquire.as_mut()).is_pending());
    assert!(stage.log().await.is_empty());
    tokio::time::advance(SECOND + SECOND / 100).await;
    assert!(poll!(acquire.as_mut()).is_pending(), "the listing is old");
    let log = stage.log().await;
    assert!(log.iter().any(|it| it == "multi of 1"), "{log:?}");
}
