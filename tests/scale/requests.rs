//! A service whose store stands still for seconds: it is served again as soon as the store answers.

use std::env;
use std::time::Duration;

use lock_recipes::{AcquireError, Error, InterProcessMutex, Owner, Session};
use test_rig::{TestEnsemble, on_ensembles_of_their_own};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, interval, sleep};

/// Between two requests: 300 a second.
const EACH: Duration = Duration::from_micros(3_333);
/// Beside other tests, half as many as the machine serves, and 100 a second at most.
const EACH_BESIDE_OTHERS: Duration = Duration::from_millis(5);
const SLOWEST: Duration = Duration::from_secs(1);
/// Each request takes one of them.
const LOCKS: usize = 8;
/// How long a request waits for its lock, and how long it holds it.
const WAITS: Duration = Duration::from_millis(200);
const HOLDS: Duration = Duration::from_millis(2);
/// As a collection of garbage, or a slow disk.
const HALT: Duration = Duration::from_secs(4);
/// On a machine that has nothing else to do.
const SERVED_AFTER: Duration = Duration::from_secs(4);
/// Requests that come one after the other and are all granted: that is a service which is served. Half of
/// them are enough where tasks wait for the machine.
const IN_A_ROW: u32 = 50;
const ENOUGH: usize = 25;
/// In any test. A busy machine takes longer, and a queue that grows takes for ever.
const PATIENCE: Duration = Duration::from_secs(600);

/// One store at a time: services that have the machine in common would tell of each other's load.
static MACHINE: Mutex<()> = Mutex::const_new(());

/// When a request came, and whether it was granted.
type Ended = (Instant, bool);

/// Requests at a steady pace, whatever becomes of those before.
struct Service {
    session: Session,
    each: Duration,
    due: Interval,
    number: usize,
    requests: JoinSet<Ended>,
    ended: Vec<Ended>,
}

impl Service {
    fn new(session: &Session, each: Duration) -> Self {
        Self {
            session: session.clone(),
            each,
            due: interval(each),
            number: 0,
            requests: JoinSet::new(),
            ended: Vec::new(),
        }
    }

    /// Waits until the next request is due, and sends it.
    async fn next(&mut self) {
        self.due.tick().await;
        self.requests
            .spawn(request(self.session.clone(), self.number));
        self.number += 1;
        while let Some(done) = self.requests.try_join_next() {
            self.ended.push(done.unwrap());
        }
    }

    /// When the last of the requests in a row came of which none waits any more, if all of them were granted
    /// and all came after `since`.
    fn served_from(&self, since: Instant) -> Option<Instant> {
        let until = Instant::now() - WAITS * 2;
        let from = until - self.each * IN_A_ROW;
        let recent = self
            .ended
            .iter()
            .filter(|(came, _)| *came > from && *came < until);
        let refused = recent.clone().filter(|(_, is_granted)| !is_granted).count();
        (from > since && recent.count() >= ENOUGH && refused == 0).then_some(from)
    }
}

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

/// Half the pace at which this machine serves a service now. What it does not serve without a halt says
/// nothing about one.
async fn pace_of_this_machine(session: &Session) -> Duration {
    let (mut each, started) = (EACH_BESIDE_OTHERS, Instant::now());
    while started.elapsed() < PATIENCE {
        let (mut service, begun) = (Service::new(session, each), Instant::now());
        // As long as three rows, and as requests take that are served late.
        while begun.elapsed() < each * IN_A_ROW * 3 + WAITS * 4 {
            service.next().await;
            if service.served_from(begun).is_some() {
                service.requests.join_all().await;
                return each * 2;
            }
        }
        service.requests.join_all().await;
        each *= 2;
        if each > SLOWEST {
            each = EACH_BESIDE_OTHERS;
        }
    }
    panic!("not even one request in {SLOWEST:?} is served");
}

/// After which time all requests in a row are served again, if the ensemble stands still.
async fn served_after_a_halt(
    ensemble: &TestEnsemble,
    session: &Session,
    each: Duration,
) -> Duration {
    let (mut service, begun) = (Service::new(session, each), Instant::now());
    let (mut is_halted, mut resumed) = (false, None);
    loop {
        service.next().await;
        let at = begun.elapsed();
        if !is_halted && at > HALT / 4 {
            ensemble.pause();
            is_halted = true;
        } else if resumed.is_none() && at > HALT / 4 + HALT {
            ensemble.resume();
            resumed = Some(Instant::now());
        }
        let Some(resumed) = resumed else { continue };
        if let Some(from) = service.served_from(resumed) {
            service.requests.join_all().await;
            return from.saturating_duration_since(resumed);
        }
        assert!(resumed.elapsed() < PATIENCE, "not served again");
    }
}

on_ensembles_of_their_own!(service_is_served_again_soon_after_a_halt);

/// One halt, or as many as `HALTS` says, each of a machine that has nothing else to do.
async fn service_is_served_again_soon_after_a_halt(ensemble: TestEnsemble) {
    let _machine = MACHINE.lock().await;
    let halts: Option<u32> = env::var("HALTS").ok().map(|it| it.parse().unwrap());
    let session = ensemble.session().await;
    let neighbour = crate::neighbour(&ensemble, halts.is_some()).await;
    let held = InterProcessMutex::new(&neighbour, "/locks/neighbour").unwrap();
    let held = held.acquire().await.unwrap();
    let each = match halts {
        Some(_) => EACH,
        None => pace_of_this_machine(&session).await,
    };
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
