//! What an acquire knows of locks that are held here, and does to them.

use super::*;
use crate::names::node_name;
use crate::store::nodes::{NodeOp, NodeOpDone};

#[tokio::test(start_paused = true)]
async fn lost_lock_is_not_acquired_in_this_process() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let lock = internals(&stage, "/a", 0);
    let held = granted(&stage, &lock, &owner).await;
    let lease = stage.epoch.leases().remove(0);
    lease.lose(crate::error::LostReason::NodeRemoved);
    assert!(!lock.is_acquired_in_this_process());
    drop(held);
}

/// A tie would outlive the surveys of an acquire that waits, and keep the writer's node from being
/// handed on.
#[tokio::test(start_paused = true)]
async fn writer_is_tied_by_a_reader_that_contends_and_not_by_a_survey() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let options = LockOptions::new();
    let half = |kind| LockInternals::new(&stage.session, "/a", kind, &options).unwrap();
    let (reader, writer) = (half(LockKind::Read), half(LockKind::Write));
    let name = OTHER.replace("lock-", LockKind::Write.marker());
    let lease = stage.lease_named(&writer.target.lock, &name, 1, None);
    let held = Hold::begin(writer.key(&owner), lease);
    let label = OwnerLabel::from(&owner);
    for _ in 0..3 {
        let survey = survey(&OneOrMore::one(reader.clone()), &owner, label).unwrap();
        let [Missing { target, .. }] = survey.missing.as_slice() else {
            panic!("nothing to acquire");
        };
        assert!(target.beside.is_some());
        assert!(!held.lease().is_tied());
    }
    let mut reads = Box::pin(reader.acquire(Some(&owner), Deadline::never()));
    assert!(poll!(reads.as_mut()).is_pending());
    assert!(held.lease().is_tied());
}

/// No reader is made next to any of them.
#[tokio::test(start_paused = true)]
async fn writers_of_a_set_are_not_tied_if_one_of_them_is_released() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let options = LockOptions::new();
    let half = |path, kind| LockInternals::new(&stage.session, path, kind, &options).unwrap();
    let name = OTHER.replace("lock-", LockKind::Write.marker());
    let (mut held, mut targets) = (Vec::new(), Vec::new());
    for (path, czxid) in [("/a", 1), ("/b", 2), ("/c", 3)] {
        let writer = half(path, LockKind::Write);
        let lease = stage.lease_named(&writer.target.lock, &name, czxid, None);
        targets.push(Target {
            beside: Some(Writer::new(lease.writer()).unwrap()),
            ..half(path, LockKind::Read).target
        });
        held.push(Hold::begin(writer.key(&owner), lease));
    }
    let released = held.remove(1).leave().unwrap();
    drop(released.lease().retire());
    let ties = |held: &[Share]| {
        held.iter()
            .map(|it| it.lease().is_tied())
            .collect::<Vec<_>>()
    };
    assert!(!Target::tie_writers(&targets[1..]));
    assert!(!Target::tie_writers(&targets));
    assert_eq!(ties(&held), [false, false]);
    assert!(!released.lease().is_tied());
    assert!(Target::tie_writers(&targets[..1]));
    assert_eq!(ties(&held), [true, false]);
}

