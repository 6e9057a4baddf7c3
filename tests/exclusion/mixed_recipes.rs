//! Recipes that share a path exclude or refuse each other, in all pairs.

use std::time::Duration;

use lock_recipes::{AcquireError, Error, LatchError, LeaderLatch, Member, MultiLock};
use test_rig::{MemoryEnsemble, TestEnsemble, on_every_ensemble};
use tokio::time::{sleep, timeout};

use crate::each_recipe::{Meets, RECIPES, Recipe, assert_refused, meets};

const ROOT: &str = "/mixed";
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a contender waits that is behind another one.
const SHORT: Duration = Duration::from_millis(300);

on_every_ensemble!(
    second_recipe_on_a_path_is_refused_in_all_pairs_but_those_that_exclude_each_other,
    path_is_free_for_another_recipe_once_nobody_uses_it,
    contender_that_has_been_alone_for_long_finds_a_semaphore,
    semaphore_that_was_refused_leaves_nothing_that_refuses_others,
    member_of_another_recipe_refuses_a_set,
    latch_that_is_refused_says_so,
    contender_waits_for_a_later_node_of_another_recipe,
    locks_below_a_lock_are_no_other_recipe,
);

fn pairs() -> impl Iterator<Item = (Recipe, Recipe, String)> {
    RECIPES.into_iter().flat_map(|first| {
        let path = move |second| format!("{ROOT}/{first:?}-{second:?}");
        RECIPES.into_iter().map(move |it| (first, it, path(it)))
    })
}

async fn second_recipe_on_a_path_is_refused_in_all_pairs_but_those_that_exclude_each_other(
    ensemble: TestEnsemble,
) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    for (first, second, path) in pairs() {
        let held = first.hold(&here, &path).await;
        // That of a semaphore gives its mutex back in the background.
        ensemble.await_children(&format!("{path}/locks"), 0).await;
        for patience in [None, Some(SHORT)] {
            let told = format!("{second:?} beside {first:?}, {patience:?}");
            match (
                meets(first, second),
                second.ask(&there, &path, patience).await,
            ) {
                (Meets::Refusal, Err(refusal)) => assert_refused(&refusal, first, &path),
                (Meets::Exclusion, Ok(None)) => {}
                (Meets::Exclusion, Err(busy)) => assert!(busy.is_busy(), "{told}: {busy}"),
                (Meets::Company, Ok(Some(too))) => {
                    too.release().await.unwrap();
                }
                (_, other) => panic!("{told}: {other:?}"),
            }
        }
        held.verify().await.unwrap();
        // What was refused is gone, and the first one is as good as before.
        held.release().await.unwrap();
        first.hold(&there, &path).await.release().await.unwrap();
    }
}

/// The directories of a semaphore go when the store reaps them.
async fn path_is_free_for_another_recipe_once_nobody_uses_it(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    for (first, second, path) in pairs() {
        first.hold(&here, &path).await.release().await.unwrap();
        let told = format!("{second:?} after {first:?}");
        ensemble
            .until(&told, async || {
                if let TestEnsemble::Memory(memory) = &ensemble {
                    memory.reap_containers();
                }
                let held = second.ask(&there, &path, Some(PATIENCE)).await;
                match held {
                    Ok(held) => Some(held),
                    Err(Error::Acquire(AcquireError::RecipeDiffers { .. })) => None,
                    Err(error) => panic!("{told}: {error}"),
                }
            })
            .await;
        // In the background, as the guard was dropped.
    }
}

/// It needs no listing any more, as long as its numbers follow each other.
async fn contender_that_has_been_alone_for_long_finds_a_semaphore(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    for first in [Recipe::Mutex, Recipe::Writer, Recipe::Latch] {
        for second in [Recipe::Semaphore, Recipe::SemaphoreMutex] {
            let path = format!("{ROOT}/{first:?}-{second:?}");
            for _ in 0..20 {
                first.hold(&here, &path).await.release().await.unwrap();
            }
            let held = second.hold(&there, &path).await;
            let refusal = first.ask(&here, &path, Some(SHORT)).await.unwrap_err();
            assert_refused(&refusal, second, &path);
            held.verify().await.unwrap();
            held.release().await.unwrap();
        }
    }
}

async fn semaphore_that_was_refused_leaves_nothing_that_refuses_others(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    for first in [Recipe::Mutex, Recipe::Reader, Recipe::Latch] {
        let path = format!("{ROOT}/{first:?}");
        let held = first.hold(&here, &path).await;
        let semaphore = Recipe::Semaphore.ask(&there, &path, Some(SHORT));
        assert_refused(&semaphore.await.unwrap_err(), first, &path);
        ensemble.await_children(&path, 1).await;
        held.release().await.unwrap();
        first.hold(&here, &path).await.release().await.unwrap();
    }
}

