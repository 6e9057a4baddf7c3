//! Faults of Curator's `InterProcessSemaphoreV2`.

use std::pin::pin;

use futures::future::{join, select};
use lock_recipes::{Error, InterProcessSemaphore, ReleaseError, Session};
use test_rig::{Cut, Direction, Fault, FaultProxy, Opcode};
use tokio::time::timeout;

use super::curator::{SESSION_TIMEOUT, Stage};
use super::{MOMENT, OURS, PATIENCE, THEIRS, proxy, server, session_through, soon};

/// Curator's semaphores `s`, through the proxy, and `z`, of which each acquire takes so many permits.
async fn set_up(permits: u32, taken: u32) -> Stage {
    let stage = Stage::set_up(SESSION_TIMEOUT, PATIENCE).await;
    for (lock, client) in [("s", "c"), ("z", "d")] {
        let made = stage
            .curator
            .semaphore_of_many(lock, client, THEIRS, permits, taken);
        made.await.unwrap();
    }
    for path in [THEIRS, OURS] {
        for below in ["locks", "leases"] {
            stage.ensemble.create(&format!("{path}/{below}"), b"").await;
        }
    }
    stage
}

fn below(path: &str, part: &str) -> String {
    format!("{path}/{part}")
}

fn ours(session: &Session, permits: usize) -> InterProcessSemaphore {
    InterProcessSemaphore::new(session, OURS, permits).unwrap()
}

/// As of the mutex, the search after the first loss counts as the end of the create.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_lost_replies_take_a_permit_away_where_ours_is_found_again() {
    let stage = set_up(1, 1).await;
    let (ensemble, curator) = (&stage.ensemble, &stage.curator);
    // The first create of a lease does not arrive. The reply to the second does not arrive either.
    let lose = |proxy: &FaultProxy| {
        [Direction::ToServer, Direction::FromServer].map(|direction| {
            let lease = proxy.on(direction).path_contains("-lease-");
            lease.then(Fault::CutBefore(Cut::Fin))
        })
    };

    let lost = lose(&stage.proxy);
    let error = curator.acquire("t", "s", None).await.unwrap_err();
    println!("Curator {}: {error}", curator.curator_version());
    assert_eq!(lost.map(|it| it.count()), [1, 1]);
    // Nobody holds a permit, and the only one is taken.
    assert!(!curator.held("s").await.unwrap());
    let leases = below(THEIRS, "leases");
    let left = ensemble.await_children(&leases, 1).await;
    let stat = curator.stat("d", &format!("{leases}/{}", left[0])).await;
    let owner = stat.unwrap().unwrap().ephemeral_owner;
    assert_eq!(owner, curator.session("c").await.unwrap());
    let without = curator.acquire("u", "z", Some(MOMENT)).await;
    assert!(!without.unwrap());
    // Only the end of the session gives it back.
    curator.close("c").await.unwrap();
    assert!(curator.acquire("u", "z", Some(PATIENCE)).await.unwrap());

    let proxy = proxy(ensemble).await;
    let session = session_through(&proxy, SESSION_TIMEOUT).await;
    session.read("/").await.unwrap();
    let lost = lose(&proxy);
    let permit = soon(ours(&session, 1).acquire()).await.unwrap();
    assert_eq!(lost.map(|it| it.count()), [1, 1]);
    assert_eq!(ensemble.children(&below(OURS, "leases")).await.len(), 1);
    permit.release().await.unwrap();
    for part in ["locks", "leases"] {
        ensemble.await_children(&below(OURS, part), 0).await;
    }
}

/// Curator takes the permits one by one, and gives the mutex back after each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_take_two_permits_wait_for_each_other_where_ours_do_not() {
    const ROUNDS: usize = 20;
    let stage = set_up(2, 2).await;
    let (ensemble, curator) = (&stage.ensemble, &stage.curator);
    let mutex = stage.proxy.on(Direction::ToServer).opcode(Opcode::Create);
    let gate = mutex.path_contains("-lock-").nth(2).hold();
    let first = curator.acquire("t", "s", None);
    // It has one permit, and is about to queue up for the other.
    soon(gate.reached()).await;
    let second = curator.acquire("u", "z", None);
    // That one has the other, and waits for its second with the mutex in its hand.
    ensemble.await_children(&below(THEIRS, "leases"), 3).await;
    gate.release();
    ensemble.await_children(&below(THEIRS, "locks"), 2).await;
    let (mut first, mut second) = (pin!(first), pin!(second));
    let granted = timeout(MOMENT, select(&mut first, &mut second)).await;
    assert!(granted.is_err(), "one of them goes on");
    for lock in ["s", "z"] {
        assert!(!curator.held(lock).await.unwrap());
    }

    let sessions = [ensemble.session().await, ensemble.session().await];
    let take = async |session: &Session| {
        let semaphore = ours(session, 2);
        for _ in 0..ROUNDS {
            let permits = semaphore.acquire_many(2).unwrap().await.unwrap();
            permits.release().await.unwrap();
        }
    };
    soon(join(take(&sessions[0]), take(&sessions[1]))).await;
}

/// A lease has no state, and nobody is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permit_of_a_dead_session_is_returned_in_silence_where_ours_is_known_to_be_lost() {
    let stage = set_up(1, 1).await;
    let (ensemble, curator) = (&stage.ensemble, &stage.curator);
    assert!(curator.acquire("t", "s", None).await.unwrap());
    let next = curator.acquire("u", "z", Some(PATIENCE));
    ensemble.await_children(&below(THEIRS, "leases"), 2).await;
    let session = curator.session("c").await.unwrap();
    server(ensemble).expire(session).await.unwrap();
    assert!(next.await.unwrap());
    stage.await_state("RECONNECTED").await;
    // Two have the only permit, and the one that lost it gets no error.
    curator.release("t", "s").await.unwrap();

    let (holding, waiting) = (ensemble.session().await, ensemble.session().await);
    let held = ours(&holding, 1).acquire().await.unwrap();
    let next = tokio::spawn(ours(&waiting, 1).acquire());
    ensemble.await_children(&below(OURS, "leases"), 2).await;
    ensemble.expire(&holding).await;
    soon(held.lost()).await;
    assert!(!held.is_valid());
    let released = held.release().await.unwrap_err();
    assert!(
        matches!(released, Error::Release(ReleaseError::Lost(_))),
        "{released}"
    );
    let next = soon(next).await.unwrap().unwrap();
    next.release().await.unwrap();
}