/// No other task runs meanwhile: nobody has noted the loss but the attempt itself, whose own node is
/// confirmed after the deadline.
#[tokio::test(start_paused = true)]
async fn reader_is_not_granted_next_to_a_writer_whose_time_has_passed() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let options = LockOptions::new();
    let half = |kind| LockInternals::new(&stage.session, "/a", kind, &options).unwrap();
    let (reader, writer) = (half(LockKind::Read), half(LockKind::Write));
    let name = OTHER.replace("lock-", LockKind::Write.marker());
    let lease = stage.lease_named(&writer.target.lock, &name, 1, None);
    let held = Hold::begin(writer.key(&owner), lease);
    let mut reads = Box::pin(reader.acquire(Some(&owner), Deadline::never()));
    assert!(poll!(reads.as_mut()).is_pending());
    jump(T);
    let mut made = Vec::new();
    let outcome = loop {
        if let Poll::Ready(outcome) = poll!(reads.as_mut()) {
            break outcome;
        }
        let asked = stage.nodes.asked().expect("it waits for nothing else");
        match asked {
            Asked::Multi(operations, answer) => {
                let done = operations.iter().map(|operation| match operation {
                    NodeOp::Create(node) => {
                        made.push(node_name::last_part(&node.path).to_owned());
                        let (path, czxid) = (node.path.clone(), Some(9));
                        NodeOpDone::Created(Created { path, czxid })
                    }
                    _ => NodeOpDone::Checked,
                });
                drop(answer.send(Ok(done.collect())));
            }
            Asked::List(_, answer) => drop(answer.send(Ok(made.clone()))),
            Asked::Stat(_, answer) => drop(answer.send(Ok(Some(node(9, b"").1)))),
            Asked::Read(_, answer) => drop(answer.send(Ok(Some(node(9, b""))))),
            Asked::Watch(_, answer) => drop(answer.send(Ok(None))),
            _ => {}
        }
    };
    assert!(!made.is_empty(), "nothing was sent");
    let is_lost = matches!(
        outcome,
        Err(Refusal::Failed(AcquireError::Lost(ref lost))) if lost.path == "/a"
    );
    assert!(is_lost, "{outcome:?}");
    drop(held);
}

/// Whoever pairs them with what they protect counts on their order.
#[tokio::test(start_paused = true)]
async fn members_are_in_their_order_whichever_of_them_was_held() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let set = ["/a", "/b"].map(|path| internals(&stage, path, 0));
    let _held = granted(&stage, &set[1], &owner).await;
    let set = OneOrMore::new(set.to_vec()).unwrap();
    let mut acquire = Box::pin(acquire_all(&set, Some(&owner), Deadline::never()));
    assert!(poll!(acquire.as_mut()).is_pending());
    let Entering {
        path,
        name,
        created,
        listed,
    } = entering(&stage).await;
    let czxid = Some(9);
    created.send(Ok(Created { path, czxid })).unwrap();
    listed.send(Ok(vec![name])).unwrap();
    let guard = acquire.await.unwrap();
    let members = guard.members();
    let directories = members.iter().map(|it| it.node_path.split('/').nth(1));
    assert_eq!(directories.collect::<Vec<_>>(), [Some("a"), Some("b")]);
}

#[tokio::test(start_paused = true)]
async fn each_guard_of_a_lost_lock_says_so_when_it_is_released() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let lock = internals(&stage, "/a", 0);
    let first = granted(&stage, &lock, &owner).await;
    let second = lock.acquire(Some(&owner), Deadline::never()).await.unwrap();
    let lease = stage.epoch.leases().remove(0);
    lease.lose(crate::error::LostReason::NodeRemoved);
    for guard in [first, second] {
        let released = guard.released().await;
        let is_lost = matches!(released, Err(crate::error::ReleaseError::Lost(_)));
        assert!(is_lost, "{released:?}");
    }
}

/// Its create goes next to the writer, where no other reader may be.
#[tokio::test(start_paused = true)]
async fn create_next_to_a_writer_is_not_adopted_by_another_reader() {
    let (stage, owner) = (Stage::new().await, Owner::new());
    let options = LockOptions::new();
    let half = |kind| LockInternals::new(&stage.session, "/a", kind, &options).unwrap();
    let (reader, writer) = (half(LockKind::Read), half(LockKind::Write));
    let name = OTHER.replace("lock-", LockKind::Write.marker());
    let lease = stage.lease_named(&writer.target.lock, &name, 1, None);
    let _held = Hold::begin(writer.key(&owner), lease);
    let mut beside = Box::pin(reader.acquire(Some(&owner), Deadline::never()));
    assert!(poll!(beside.as_mut()).is_pending());
    let Asked::Multi(..) = stage.asked().await else {
        panic!("no create");
    };
    drop(beside);
    stage.log().await;
    let mut other = Box::pin(reader.acquire(None, Deadline::never()));
    assert!(poll!(other.as_mut()).is_pending());
    let log = stage.log().await;
    assert!(log.iter().any(|it| it.starts_with("create")), "{log:?}");
}
