//! Runs on a store that tells of a deleted node that it was the first.

use super::*;

fn explore_telling(programs: &[&'static [Op]], dirs: usize, trouble: Trouble, faults: u8) {
    explore_all(Locks {
        trouble,
        faults,
        first: 1,
        tells_first: true,
        ..Locks::new(programs, dirs)
    });
}

/// Three are ahead of the last, which is told by the deletion of the second that only one is left.
#[test]
fn mutex_of_a_store_that_tells_who_was_first() {
    explore_telling(&[ONCE, ONCE, ONCE, ONCE], 1, Trouble::Nothing, 0);
    explore_telling(&[ONCE, ONCE, ONCE], 1, Trouble::Others, 1);
    explore_telling(&[ONCE, ONCE, TRY], 1, Trouble::Requests, 1);
    explore_telling(&[ONCE, ONCE], 1, Trouble::Sessions, 1);
    explore_telling(&[ONCE, ONCE], 1, Trouble::Connections, 1);
    if is_long() {
        explore_telling(&[ONCE, ONCE, ONCE, ONCE], 1, Trouble::Others, 1);
        explore_telling(&[ONCE, ONCE, ONCE], 1, Trouble::Connections, 1);
    }
}

#[test]
fn other_locks_of_a_store_that_tells_who_was_first() {
    explore_telling(&[READER, WRITER, WRITER], 1, Trouble::Nothing, 0);
    explore_telling(&[READER, DOWNGRADER, WRITER], 1, Trouble::Nothing, 0);
    explore_telling(&[READER, WRITER], 1, Trouble::Others, 1);
    explore_telling(&[SET, SET, SECOND], 2, Trouble::Nothing, 0);
    explore_telling(&[SET, SECOND], 2, Trouble::Others, 1);
    explore_all(Locks {
        strangers: (
            1,
            &[
                Stranger::Lock(LockKind::Mutex),
                Stranger::Foreign(Foreign::Front),
            ],
        ),
        reaps: 1,
        first: 1,
        tells_first: true,
        ..Locks::new(&[ONCE, ONCE, ONCE], 1)
    });
}

/// The highest numbers that are in order, and the first ones that are not.
#[test]
fn mutex_of_such_a_store_at_the_end_of_the_counter() {
    for wraps in [true, false] {
        explore_all(Locks {
            first: i32::MAX - 2,
            wraps,
            tells_first: true,
            ..Locks::new(&[ONCE, ONCE, ONCE, ONCE], 1)
        });
    }
}
