//! Leaders that were deposed and have not noticed.
//!
//! A leader that has lost its followers goes on for `syncLimit` ticks and one more. It answers
//! every request for which it needs no follower. Meanwhile the others elect another leader, which
//! gives every session its full timeout and then expires it, while the old leader still answers its
//! client. This needs no partition: anything that ends the connections to the old leader makes the
//! others elect.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use futures::{StreamExt, stream};
use lock_recipes::{MutexGuard, Session};
use test_rig::history::monotonic_now;
use test_rig::{FaultProxy, ServerBuilder, ZooKeeperEnsemble};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::{LONG, connect, mutex, waiter};

/// The servers' default: a leader goes on alone for up to 12 s.
const TICK: Duration = Duration::from_secs(2);
const SYNC_LIMIT: &str = "5";
/// An awaited event that takes longer never happens.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);
/// Runs at the same time. They mostly wait.
const ABREAST: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Near {
    Leader,
    /// The follower is cut off with its leader if the others are a quorum. Otherwise it is killed
    /// with the others, and its client moves to the leader.
    Follower,
}

#[derive(Clone, Copy)]
struct Cell {
    servers: usize,
    near: Near,
    session_timeout: Duration,
    down: Duration,
    /// Whether the holder verifies all the time. If it does, a request that needs a quorum is in
    /// flight from the beginning, and no later request is answered. A holder that does not verify
    /// is misled for longer.
    verifies: bool,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            servers,
            near,
            session_timeout,
            down,
            verifies,
        } = self;
        let verifies = if *verifies { "and verifies" } else { "" };
        let near = match near {
            Near::Leader => "old leader",
            Near::Follower => "follower of it",
        };
        write!(
            f,
            "{servers} servers, T {:>2} s, holder on {near:<14} {verifies:<12}, others back \
             after {} s",
            session_timeout.as_secs(),
            down.as_secs()
        )
    }
}

impl Cell {
    fn all() -> Vec<Self> {
        let mut cells = Vec::new();
        for down in [0, 4].map(Duration::from_secs) {
            for session_timeout in [4, 6, 12, 24].map(Duration::from_secs) {
                for servers in [3, 5] {
                    for near in [Near::Leader, Near::Follower] {
                        cells.extend([false, true].map(|verifies| Self {
                            servers,
                            near,
                            session_timeout,
                            down,
                            verifies,
                        }));
                    }
                }
            }
        }
        cells
    }

    /// The cells that reveal most in the least time. `DEPOSED` sets a number of runs over all cells
    /// instead.
    fn asked_for() -> Vec<Self> {
        let asked = std::env::var("DEPOSED").ok();
        let runs = asked.map(|it| it.parse::<usize>().unwrap());
        let cells = Self::all();
        if let Some(runs) = runs {
            return cells.into_iter().cycle().take(runs).collect();
        }
        let is_telling = |cell: &Self| {
            let seconds = cell.session_timeout.as_secs();
            match (cell.servers, cell.near, cell.verifies) {
                _ if !cell.down.is_zero() => false,
                (3, Near::Leader, false) => seconds < 20,
                (3, Near::Leader, true) => seconds == 4,
                (_, Near::Follower, false) => seconds == 6,
                _ => false,
            }
        };
        cells.into_iter().filter(is_telling).collect()
    }
}

/// The results of a run. All times are monotonic; those of checks are from before the check.
struct Run {
    cell: Cell,
    cut_at: u64,
    granted_at: u64,
    told_at: u64,
    /// The last check at which the old guard was valid.
    valid_at: u64,
    /// The last time that it was verified. That is before the cut unless it verifies all the time.
    verified_at: u64,
}

pub(crate) fn seconds(from: u64, to: u64) -> f64 {
    (i128::from(to) - i128::from(from)) as f64 / 1e9
}

impl Run {
    /// How much earlier the old holder was notified than the next one was granted.
    fn margin(&self) -> f64 {
        seconds(self.told_at, self.granted_at)
    }

    fn faults(&self) -> Vec<&'static str> {
        let faults = [
            (self.told_at >= self.granted_at, "told too late"),
            (self.valid_at >= self.granted_at, "two valid guards"),
            (self.verified_at >= self.granted_at, "verified too late"),
        ];
        let has = faults.iter().filter(|(is_so, _)| *is_so);
        has.map(|(_, fault)| *fault).collect()
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: granted {:5.2} s after the cut, told {:6.3} s before, valid until {:6.3} s before, \
             last verified {:6.3} s before",
            self.cell,
            seconds(self.cut_at, self.granted_at),
            self.margin(),
            seconds(self.valid_at, self.granted_at),
            seconds(self.verified_at, self.granted_at),
        )?;
        for fault in self.faults() {
            write!(f, " - {fault}")?;
        }
        Ok(())
    }
}

fn ensemble() -> ServerBuilder {
    ZooKeeperEnsemble::builder()
        .links()
        .tick(TICK)
        .min_session_timeout(2 * TICK)
        .config("initLimit", "10")
        .config("syncLimit", SYNC_LIMIT)
}

