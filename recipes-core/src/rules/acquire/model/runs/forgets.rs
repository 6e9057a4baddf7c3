//! The store forgets an operator's deletion, and its node is ahead again.

use super::*;

fn explore_forgotten(programs: &[&'static [Op]], dirs: usize, tells_first: bool) {
    explore_all(Locks {
        trouble: Trouble::Forgets,
        faults: 2,
        first: i32::from(tells_first),
        tells_first,
        ..Locks::new(programs, dirs)
    });
}

#[test]
fn locks() {
    explore_forgotten(&[ONCE, ONCE, ONCE], 1, false);
    if is_long() {
        explore_forgotten(&[ONCE, ONCE, ONCE], 1, true);
        explore_forgotten(&[READER, READER, WRITER], 1, false);
        explore_forgotten(&[READER, READER, WRITER], 1, true);
    }
}

/// The second member's node is back, of which the set has learned that it is gone.
#[test]
fn sets() {
    explore_forgotten(&[SET, ONCE], 2, true);
    explore_forgotten(&[SET, SECOND], 2, false);
}
