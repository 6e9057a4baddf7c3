use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::poll;
use tokio::time::Instant;

use super::*;
use crate::driver::internals::LockInternals;
use crate::lock::hold::Hold;
use crate::scripted::{Answer, Asked, SECOND, Stage, T, jump, node, settle, unknown};
use crate::session::options::{LockOptions, SessionOptions};
use crate::store::nodes::Created;

mod creates;
mod holders;

const OTHER: &str = "_c_00000000-0000-4000-8000-000000000001-lock-0000000000";

fn internals(stage: &Stage, path: &str, handoffs: u32) -> LockInternals {
    let options = LockOptions::new().local_handoffs(handoffs);
    LockInternals::new(&stage.session, path, LockKind::Mutex, &options).unwrap()
}

async fn listing(stage: &Stage) -> Answer<Vec<String>> {
    loop {
        if let Asked::List(_, answer) = stage.asked().await {
            return answer;
        }
    }
}

fn is_write(asked: &str) -> bool {
    ["create", "delete", "multi"]
        .iter()
        .any(|it| asked.starts_with(it))
}

#[tokio::test(start_paused = true)]
async fn try_does_not_wait_for_a_turn() {
    let stage = Stage::new().await;
    let lock = internals(&stage, "/a", 1);
    let queue = Arc::clone(lock.target.lock.local_queue(LockKind::Mutex).unwrap());
    let turn = queue.take_for_test();
    let tried = lock.acquire(None, Deadline::of_try(None)).now_or_never();
    assert!(matches!(tried, Some(Err(Refusal::Busy(_)))), "{tried:?}");
    let at_once = Deadline::after(Duration::ZERO);
    let tried = lock.acquire(None, at_once).now_or_never();
    assert!(
        matches!(
            tried,
            Some(Err(Refusal::Failed(AcquireError::TimedOut { .. })))
        ),
        "{tried:?}"
    );
    assert!(stage.log().await.is_empty());
    drop(turn);
    let mut tried = Box::pin(lock.acquire(None, Deadline::of_try(None)));
    assert!(poll!(tried.as_mut()).is_pending(), "it is free");
}

#[tokio::test(start_paused = true)]
async fn try_does_not_wait_for_an_attempt_of_its_owner() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let lock = internals(&stage, "/a", 0);
    let mut waiter = Box::pin(lock.acquire(Some(&owner), Deadline::never()));
    assert!(poll!(waiter.as_mut()).is_pending());
    let tried = lock
        .acquire(Some(&owner), Deadline::of_try(None))
        .now_or_never();
    assert!(matches!(tried, Some(Err(Refusal::Busy(_)))), "{tried:?}");
}