/// Checks the guard all the time. Returns the time of the last check at which it was valid.
pub(crate) fn look(held: Arc<MutexGuard>) -> JoinHandle<u64> {
    tokio::spawn(async move {
        let mut valid_at = 0;
        loop {
            let asked = monotonic_now();
            if !held.is_valid() {
                return valid_at;
            }
            valid_at = asked;
            sleep(Duration::from_millis(1)).await;
        }
    })
}

/// Verifies the guard all the time. Returns the time of the last success.
fn verify(held: Arc<MutexGuard>, mut verified_at: u64) -> JoinHandle<u64> {
    tokio::spawn(async move {
        loop {
            let asked = monotonic_now();
            match held.verify().await {
                Ok(()) => verified_at = asked,
                // It is lost for good.
                Err(_) if !held.is_valid() => return verified_at,
                Err(_) => {}
            }
            sleep(Duration::from_millis(5)).await;
        }
    })
}

/// Cuts off a minority with the leader, and starts the others again. `None` if the holder lost its
/// lock before that, as on a machine that is too busy for a short session.
async fn depose(cell: Cell) -> Option<Run> {
    let ensemble = ensemble().start_ensemble(cell.servers).await.unwrap();
    let leader = ensemble.leader().await.unwrap();
    let follower = (leader + 1) % cell.servers;
    let (near, minority) = match (cell.near, cell.servers) {
        (Near::Leader, _) => (leader, vec![leader]),
        (Near::Follower, 3) => (follower, vec![leader]),
        (Near::Follower, _) => (follower, vec![leader, follower]),
    };
    let others: Vec<_> = (0..cell.servers)
        .filter(|it| !minority.contains(it))
        .collect();
    let addresses = others
        .iter()
        .map(|it| ensemble.server(*it).connect_string());
    let addresses = addresses.collect::<Vec<_>>().join(",");
    let near_address = ensemble.server(near).connect_string();
    let proxy = FaultProxy::start(&near_address).await.unwrap();
    let holding = connect(&proxy.connect_string(), cell.session_timeout).await;
    let waiting = connect(&addresses, LONG).await;
    let held = Arc::new(mutex(&holding).acquire().await.unwrap());
    let next = waiter(&waiting);
    if others.contains(&near) {
        proxy.retarget(&ensemble.server(leader).connect_string());
    }
    tokio::select! {
        _ = held.lost() => return None,
        () = await_queue_of(&waiting, 2) => {}
    }
    let told = tokio::spawn({
        let lost = held.lost();
        async move { (lost.await, monotonic_now()).1 }
    });
    let looks = look(Arc::clone(&held));
    let verified_at = monotonic_now();
    held.verify().await.ok()?;
    let verifications = cell
        .verifies
        .then(|| verify(Arc::clone(&held), verified_at));

    let cut_at = monotonic_now();
    ensemble.cut_off_together(&minority);
    if !held.is_valid() {
        return None;
    }
    for killed in join_all(others.iter().map(|it| ensemble.kill(*it))).await {
        killed.unwrap();
    }
    sleep(cell.down).await;
    for started in join_all(others.iter().map(|it| ensemble.start_again(*it))).await {
        started.unwrap();
    }
    let (granted_at, granted) = timeout(PATIENCE, next).await.unwrap().unwrap();
    let told_at = timeout(PATIENCE, told).await.unwrap().unwrap();
    let run = Run {
        cell,
        cut_at,
        granted_at,
        told_at,
        valid_at: timeout(PATIENCE, looks).await.unwrap().unwrap(),
        verified_at: match verifications {
            Some(verifications) => timeout(PATIENCE, verifications).await.unwrap().unwrap(),
            None => verified_at,
        },
    };
    assert!(granted.fencing_token() > held.fencing_token());
    granted.release().await.unwrap();
    Some(run)
}

pub(crate) async fn await_queue_of(session: &Session, count: usize) {
    let directory = mutex(session);
    let queued = async {
        while directory.participants().await.unwrap().len() != count {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, queued).await.unwrap();
}

async fn depose_until_it_counts(cell: Cell) -> Run {
    for _ in 0..10 {
        if let Some(run) = depose(cell).await {
            println!("{run}");
            return run;
        }
    }
    panic!("{cell}: the holder loses its lock all the time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_by_a_leader_that_was_deposed_is_told_before_the_next_leader_lets_another_in() {
    let runs = stream::iter(Cell::asked_for())
        .map(|cell| tokio::spawn(depose_until_it_counts(cell)))
        .buffer_unordered(ABREAST);
    let runs: Vec<Run> = runs.map(Result::unwrap).collect().await;
    let mut margins: Vec<_> = runs.iter().map(Run::margin).collect();
    margins.sort_by(f64::total_cmp);
    println!(
        "deposed leaders: told {:.3} s before the next one was granted at least, {:.3} s in the \
         median, in {} runs",
        margins[0],
        margins[margins.len() / 2],
        margins.len()
    );
    let wrong = runs.iter().filter(|run| !run.faults().is_empty());
    let wrong: Vec<_> = wrong.map(ToString::to_string).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
