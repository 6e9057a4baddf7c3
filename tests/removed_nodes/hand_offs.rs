//! Nodes that are removed at any moment while a lock goes from one contender to the next, of the
//! same process and of another.
//!
//! In memory a removal is heard of at once. What is granted before that is none of this file's
//! business; afterwards nobody may be granted the lock on the node, and tokens rise.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use recipes_testing::MemoryEnsemble;
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{Instant, sleep, timeout};
use zookeeper_recipes::{FencingToken, InterProcessMutex, LockOptions, MutexGuard, Session};

use crate::{PATIENCE, node_of};

const PATH: &str = "/locks/orders";
/// How long each holds the lock. A holder that has not waited looks at its node after 250 ms.
const SECTION: Duration = Duration::from_millis(100);
/// Within this, documents say, a holder hears that its node was removed: see `OWN_WATCH_GRACE`.
const HEARD_WITHIN: Duration = Duration::from_millis(251);
/// As many polls as it takes for everything to settle that is not a matter of time.
const SETTLED: usize = 64;

/// Whose node the operator removes.
#[derive(Clone, Copy, Debug)]
enum Victim {
    First,
    Second,
    Last,
}

/// When: so long after the first grant, and so many turns of all tasks.
#[derive(Clone, Copy, Debug)]
struct Moment {
    after: Duration,
    turns: usize,
}

struct Holder {
    name: usize,
    node: String,
    guard: MutexGuard,
}

/// Looks at every grant.
#[derive(Default)]
struct Judge {
    holders: Vec<Holder>,
    highest: Option<FencingToken>,
    grants: usize,
    /// Nodes of which everybody has heard that they are gone, and since when they are.
    removed: Vec<(String, Instant)>,
    /// As long as somebody may not have heard.
    settling: Option<String>,
    faults: Vec<String>,
}

impl Judge {
    fn granted(&mut self, name: usize, guard: MutexGuard) {
        let (node, token) = (node_of(&guard), guard.fencing_token());
        self.grants += 1;
        let is_excused = self.settling.as_ref() == Some(&node);
        if self.removed.iter().any(|(path, _)| *path == node) {
            self.fault(format!("{name} is granted on a removed node"));
        }
        if !is_excused && self.highest >= Some(token) {
            let highest = self.highest;
            self.fault(format!("{name} is granted {token} after {highest:?}"));
        }
        let beside: Vec<_> = self
            .holders
            .iter()
            .filter(|other| other.guard.is_valid() && !self.is_excused(other))
            .map(|other| other.name)
            .collect();
        for other in beside {
            self.fault(format!("{name} is granted beside {other}"));
        }
        self.highest = self.highest.max(Some(token));
        self.holders.push(Holder { name, node, guard });
    }

    /// Valid, though its node is gone: for as long as the documents say.
    fn is_excused(&self, holder: &Holder) -> bool {
        let removed = self.removed.iter().find(|(path, _)| *path == holder.node);
        let is_recent = removed.is_some_and(|(_, at)| at.elapsed() <= HEARD_WITHIN);
        is_recent || self.settling.as_ref() == Some(&holder.node)
    }

    fn fault(&mut self, fault: String) {
        self.faults.push(fault);
    }
}

type Shared = Arc<Mutex<Judge>>;

/// Takes the lock for a while; it does not matter here how the release ends.
async fn contend(lock: InterProcessMutex, name: usize, judge: Shared) {
    let guard = lock.acquire().await.unwrap();
    judge.lock().unwrap().granted(name, guard);
    sleep(SECTION).await;
    let guard = {
        let mut judge = judge.lock().unwrap();
        let index = judge.holders.iter().position(|it| it.name == name);
        judge.holders.remove(index.unwrap()).guard
    };
    drop(guard.release().await);
}

fn spawn(session: &Session, name: usize, handoffs: u32, judge: &Shared) -> JoinHandle<()> {
    let options = LockOptions::new().local_handoffs(handoffs);
    let lock = InterProcessMutex::with_options(session, PATH, &options).unwrap();
    tokio::spawn(contend(lock, name, Arc::clone(judge)))
}

async fn turns(count: usize) {
    for _ in 0..count {
        yield_now().await;
    }
}

async fn strike(memory: &MemoryEnsemble, victim: Victim, judge: &Shared) {
    let mut queue = memory.children(PATH);
    queue.sort_by_key(|name| name.get(name.len() - 10..).map(str::to_owned));
    let chosen = match victim {
        Victim::First => queue.first(),
        Victim::Second => queue.get(1),
        Victim::Last => queue.last(),
    };
    let Some(node) = chosen.map(|name| format!("{PATH}/{name}")) else {
        return;
    };
    memory.delete(&node).unwrap();
    let at = Instant::now();
    judge.lock().unwrap().settling = Some(node.clone());
    turns(SETTLED).await;
    let mut judge = judge.lock().unwrap();
    judge.settling = None;
    judge.removed.push((node, at));
}

/// Two of one process and one of another before, two and one behind.
async fn run(handoffs: u32, victim: Victim, moment: Moment) -> Vec<String> {
    let memory = MemoryEnsemble::new();
    let (ours, others) = (memory.session(), memory.session());
    let judge = Shared::default();
    let mut tasks = Vec::new();
    for (name, session) in [&ours, &ours, &others, &ours, &ours, &others]
        .into_iter()
        .enumerate()
    {
        let handoffs = if std::ptr::eq(session, &ours) {
            handoffs
        } else {
            0
        };
        tasks.push(spawn(session, name, handoffs, &judge));
        turns(SETTLED).await;
    }
    sleep(moment.after).await;
    turns(moment.turns).await;
    strike(&memory, victim, &judge).await;
    for task in tasks {
        timeout(PATIENCE, task).await.unwrap().unwrap();
    }
    let mut judge = judge.lock().unwrap();
    assert_eq!(judge.grants, 6, "somebody waits for ever");
    std::mem::take(&mut judge.faults)
}

/// Each millisecond of the first holds, and each turn after a hand-off.
fn moments() -> Vec<Moment> {
    let by_time = (0..450).map(|ms| (ms, 0));
    let releases = [0, 100, 200, 300];
    let by_turn = releases
        .into_iter()
        .flat_map(|ms| (1..40).map(move |turns| (ms, turns)));
    let all = by_time.chain(by_turn);
    all.map(|(ms, turns)| Moment {
        after: Duration::from_millis(ms),
        turns,
    })
    .collect()
}

struct Found(Vec<(Victim, Moment, Vec<String>)>);

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (victim, moment, faults) in self.0.iter().take(5) {
            writeln!(f, "{victim:?} removed at {moment:?}: {faults:?}")?;
        }
        Ok(())
    }
}

async fn removed_at_every_moment(handoffs: u32) {
    let mut found = Found(Vec::new());
    let (mut runs, moments) = (0, moments());
    for victim in [Victim::First, Victim::Second, Victim::Last] {
        for moment in &moments {
            runs += 1;
            let faults = run(handoffs, victim, *moment).await;
            if !faults.is_empty() {
                found.0.push((victim, *moment, faults));
            }
        }
    }
    println!(
        "{handoffs} hand-offs: wrong in {} of {runs} runs",
        found.0.len()
    );
    assert!(
        found.0.is_empty(),
        "{} of {runs} runs\n{found}",
        found.0.len()
    );
}

#[tokio::test(start_paused = true)]
async fn removed_node_is_not_handed_on_at_any_moment() {
    removed_at_every_moment(9).await;
}

#[tokio::test(start_paused = true)]
async fn removed_node_is_not_granted_to_the_next_process_at_any_moment() {
    removed_at_every_moment(0).await;
}