/// The attempt of a try ends when the lock is busy. An acquire that joined it waits on.
#[tokio::test(start_paused = true)]
async fn waiter_that_joined_a_try_of_its_owner_waits_on_when_that_finds_the_lock_busy() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let lock = internals(&stage, "/a", 0);
    let mut tried = Box::pin(lock.acquire(Some(&owner), Deadline::of_try(None)));
    assert!(poll!(tried.as_mut()).is_pending());
    let mut waiter = Box::pin(lock.acquire(Some(&owner), Deadline::never()));
    assert!(poll!(waiter.as_mut()).is_pending());
    let listed = listing(&stage).await;
    listed.send(Ok(vec![OTHER.to_owned()])).unwrap();
    let busy = tried.await;
    assert!(matches!(busy, Err(Refusal::Busy(_))), "{busy:?}");
    assert!(poll!(waiter.as_mut()).is_pending());
    let asked = stage.log().await;
    assert!(asked.iter().any(|it| it.starts_with("create")), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn try_writes_nothing_where_a_lock_of_its_set_is_busy() {
    for busy in 0..3 {
        let stage = Stage::new().await;
        let set = ["/a", "/b", "/c"].map(|path| internals(&stage, path, 0));
        let set = OneOrMore::new(set.to_vec()).unwrap();
        let mut tried = Box::pin(acquire_all(&set, None, Deadline::of_try(None)));
        assert!(poll!(tried.as_mut()).is_pending());
        for member in 0..3 {
            let children = match member == busy {
                true => vec![OTHER.to_owned()],
                false => Vec::new(),
            };
            listing(&stage).await.send(Ok(children)).unwrap();
        }
        settle().await;
        assert!(matches!(
            poll!(tried.as_mut()),
            Poll::Ready(Err(Refusal::Busy(_)))
        ));
        let asked = stage.log().await;
        assert!(!asked.iter().any(|it| is_write(it)), "{asked:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn error_of_a_joined_attempt_is_the_error_of_who_began_it() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let lock = internals(&stage, "/a", 0);
    let mut first = Box::pin(lock.acquire(Some(&owner), Deadline::never()));
    assert!(poll!(first.as_mut()).is_pending());
    let mut joined = Box::pin(lock.acquire(Some(&owner), Deadline::never()));
    assert!(poll!(joined.as_mut()).is_pending());
    let refused = Err(crate::store::nodes::NodesError::NoAuth);
    let Asked::Create(_, create) = stage.asked().await else {
        panic!("no create");
    };
    create.send(refused).unwrap();
    listing(&stage).await.send(Ok(Vec::new())).unwrap();
    while let Some(asked) = stage.nodes.asked() {
        if let Asked::Watch(_, answer) = asked {
            assert!(answer.send(Ok(None)).is_ok());
        }
    }
    let error = first.await.unwrap_err().into_error();
    assert!(
        matches!(error, AcquireError::NotAuthorized { .. }),
        "{error}"
    );
    assert!(poll!(joined.as_mut()).is_pending(), "tries by itself");
    let asked = stage.log().await;
    assert!(asked.iter().any(|it| it.starts_with("create")), "{asked:?}");
}

/// Grants a lock to an owner without competitors, with the token 5.
async fn granted(stage: &Stage, lock: &LockInternals, owner: &Owner) -> LockGuard {
    let mut acquire = Box::pin(lock.acquire(Some(owner), Deadline::never()));
    loop {
        if let Poll::Ready(guard) = poll!(acquire.as_mut()) {
            return guard.unwrap();
        }
        settle().await;
        let mut made = Vec::new();
        while let Some(asked) = stage.nodes.asked() {
            match asked {
                Asked::Create(node, answer) => {
                    let path = format!("{}0000000001", node.path);
                    made.push(path.rsplit_once('/').unwrap().1.to_owned());
                    let czxid = Some(5);
                    answer.send(Ok(Created { path, czxid })).unwrap();
                }
                Asked::List(_, answer) => answer.send(Ok(made.clone())).unwrap(),
                Asked::Watch(_, answer) => assert!(answer.send(Ok(None)).is_ok()),
                Asked::Read(_, answer) => drop(answer.send(Ok(Some(node(5, b""))))),
                _ => {}
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn owner_re_enters_by_any_wait_and_others_do_not() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let lock = internals(&stage, "/a", 0);
    let held = granted(&stage, &lock, &owner).await;
    assert!(lock.is_acquired_in_this_process());
    stage.log().await;
    for wait in [
        Deadline::never(),
        Deadline::of_try(None),
        Deadline::after(Duration::ZERO),
    ] {
        let again = lock.acquire(Some(&owner), wait).now_or_never();
        assert!(matches!(again, Some(Ok(_))), "{again:?}");
    }
    assert!(stage.log().await.is_empty());
    let mut other = Box::pin(lock.acquire(None, Deadline::never()));
    assert!(poll!(other.as_mut()).is_pending());
    drop(other);
    drop(held);
    assert!(!lock.is_acquired_in_this_process());
}

#[tokio::test(start_paused = true)]
async fn set_ends_when_what_was_re_entered_is_lost() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let set = ["/a", "/b"].map(|path| internals(&stage, path, 0));
    let set = OneOrMore::new(set.to_vec()).unwrap();
    let held = granted(&stage, set.first(), &owner).await;
    let mut both = Box::pin(acquire_all(&set, Some(&owner), Deadline::never()));
    assert!(poll!(both.as_mut()).is_pending());
    let lease = stage.epoch.leases().remove(0);
    lease.lose(crate::error::LostReason::NodeRemoved);
    settle().await;
    let lost = both.now_or_never();
    assert!(
        matches!(lost, Some(Err(Refusal::Failed(AcquireError::Lost(_))))),
        "{lost:?}"
    );
    drop(held);
}

/// A create and its listing that are in flight.
struct Entering {
    path: String,
    name: String,
    created: Answer<Created>,
    listed: Answer<Vec<String>>,
}

async fn entering(stage: &Stage) -> Entering {
    settle().await;
    let (mut create, mut list) = (None, None);
    while let Some(asked) = stage.nodes.asked() {
        match asked {
            Asked::Create(node, answer) => create = Some((node.path, answer)),
            Asked::List(_, answer) => list = Some(answer),
            Asked::Watch(_, answer) => assert!(answer.send(Ok(None)).is_ok()),
            _ => {}
        }
    }
    let (path, created) = create.unwrap();
    let path = format!("{path}0000000001");
    Entering {
        name: path.rsplit_once('/').unwrap().1.to_owned(),
        path,
        created,
        listed: list.unwrap(),
    }
}

#[tokio::test(start_paused = true)]
async fn try_whose_node_comes_too_late_ends_when_it_is_gone() {
    let stage = Stage::new().await;
    let lock = internals(&stage, "/a", 0);
    let mut tried = Box::pin(lock.acquire(None, Deadline::of_try(None)));
    assert!(poll!(tried.as_mut()).is_pending());
    listing(&stage).await.send(Ok(Vec::new())).unwrap();
    assert!(poll!(tried.as_mut()).is_pending());
    let Entering {
        path,
        name,
        created,
        listed,
    } = entering(&stage).await;
    let czxid = Some(5);
    let deleted = path.clone();
    created.send(Ok(Created { path, czxid })).unwrap();
    // Another contender created its node earlier.
    listed.send(Ok(vec![name, OTHER.to_owned()])).unwrap();
    assert!(poll!(tried.as_mut()).is_pending());
    let delete = loop {
        match stage.asked().await {
            Asked::Delete(path, answer) if path == deleted => break answer,
            _ => {}
        }
    };
    assert!(poll!(tried.as_mut()).is_pending(), "its node is in the way");
    delete.send(Ok(())).unwrap();
    settle().await;
    let tried = poll!(tried.as_mut());
    assert!(
        matches!(tried, Poll::Ready(Err(Refusal::Busy(_)))),
        "{tried:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn try_that_has_the_turn_of_its_process_asks_before_it_makes_a_node() {
    let stage = Stage::new().await;
    let lock = internals(&stage, "/a", 1);
    let mut tried = Box::pin(lock.acquire(None, Deadline::of_try(None)));
    assert!(poll!(tried.as_mut()).is_pending());
    listing(&stage)
        .await
        .send(Ok(vec![OTHER.to_owned()]))
        .unwrap();
    assert!(matches!(
        poll!(tried.as_mut()),
        Poll::Ready(Err(Refusal::Busy(_)))
    ));
    assert!(stage.log().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn session_that_only_reads_acquires_nothing() {
    let nodes = crate::scripted::Scripted::new(Some(T));
    let store = crate::scripted::Sessions::of(&nodes, Duration::ZERO);
    let session = SessionOptions::new().read_only(true).start(store);
    let options = LockOptions::new();
    let lock = LockInternals::new(&session, "/a", LockKind::Mutex, &options).unwrap();
    let refused = lock.acquire(None, Deadline::after(T)).await;
    let is_it = matches!(refused, Err(Refusal::Failed(AcquireError::ReadOnly { .. })));
    assert!(is_it, "{refused:?}");
    settle().await;
    assert!(nodes.log().is_empty());
}
