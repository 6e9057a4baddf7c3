//! Nodes that are removed at any moment while a lock passes from one contender to the next, of the
//! same process and of another.
//!
//! This file does not judge grants from before the removal could be noticed. Afterwards no
//! contender may be granted the lock on the removed node, and tokens must rise.

mod contenders;
mod judge;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use recipes_testing::{Faults, MemoryEnsemble};
use tokio::time::{Instant, sleep, timeout};

use contenders::{
    Cast, FIRST, MUTEXES, Process, READERS_BESIDE_WRITERS, READERS_THEN_WRITERS, SECOND,
    SETS_OF_ALL_KINDS, SETS_OF_MUTEXES, SETTLED, Stage, Victims, WRITERS_THEN_READERS, turns,
};
use judge::Judge;

/// Of virtual time: who waits for longer waits for ever.
const PATIENCE: Duration = Duration::from_secs(120);
const DIRECTORY: &str = "/locks";
/// The documented time within which a holder notices that its node was removed: see
/// `OWN_WATCH_GRACE`.
const HEARD_WITHIN: Duration = Duration::from_millis(251);

/// How long things take.
#[derive(Clone, Copy, Debug)]
struct World {
    /// How long each contender holds. A holder that has not waited checks its node after 250 ms.
    section: Duration,
    /// The time that a request takes to the ensemble.
    there: Duration,
    /// The time that a reply or an event takes back.
    back: Duration,
}

/// Every message arrives at once. Tasks take turns at each moment.
const AT_ONCE: World = World {
    section: Duration::from_millis(100),
    there: Duration::ZERO,
    back: Duration::ZERO,
};
/// Messages that are in flight when a node is removed arrive later.
const ON_ITS_WAY: World = World {
    section: Duration::from_millis(7),
    there: Duration::from_millis(2),
    back: Duration::from_millis(3),
};

/// A moment: this long after all contend, and this many turns of all tasks later.
#[derive(Clone, Copy, Debug)]
struct Moment {
    world: World,
    after: Duration,
    turns: usize,
}

/// Moments all along while the first contender holds, at each turn after a hand-off, and at each
/// millisecond if messages take time. Each of them, or one of 23: see `MOMENTS_APART`.
fn moments() -> Vec<Moment> {
    let all = [
        moments_of(AT_ONCE, (0..450).step_by(10).map(|ms| (ms, 0))),
        moments_of(
            AT_ONCE,
            (0..500)
                .step_by(100)
                .flat_map(|ms| (1..40).map(move |turns| (ms, turns))),
        ),
        moments_of(ON_ITS_WAY, (0..120).map(|ms| (ms, 0))),
    ];
    let apart = crate::number("MOMENTS_APART").map_or(23, |it| usize::try_from(it).unwrap());
    all.concat().into_iter().step_by(apart).collect()
}

fn moments_of(world: World, times: impl Iterator<Item = (u64, usize)>) -> Vec<Moment> {
    let moment = |(ms, turns)| Moment {
        world,
        after: Duration::from_millis(ms),
        turns,
    };
    times.map(moment).collect()
}

impl World {
    fn ensemble(&self) -> MemoryEnsemble {
        let faults = Faults {
            request_delay_min: self.there,
            request_delay_max: self.there,
            ..Faults::default()
        };
        MemoryEnsemble::builder()
            .latency(self.back)
            .faults(faults)
            .build()
    }

    fn round_trip(&self) -> Duration {
        self.there + self.back
    }

    fn stage(&self, handoffs: u32) -> Arc<Stage> {
        // A holder that was granted before it notices the removal checks its node that much later.
        let judge = Judge::new(HEARD_WITHIN + 2 * self.round_trip());
        Arc::new(Stage {
            directory: DIRECTORY.to_owned(),
            section: self.section,
            handoffs,
            judge: Mutex::new(judge),
        })
    }
}

async fn strike(
    memory: &MemoryEnsemble,
    stage: &Stage,
    (victims, lock): (Victims, &str),
    moment: Moment,
) {
    let names = memory.children(&stage.path(lock));
    let nodes = victims.of(names, stage, lock);
    stage.judge().removing(&nodes);
    for node in &nodes {
        // The node of a holder may already be in the process of being deleted.
        drop(memory.delete(node));
    }
    let since = Instant::now();
    if !moment.world.back.is_zero() {
        sleep(moment.world.back).await;
    }
    turns(SETTLED).await;
    stage.judge().settled(since);
}

async fn run(cast: Cast, handoffs: u32, victims: (Victims, &str), moment: Moment) -> Vec<String> {
    let memory = moment.world.ensemble();
    let (ours, others) = (memory.session(), memory.session());
    let stage = moment.world.stage(handoffs);
    let mut tasks = Vec::new();
    for (name, contender) in cast.iter().enumerate() {
        let session = match contender.0 {
            Process::Ours => &ours,
            Process::Other => &others,
        };
        tasks.push(stage.enter(session, name, *contender));
        turns(SETTLED).await;
    }
    sleep(moment.after).await;
    turns(moment.turns).await;
    strike(&memory, &stage, victims, moment).await;
    for task in tasks {
        timeout(PATIENCE, task).await.unwrap().unwrap();
    }
    let mut judge = stage.judge();
    assert_eq!(judge.served, cast.len(), "somebody waits for ever");
    std::mem::take(&mut judge.faults)
}

/// With local hand-offs in our process, and without.
async fn removed_at_every_moment(cast: Cast, locks: &[&str]) {
    let (mut runs, mut wrong) = (0, Vec::new());
    for handoffs in [0, 9] {
        for victims in Victims::ALL {
            // One lock after the other: messages take longer than the time from one moment to the
            // next.
            for (moment, lock) in moments().into_iter().zip(locks.iter().cycle()) {
                runs += 1;
                let faults = run(cast, handoffs, (victims, *lock), moment).await;
                if !faults.is_empty() {
                    let what = format!(
                        "{victims:?} of {lock}, {handoffs} hand-offs, {moment:?}: {faults:?}"
                    );
                    wrong.push(what);
                }
            }
        }
    }
    let first = wrong.iter().take(5).cloned().collect::<Vec<_>>();
    assert!(
        wrong.is_empty(),
        "{} of {runs} runs\n{}",
        wrong.len(),
        first.join("\n")
    );
}

#[tokio::test(start_paused = true)]
async fn removed_node_of_a_mutex_is_not_granted_at_any_moment() {
    removed_at_every_moment(MUTEXES, &[FIRST]).await;
}

#[tokio::test(start_paused = true)]
async fn removed_node_is_not_granted_where_readers_follow_writers_at_any_moment() {
    removed_at_every_moment(WRITERS_THEN_READERS, &[FIRST]).await;
}

#[tokio::test(start_paused = true)]
async fn removed_node_is_not_granted_where_writers_follow_readers_at_any_moment() {
    removed_at_every_moment(READERS_THEN_WRITERS, &[FIRST]).await;
}

#[tokio::test(start_paused = true)]
async fn removed_node_is_not_granted_where_writers_go_on_reading_at_any_moment() {
    removed_at_every_moment(READERS_BESIDE_WRITERS, &[FIRST]).await;
}

#[tokio::test(start_paused = true)]
async fn removed_node_of_a_set_of_mutexes_is_not_granted_at_any_moment() {
    removed_at_every_moment(SETS_OF_MUTEXES, &[FIRST, SECOND]).await;
}

#[tokio::test(start_paused = true)]
async fn removed_node_of_a_set_of_all_kinds_is_not_granted_at_any_moment() {
    removed_at_every_moment(SETS_OF_ALL_KINDS, &[FIRST, SECOND]).await;
}
