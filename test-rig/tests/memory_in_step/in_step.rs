//! Runs a script in both worlds, and stops at the first difference.

use std::collections::BTreeMap;
use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::differences;
use crate::differences_etcd;
use crate::differences_served;
use crate::numbers;
use crate::renaming::Renaming;
use crate::script::{Script, Step};
use crate::seen::{Leaf, Seen};
use crate::stage::Stage;
use crate::tally::Tally;
use crate::world::World;

/// What one world shows and the other does not.
#[derive(Debug)]
pub(crate) struct Difference {
    /// The step; `None` for the final tree.
    pub(crate) step: Option<usize>,
    memory: String,
    real: String,
}

impl Difference {
    fn new(step: Option<usize>, memory: &impl fmt::Debug, real: &impl fmt::Debug) -> Self {
        Self {
            step,
            memory: format!("{memory:?}"),
            real: format!("{real:?}"),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Some(step) => writeln!(f, "step {step}:")?,
            None => writeln!(f, "nodes in the end:")?,
        }
        writeln!(f, "  in memory: {}", self.memory)?;
        writeln!(f, "  on server: {}", self.real)
    }
}

/// Runs a script; each run has a directory of its own.
pub(crate) async fn run(
    script: &Script,
    world: &World,
    tally: &mut Tally,
) -> Result<(), Difference> {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    // Below another node, because nodes next to it are created, too.
    let top = format!("/run-{}", RUNS.fetch_add(1, Ordering::Relaxed));
    let is_etcd = world.is_etcd();
    let directories: &[&str] = match is_etcd {
        true => &differences_etcd::DIRECTORIES,
        false => &[],
    };
    let mut memory = Stage::set(world.double(), &top, directories).await;
    let mut real = Stage::set(world.clone(), &top, directories).await;
    let mut renaming = Renaming::new(world.is_served(), is_etcd);
    for (number, step) in script.steps.iter().enumerate() {
        let in_memory = memory.take(script, step).await;
        let on_server = match is_etcd {
            true => real.take_as(script, step, &in_memory).await,
            false => real.take(script, step).await,
        };
        for (number, id) in memory.sessions() {
            let real = real.sessions().get(&number).copied();
            renaming.session(id, real.unwrap_or_default());
        }
        tally.count(step, &on_server);
        compare(&mut renaming, world, step, in_memory, on_server)
            .map_err(|(memory, real)| Difference::new(Some(number), &memory, &real))?;
    }
    if is_etcd {
        let late = real.late().await;
        if !late.is_empty() {
            return Err(Difference::new(None, &"nothing more is heard", &late));
        }
    }
    let leaves = (memory.tree().await, real.tree().await);
    compare_trees(
        &mut renaming,
        numbers::leaves(leaves.0),
        numbers::leaves(leaves.1),
    )
}

type SeenByAll = BTreeMap<usize, Seen>;

fn compare(
    renaming: &mut Renaming,
    world: &World,
    step: &Step,
    mut memory: SeenByAll,
    mut real: SeenByAll,
) -> Result<(), (SeenByAll, SeenByAll)> {
    for (memory, real) in memory.values_mut().zip(real.values_mut()) {
        let seen = (mem::take(memory), mem::take(real));
        (*memory, *real) = without(world, step, seen);
    }
    let mut pairs = memory.values().zip(real.values());
    let same = memory.keys().eq(real.keys())
        && pairs.all(|(memory, real)| {
            let mut answers = memory.answers.iter().zip(&real.answers);
            (&memory.heard, memory.ended) == (&real.heard, real.ended)
                && memory.answers.len() == real.answers.len()
                && answers.all(|(memory, real)| renaming.answer(memory, real))
        });
    if same { Ok(()) } else { Err((memory, real)) }
}

fn without(world: &World, step: &Step, (memory, real): (Seen, Seen)) -> (Seen, Seen) {
    match world {
        World::Served(served) => {
            let (memory, real) = differences_served::without_first(memory, real);
            let (memory, real) = match served.tells_apart() {
                true => differences_served::without_order(step, memory, real),
                false => (memory, real),
            };
            let (memory, real) = differences_served::without(step, memory, real);
            match served.is_etcd() {
                true => (
                    differences_etcd::without(memory),
                    differences_etcd::without(real),
                ),
                false => (memory, real),
            }
        }
        World::Memory(_) | World::Real(_) => (
            differences::without(step, memory),
            differences::without(step, real),
        ),
    }
}

fn compare_trees(
    renaming: &mut Renaming,
    memory: Vec<Leaf>,
    real: Vec<Leaf>,
) -> Result<(), Difference> {
    let paths = |leaves: &[Leaf]| leaves.iter().map(|it| it.path.clone()).collect::<Vec<_>>();
    if paths(&memory) != paths(&real) {
        return Err(Difference::new(None, &paths(&memory), &paths(&real)));
    }
    for (memory, real) in memory.iter().zip(&real) {
        if !renaming.leaf(memory, real) {
            return Err(Difference::new(None, memory, real));
        }
    }
    Ok(())
}
