//! A service whose store stands still for seconds: it is served again as soon as the store answers.

use std::env;
use std::time::Duration;

use lock_recipes::{AcquireError, Error, InterProcessMutex, Owner, Session};
use test_rig::{TestEnsemble, on_ensembles_of_their_own};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep};

/// Between two requests: 300 a second, or 100 on a machine that may have other things to do.
const EACH: Duration = Duration::from_micros(3_333);
const EACH_BESIDE_OTHERS: Duration = Duration::from_millis(10);
/// Each request takes one of them.
const LOCKS: usize = 8;
/// How long a request waits for its lock, and how long it holds it.
const WAITS: Duration = Duration::from_millis(200);
const HOLDS: Duration = Duration::from_millis(2);
/// As a collection of garbage, or a slow disk.
const HALT: Duration = Duration::from_secs(4);
/// On a machine that has nothing else to do.
const SERVED_AFTER: Duration = Duration::from_secs(4);
/// Half of what comes in half a second beside other tests.
const ENOUGH: usize = 25;
/// In any test. A busy machine takes longer, and a queue that grows takes for ever.
const PATIENCE: Duration = Duration::from_secs(600);

/// When a request came, and whether it was granted.
type Ended = (Instant, bool);

async fn request(session: Session, number: usize) -> Ended {
    let came = Instant::now();
    let path = format!("/locks/{}", number % LOCKS);
    let lock = InterProcessMutex::new(&session, &path).unwrap();
    // Requests know nothing of one another.
    match lock.acquire().timeout(WAITS).owner(&Owner::new()).await {
        Ok(guard) => {
            sleep(HOLDS).await;
            drop(guard.release().await);
            (came, true)
        }
        Err(Error::Acquire(AcquireError::TimedOut { .. })) => (came, false),
        Err(error) => panic!("{error}"),
    }
}

/// After which time all requests of half a second are served again, if the ensemble stands still.
async fn served_after_a_halt(
    ensemble: &TestEnsemble,
    session: &Session,
    each: Duration,
) -> Duration {
    let (mut due, mut requests, mut ended) = (interval(each), JoinSet::new(), Vec::<Ended>::new());
    let begun = Instant::now();
    let (mut number, mut is_halted, mut resumed) = (0, false, None);
    loop {
        due.tick().await;
        requests.spawn(request(session.clone(), number));
        number += 1;
        while let Some(done) = requests.try_join_next() {
            ended.push(done.unwrap());
        }
        let at = begun.elapsed();
        if !is_halted && at > HALT / 4 {
            ensemble.pause();
            is_halted = true;
        } else if resumed.is_none() && at > HALT / 4 + HALT {
            ensemble.resume();
            resumed = Some(Instant::now());
        }
        let Some(resumed) = resumed else { continue };
        // Half a second, which has ended long enough ago that no request of it waits any more.
        let until = Instant::now() - WAITS * 2;
        let recent = ended
            .iter()
            .filter(|(came, _)| *came > until - HALT / 8 && *came < until);
        let refused = recent.clone().filter(|(_, is_granted)| !is_granted).count();
        if until > resumed + HALT / 8 && recent.count() >= ENOUGH && refused == 0 {
            requests.join_all().await;
            return (until - HALT / 8).saturating_duration_since(resumed);
        }
        assert!(resumed.elapsed() < PATIENCE, "not served again");
    }
}

on_ensembles_of_their_own!(service_is_served_again_soon_after_a_halt);

/// One halt, or as many as `HALTS` says, each of a machine that has nothing else to do.
async fn service_is_served_again_soon_after_a_halt(ensemble: TestEnsemble) {
    let halts: Option<u32> = env::var("HALTS").ok().map(|it| it.parse().unwrap());
    let session = ensemble.session().await;
    let neighbour = crate::neighbour(&ensemble, halts.is_some()).await;
    let held = InterProcessMutex::new(&neighbour, "/locks/neighbour").unwrap();
    let held = held.acquire().await.unwrap();
    let each = halts.map_or(EACH_BESIDE_OTHERS, |_| EACH);
    for _ in 0..halts.unwrap_or(1) {
        let served = served_after_a_halt(&ensemble, &session, each).await;
        println!("all requests are served {served:?} after a halt");
        assert!(halts.is_none() || served < SERVED_AFTER, "{served:?}");
    }
    assert!(held.is_valid(), "a neighbour has lost its lock");
    for number in 0..LOCKS {
        ensemble
            .await_children(&format!("/locks/{number}"), 0)
            .await;
    }
}
