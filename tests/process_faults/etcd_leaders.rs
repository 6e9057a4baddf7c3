//! Leaders of etcd that were deposed and have not noticed.
//!
//! A leader that is cut off answers nothing that a quorum must stand behind, but it prolongs leases by its own clock
//! until it steps down, in the time of an election, or later if its process hardly runs. The next leader gives each lease its full time, and then ends it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use lock_recipes::{Etcd, Session};
use test_rig::history::monotonic_now;
use test_rig::{EtcdCluster, EtcdServer, asked_for};
use tokio::time::{sleep, timeout};

use super::deposed::{PATIENCE, await_queue_of, look, seconds};
use super::etcd_members::verified;
use crate::{LONG, mutex, waiter};

const SESSION_TIMEOUT: Duration = Duration::from_secs(6);
/// Runs at the same time. They mostly wait.
const ABREAST: usize = 3;
/// A process that stands still for the first of these, and then runs for the second, gets one or two ticks of its
/// clock each time: until it steps down, ten to twenty of them pass.
const SLOW: [Duration; 2] = [Duration::from_millis(1_300), Duration::from_millis(40)];

fn rounds() -> usize {
    asked_for("ETCD_ROUNDS", 2)
}

pub(super) async fn connect(url: &str, session_timeout: Duration) -> Session {
    let options = Etcd::builder().session_timeout(session_timeout);
    options.connect(url).await.unwrap()
}

pub(super) async fn start() -> EtcdCluster {
    EtcdCluster::builder()
        .links()
        .start_cluster(3)
        .await
        .unwrap()
}

/// The members but this one.
pub(super) fn url_of_others(cluster: &EtcdCluster, index: usize) -> String {
    let servers = cluster.servers().iter().enumerate();
    let others = servers.filter(|(other, _)| *other != index);
    let addresses: Vec<_> = others.map(|(_, it)| it.address()).collect();
    format!("etcd://{}", addresses.join(","))
}

/// What happens to a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    CutOff,
    /// Its process stands still.
    Halted,
    /// It is cut off, and its process hardly runs.
    Slow,
}

impl Trouble {
    /// A slow one answers two requests, one after the other, within a quarter of this.
    fn session_timeout(self) -> Duration {
        match self {
            Self::CutOff | Self::Halted => SESSION_TIMEOUT,
            Self::Slow => 2 * SESSION_TIMEOUT,
        }
    }
}

/// The results of a run. All times are monotonic.
struct Run {
    /// No quorum stands behind what the old leader answers after that.
    cut_at: u64,
    granted_at: u64,
    told_at: u64,
    /// The last check at which the old guard was valid.
    valid_at: u64,
    /// Whether the next holder is one when the old leader is back.
    is_kept: bool,
}

impl Run {
    /// How much earlier the old guard was invalid than the next one was granted.
    fn margin(&self) -> f64 {
        seconds(self.valid_at.max(self.told_at), self.granted_at)
    }

    fn is_wrong(&self) -> bool {
        self.valid_at >= self.granted_at || self.told_at >= self.granted_at
    }

    /// Whether anything has prolonged the old guard since the cut. It is valid for half of its session's timeout.
    fn is_prolonged(&self, trouble: Trouble) -> bool {
        let valid = Duration::from_nanos(self.valid_at.saturating_sub(self.cut_at));
        valid > trouble.session_timeout() / 2
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "granted {:5.2} s after the cut, told {:6.3} s before, valid until {:6.3} s before{}",
            seconds(self.cut_at, self.granted_at),
            seconds(self.told_at, self.granted_at),
            seconds(self.valid_at, self.granted_at),
            if self.is_kept {
                ""
            } else {
                "; the next one was lost when the old leader was back"
            },
        )
    }
}

/// Has a process run for a moment now and then.
async fn slow_down(server: &EtcdServer) {
    let [halted, runs] = SLOW;
    loop {
        server.pause().unwrap();
        sleep(halted).await;
        server.resume().unwrap();
        sleep(runs).await;
    }
}

/// A holder that knows the leader alone, and a waiter that knows the others. `None` if the holder lost its lock
/// before anything happened, as on a machine that is too busy.
async fn depose(trouble: Trouble) -> Option<Run> {
    let cluster = start().await;
    let leader = cluster.leader().await.unwrap();
    let old = cluster.server(leader);
    let holding = connect(&old.url(), trouble.session_timeout()).await;
    let waiting = connect(&url_of_others(&cluster, leader), LONG).await;
    let held = Arc::new(mutex(&holding).acquire().await.unwrap());
    let mut next = waiter(&waiting);
    tokio::select! {
        _ = held.lost() => return None,
        () = await_queue_of(&waiting, 2) => {}
    }
    let told = tokio::spawn({
        let lost = held.lost();
        async move { (lost.await, monotonic_now()).1 }
    });
    let looks = look(Arc::clone(&held));
    held.verify().await.ok()?;

    match trouble {
        Trouble::Halted => old.pause().unwrap(),
        Trouble::CutOff | Trouble::Slow => cluster.cut_off(leader),
    }
    let cut_at = monotonic_now();
    if !held.is_valid() {
        return None;
    }
    let granted = async {
        match trouble {
            Trouble::CutOff | Trouble::Halted => (&mut next).await,
            Trouble::Slow => tokio::select! {
                granted = &mut next => granted,
                () = slow_down(old) => unreachable!("it goes on"),
            },
        }
    };
    let (granted_at, granted) = timeout(PATIENCE, granted).await.unwrap().unwrap();
    let told_at = timeout(PATIENCE, told).await.unwrap().unwrap();
    let valid_at = timeout(PATIENCE, looks).await.unwrap().unwrap();
    assert!(granted.fencing_token() > held.fencing_token());
    old.resume().unwrap();
    cluster.join_again(leader);
    // What it says now, the others say.
    let back = async { while old.command(&["get", "x"]).await.is_err() {} };
    timeout(PATIENCE, back).await.unwrap();
    let is_kept = verified(&granted).await.is_ok();
    if is_kept {
        granted.release().await.unwrap();
    }
    Some(Run {
        cut_at,
        granted_at,
        told_at,
        valid_at,
        is_kept,
    })
}