async fn member_of_another_recipe_refuses_a_set(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let (path, other) = (format!("{ROOT}/b"), format!("{ROOT}/a"));
    let held = Recipe::Latch.hold(&here, &path).await;
    let members = [Member::mutex(&other), Member::write(&path)];
    let set = MultiLock::new(&there, members).unwrap();
    assert_refused(&set.acquire().await.unwrap_err(), Recipe::Latch, &path);
    assert_refused(&set.try_acquire().await.unwrap_err(), Recipe::Latch, &path);
    ensemble.await_children(&other, 0).await;
    ensemble.await_children(&path, 1).await;
    held.release().await.unwrap();
    set.acquire().await.unwrap().release().await.unwrap();
}

async fn latch_that_is_refused_says_so(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let path = format!("{ROOT}/led");
    let term = Recipe::Selector.hold(&here, &path).await;
    let latch = LeaderLatch::start(&there, &path, "host").unwrap();
    let ended = timeout(PATIENCE, latch.wait_until_leader()).await.unwrap();
    let Err(Error::Latch(LatchError::Ended { source, .. })) = ended else {
        panic!("{ended:?}");
    };
    assert_refused(&source, Recipe::Mutex, &path);
    assert!(!latch.is_leader() && term.is_valid());
    term.release().await.unwrap();
}

/// Whoever made that one may not look at others: an older version, or Curator.
async fn contender_waits_for_a_later_node_of_another_recipe(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let path = format!("{ROOT}/later");
    let held = Recipe::Mutex.hold(&here, &path).await;
    let waiter = {
        let (there, path) = (there.clone(), path.clone());
        tokio::spawn(async move { Recipe::Mutex.hold(&there, &path).await })
    };
    ensemble.await_children(&path, 2).await;
    held.release().await.unwrap();
    let second = timeout(PATIENCE, waiter).await.unwrap().unwrap();
    let later = format!("{path}/_c_01234567-89ab-cdef-0123-456789abcdef-latch-2000000000");
    ensemble.create(&later, b"").await;
    second.release().await.unwrap();
    let session = there.clone();
    let third = {
        let path = path.clone();
        tokio::spawn(async move { Recipe::Mutex.hold(&session, &path).await })
    };
    ensemble.await_children(&path, 2).await;
    assert!(
        Recipe::Mutex
            .ask(&here, &path, Some(SHORT))
            .await
            .unwrap_err()
            .is_busy()
    );
    assert!(!third.is_finished());
    ensemble.delete(&later).await;
    let third = timeout(PATIENCE, third).await.unwrap().unwrap();
    third.release().await.unwrap();
}

async fn locks_below_a_lock_are_no_other_recipe(ensemble: TestEnsemble) {
    let (here, there) = (ensemble.session().await, ensemble.session().await);
    let mut held = Vec::new();
    for (index, recipe) in RECIPES.into_iter().enumerate() {
        let below = format!("{ROOT}/locks/of-{index}");
        held.push(recipe.hold(&here, &below).await);
    }
    for path in [ROOT.to_owned(), format!("{ROOT}/locks")] {
        let above = Recipe::Mutex.hold(&there, &path).await;
        above.release().await.unwrap();
    }
    for held in held {
        held.release().await.unwrap();
    }
}

/// Each sends its requests when it likes, over a network that takes its time.
#[tokio::test(start_paused = true)]
async fn of_two_recipes_that_come_at_the_same_time_one_holds_at_most() {
    const ROUNDS: u64 = 60;
    let mut held_by = [0, 0];
    for (first, second, path) in pairs() {
        if meets(first, second) != Meets::Refusal {
            continue;
        }
        for round in 0..ROUNDS {
            let builder = MemoryEnsemble::builder().seed(round);
            let memory = builder.latency(Duration::from_millis(7)).build();
            let mut random = fastrand::Rng::with_seed(round);
            let mut contend = |recipe: Recipe| {
                let (session, path) = (memory.session(), path.clone());
                let pause = Duration::from_millis(random.u64(..60));
                async move {
                    sleep(pause).await;
                    let guard = recipe.ask(&session, &path, Some(PATIENCE)).await;
                    // Longer than any step of the other one.
                    sleep(Duration::from_millis(500)).await;
                    guard
                }
            };
            let (one, other) = (contend(first), contend(second));
            let (one, other) = tokio::join!(one, other);
            let told = format!("{first:?} and {second:?}, round {round}");
            let mut held = 0;
            for (outcome, count) in [one, other].into_iter().zip(&mut held_by) {
                match outcome {
                    Ok(_) => {
                        held += 1;
                        *count += 1;
                    }
                    Err(Error::Acquire(AcquireError::RecipeDiffers { .. })) => {}
                    Err(error) => panic!("{told}: {error}"),
                }
            }
            assert!(held <= 1, "{told}: both hold");
        }
    }
    assert!(held_by.iter().all(|it| *it > 100), "{held_by:?}");
}
