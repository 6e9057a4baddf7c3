//! Makes a script that shows a difference as short as possible.

use crate::in_step::{Difference, run};
use crate::script::{Request, Script, Step};
use crate::tally::Tally;
use crate::world::World;

/// Each attempt is a run. A script of 200 steps takes some hundred.
const ATTEMPTS_MAX: usize = 1_000;

/// Removes every part that is not needed for some difference.
pub(crate) async fn shrink(
    script: Script,
    difference: Difference,
    real: &World,
) -> (Script, Difference) {
    let (mut best, mut attempts) = ((script, difference), 0);
    let mut size = best.0.steps.len();
    // The size of the removed part is halved. It starts again with single steps while those help.
    while size > 0 && attempts < ATTEMPTS_MAX {
        let mut helped = false;
        let mut start = 0;
        while start < best.0.steps.len() && attempts < ATTEMPTS_MAX {
            attempts += 1;
            let shorter = without_steps(&best.0, start, size);
            match run(&shorter, real, &mut Tally::default()).await {
                Err(difference) => (best, helped) = ((shorter, difference), true),
                Ok(()) => start += size,
            }
        }
        if size > 1 || !helped {
            size /= 2;
        }
    }
    for part in 0..ATTEMPTS_MAX {
        let Some(shorter) = without_part(&best.0, part) else {
            break;
        };
        // What follows moves up, so the next part is at the same place. That happens at most as
        // many times as there are parts.
        if let Err(difference) = run(&shorter, real, &mut Tally::default()).await {
            best = (shorter, difference);
        }
    }
    best
}

fn without_steps(script: &Script, start: usize, size: usize) -> Script {
    let steps = script.steps.iter().enumerate();
    let kept = steps.filter(|(number, _)| !(start..start + size).contains(number));
    Script {
        steps: kept.map(|(_, step)| step.clone()).collect(),
    }
}

/// Without one request of a flight, or one operation of a transaction.
fn without_part(script: &Script, part: usize) -> Option<Script> {
    let mut shorter = script.clone();
    let mut parts = 0;
    for step in &mut shorter.steps {
        let Step::Ask { requests, .. } = step else {
            continue;
        };
        if requests.len() > 1 {
            parts += requests.len();
            if part < parts {
                requests.remove(part - (parts - requests.len()));
                return Some(shorter);
            }
        }
        for request in requests {
            let Request::Multi(changes) = request else {
                continue;
            };
            parts += changes.len();
            if part < parts {
                changes.remove(part - (parts - changes.len()));
                return Some(shorter);
            }
        }
    }
    None
}
