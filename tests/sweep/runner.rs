//! Runs many cases at a time and reports the results.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic;
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream;
use tokio::time::Instant;

use crate::case::Case;
use crate::scene::{Shown, Stage};

/// Runs at a time, each with a session that must send something every 150 ms.
const AT_A_TIME: usize = 8;

/// More broken runs reveal nothing new.
const BROKEN_MAX: usize = 5;

/// Panics of any thread or task. Nothing else reports those of the library's own tasks.
static PANICS: AtomicUsize = AtomicUsize::new(0);

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) runs: usize,
    pub(crate) struck: usize,
    pub(crate) lost: usize,
    longest_wait: (Duration, String),
    broken: Vec<String>,
}

impl Tally {
    pub(crate) fn add(&mut self, case: &Case, outcome: &Result<Shown, String>) {
        self.runs += 1;
        match outcome {
            Ok(shown) => {
                self.struck += usize::from(shown.has_struck);
                self.lost += usize::from(shown.loss.is_some());
                let wait = (shown.longest_wait, case.to_string());
                if wait > self.longest_wait {
                    self.longest_wait = wait;
                }
            }
            Err(broken) => self.broken.push(format!(
                "{case}: {broken}run it alone: SWEEP_CASE='{case}' cargo test -p tests --test sweep\n"
            )),
        }
    }

    /// Prints the counts; fails if a promise was broken or anything has panicked.
    pub(crate) fn finish(self, what: &str, started: Instant) {
        let Self {
            runs,
            struck,
            lost,
            longest_wait: (wait, longest),
            broken,
        } = self;
        println!(
            "{what}: {runs} runs, {struck} met their frame, {lost} lost the lock while holding, \
             longest wait {wait:?} ({longest}), {} broken, in {:?}",
            broken.len(),
            started.elapsed()
        );
        assert!(broken.is_empty(), "{}", broken.join("\n"));
        assert_eq!(PANICS.load(Ordering::Relaxed), 0, "P8: panics, see above");
    }
}

/// Whether all of it was asked for.
pub(crate) fn is_long() -> bool {
    std::env::var_os("SWEEP_LONG").is_some()
}

/// Whether `SWEEP_CASE` names the case, or it is its turn.
pub(crate) fn is_wanted(case: &Case) -> bool {
    let name = case.to_string();
    match std::env::var("SWEEP_CASE") {
        Ok(wanted) => name.contains(&wanted),
        Err(_) => is_its_turn(&name),
    }
}

/// Whether a case is in the part that `SWEEP_TURN` names: `0/3`, `1/3` and `2/3` together are all of them.
/// A case stays in its part, whatever other cases there are.
fn is_its_turn(name: &str) -> bool {
    let Ok(turn) = std::env::var("SWEEP_TURN") else {
        return true;
    };
    let (part, parts) = turn.split_once('/').expect("SWEEP_TURN is a part of parts");
    let number = |text: &str| text.parse::<u64>().expect("SWEEP_TURN has two numbers");
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish() % number(parts) == number(part)
}

/// Runs the cases, several at a time. Outcomes come in the order in which runs end. Stops early if
/// too much breaks.
pub(crate) async fn run_all(
    stage: &Arc<Stage>,
    cases: Vec<Case>,
    mut take: impl FnMut(&Case, Result<Shown, String>),
) {
    count_panics();
    let runs = cases.into_iter().map(|case| {
        let run = tokio::spawn(Arc::clone(stage).run(case.clone()));
        async move {
            let outcome = run.await;
            (
                case,
                outcome.unwrap_or_else(|error| Err(format!("P8: {error}\n"))),
            )
        }
    });
    let mut runs = stream::iter(runs).buffer_unordered(AT_A_TIME);
    let mut broken = 0;
    while let Some((case, outcome)) = runs.next().await {
        broken += usize::from(outcome.is_err());
        take(&case, outcome);
        if broken >= BROKEN_MAX {
            return;
        }
    }
}

fn count_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // Panics of the sweep itself are failures already.
            let is_ours = info
                .location()
                .is_some_and(|it| it.file().contains("sweep"));
            PANICS.fetch_add(usize::from(!is_ours), Ordering::Relaxed);
            print(info);
        }));
    });
}