async fn depose_until_it_counts(trouble: Trouble) -> Run {
    for _ in 0..10 {
        if let Some(run) = depose(trouble).await {
            println!("{trouble:?}: {run}");
            return run;
        }
    }
    panic!("{trouble:?}: the holder loses its lock all the time");
}

async fn holder_is_told_first(trouble: Trouble) {
    let runs = stream::iter(0..rounds())
        .map(|_| tokio::spawn(depose_until_it_counts(trouble)))
        .buffer_unordered(ABREAST);
    let runs: Vec<Run> = runs.map(Result::unwrap).collect().await;
    let sorted = |of: &dyn Fn(&Run) -> f64| {
        let mut all: Vec<f64> = runs.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        format!(
            "{:.2} to {:.2} s, {:.2} s in the middle",
            all[0],
            all[all.len() - 1],
            all[all.len() / 2]
        )
    };
    println!(
        "{trouble:?}, {} runs: granted after {}; the old guard invalid before that by {}",
        runs.len(),
        sorted(&|it| seconds(it.cut_at, it.granted_at)),
        sorted(&Run::margin),
    );
    let wrong = runs
        .iter()
        .filter(|run| run.is_wrong() || run.is_prolonged(trouble) || !run.is_kept);
    let wrong: Vec<_> = wrong.map(ToString::to_string).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_by_a_leader_that_is_cut_off_is_told_before_the_next_grant() {
    holder_is_told_first(Trouble::CutOff).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_by_a_leader_that_is_halted_is_told_before_the_next_grant() {
    holder_is_told_first(Trouble::Halted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_by_a_leader_whose_clock_is_slow_is_told_before_the_next_grant() {
    holder_is_told_first(Trouble::Slow).await;
}

/// Leases that a member has ended because they were over by its clock.
const ENDED: &str = "etcd_debugging_server_lease_expired_total ";

/// What has become of a lock whose lease another leader had prolonged when the old one came back.
#[derive(Clone, Copy, Debug, PartialEq)]
enum After {
    Kept,
    /// The old leader has ended the lease. That is a defect of etcd, and no session can help against it.
    EndedByOld,
    /// So many seconds before the next grant.
    Told(f64),
}

/// Whether a member that leads no more has ended a lease.
async fn has_ended_one(old: &EtcdServer) -> bool {
    // It counts when it has heard that the lease is gone, which others may have heard before.
    let counted = async {
        while !old.metric(ENDED).await.is_ok_and(|it| it > 0.0) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SESSION_TIMEOUT, counted).await.is_ok()
}

/// A leader stands still for longer than a lease lives, and comes back. By its own clock all leases are over, for
/// the moment until it knows that it leads no more.
async fn come_back() -> After {
    let session_timeout = 4 * SESSION_TIMEOUT;
    let cluster = start().await;
    let leader = cluster.leader().await.unwrap();
    let others = url_of_others(&cluster, leader);
    let holding = connect(&others, session_timeout).await;
    let waiting = connect(&others, 2 * LONG).await;
    let held = mutex(&holding).acquire().await.unwrap();
    let mut next = waiter(&waiting);
    await_queue_of(&waiting, 2).await;
    let told = tokio::spawn({
        let lost = held.lost();
        async move { (lost.await, monotonic_now()).1 }
    });
    let old = cluster.server(leader);
    old.pause().unwrap();
    sleep(session_timeout * 5 / 3).await;
    assert!(held.is_valid(), "the holder goes to the other leader");
    old.resume().unwrap();
    match timeout(session_timeout / 2, &mut next).await {
        Ok(granted) => {
            let (granted_at, granted) = granted.unwrap();
            let told_at = timeout(PATIENCE, told).await.unwrap().unwrap();
            assert!(granted.fencing_token() > held.fencing_token());
            match has_ended_one(old).await {
                true => After::EndedByOld,
                false => After::Told(seconds(told_at, granted_at)),
            }
        }
        Err(_) => {
            verified(&held).await.unwrap();
            next.abort();
            After::Kept
        }
    }
}

async fn come_back_until_it_counts() -> After {
    for _ in 0..10 {
        let after = come_back().await;
        if after != After::EndedByOld {
            return after;
        }
        println!("the old leader has ended a lease that was alive");
    }
    panic!("old leaders end leases all the time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leader_that_comes_back_ends_no_session_of_the_next() {
    let runs = stream::iter(0..rounds())
        .map(|_| tokio::spawn(come_back_until_it_counts()))
        .buffer_unordered(ABREAST);
    let runs: Vec<After> = runs.map(Result::unwrap).collect().await;
    println!("leaders that came back: {runs:?}");
    assert!(runs.iter().all(|it| *it == After::Kept), "{runs:?}");
}
