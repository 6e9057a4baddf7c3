//! An acquire that is dropped at any point leaves nothing behind.

use std::pin::pin;

use futures::poll;
use lock_recipes::{InterProcessMutex, Session};
use test_rig::{TestEnsemble, on_every_ensemble};

const PATH: &str = "/locks/orders";
/// More polls than any acquire needs.
const POLLS_MAX: usize = 200;

fn mutex(session: &Session) -> InterProcessMutex {
    InterProcessMutex::new(session, PATH).unwrap()
}

/// Polls an acquire this many times, with time for something to happen in between. True if it was
/// done before.
async fn polled(ensemble: &TestEnsemble, waiter: &InterProcessMutex, polls: usize) -> bool {
    let mut acquire = pin!(waiter.acquire());
    for _ in 0..polls {
        if poll!(&mut acquire).is_ready() {
            return true;
        }
        ensemble.let_something_happen().await;
    }
    false
}

on_every_ensemble!(
    acquire_of_a_free_lock_dropped_at_every_poll,
    acquire_of_a_held_lock_dropped_at_every_poll,
    acquire_dropped_at_every_poll_while_the_lock_is_handed_to_it,
    release_that_is_dropped_goes_on,
);

async fn acquire_of_a_free_lock_dropped_at_every_poll(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let mut dropped = 0;
    for polls in 0..POLLS_MAX {
        // A directory of its own, so that creating the parents is dropped at every poll, too.
        let path = format!("{PATH}/fresh/{polls}");
        let lock = InterProcessMutex::new(&session, &path).unwrap();
        let done = polled(&ensemble, &lock, polls).await;
        // Whatever was left is cleaned up, and the next contender gets the lock.
        lock.acquire().await.unwrap().release().await.unwrap();
        ensemble.await_children(&path, 0).await;
        if done {
            break;
        }
        dropped += 1;
    }
    // On a busy machine, a server may have answered by the next poll.
    let least = match ensemble {
        TestEnsemble::Memory(_) => 4,
        _ => 1,
    };
    assert!((least..POLLS_MAX).contains(&dropped), "{dropped} polls");
}

async fn acquire_of_a_held_lock_dropped_at_every_poll(ensemble: TestEnsemble) {
    let (holding, waiting) = (ensemble.session().await, ensemble.session().await);
    for polls in 0..10 {
        let held = mutex(&holding).acquire().await.unwrap();
        assert!(!polled(&ensemble, &mutex(&waiting), polls).await);
        ensemble.await_children(PATH, 1).await;
        assert!(held.is_valid());
        held.release().await.unwrap();
    }
    ensemble.await_children(PATH, 0).await;
}

async fn acquire_dropped_at_every_poll_while_the_lock_is_handed_to_it(ensemble: TestEnsemble) {
    let (holding, waiting) = (ensemble.session().await, ensemble.session().await);
    let waiter = mutex(&waiting);
    let mut dropped = 0;
    for polls in 0..POLLS_MAX {
        let held = mutex(&holding).acquire().await.unwrap();
        let done = {
            let mut acquire = pin!(waiter.acquire());
            // Waits until it is queued.
            ensemble
                .until("a waiter", async || {
                    assert!(poll!(&mut acquire).is_pending());
                    (ensemble.children(PATH).await.len() == 2).then_some(())
                })
                .await;
            held.release().await.unwrap();
            let mut done = false;
            for _ in 0..polls {
                done = poll!(&mut acquire).is_ready();
                if done {
                    break;
                }
                ensemble.let_something_happen().await;
            }
            done
        };
        mutex(&holding)
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        ensemble.await_children(PATH, 0).await;
        if done {
            break;
        }
        dropped += 1;
    }
    assert!((1..POLLS_MAX).contains(&dropped), "{dropped} polls");
}

async fn release_that_is_dropped_goes_on(ensemble: TestEnsemble) {
    let session = ensemble.session().await;
    let mut dropped = 0;
    for polls in 0..POLLS_MAX {
        let held = mutex(&session).acquire().await.unwrap();
        let mut done = false;
        {
            let mut release = pin!(held.release());
            for _ in 0..polls {
                done = poll!(&mut release).is_ready();
                if done {
                    break;
                }
                ensemble.let_something_happen().await;
            }
        }
        ensemble.await_children(PATH, 0).await;
        if done {
            break;
        }
        dropped += 1;
    }
    // A server may have answered by the end of the first poll.
    assert!((1..POLLS_MAX).contains(&dropped), "{dropped} polls");
}
