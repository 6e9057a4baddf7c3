//! Every exclusive lock fulfils the [contract](test_rig::contract) of all locks, on every
//! ensemble.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use lock_recipes::DistributedLock;
use test_rig::contract::LockUnderTest;
use test_rig::contract_on_every_ensemble;

mod mutex {
    use lock_recipes::InterProcessMutex;

    use super::*;

    contract_on_every_ensemble!(LockUnderTest {
        make: |session| Box::new(InterProcessMutex::new(session, "/contract/lock").unwrap()),
        directories: &["/contract/lock"],
    });
}

/// The write half of a read/write lock.
mod write_lock {
    use lock_recipes::InterProcessReadWriteLock;

    use super::*;

    contract_on_every_ensemble!(LockUnderTest {
        make: |session| {
            let lock = InterProcessReadWriteLock::new(session, "/contract/lock").unwrap();
            Box::new(lock.write_lock())
        },
        directories: &["/contract/lock"],
    });
}

/// A multi-lock of paths.
mod together {
    use lock_recipes::{Member, MultiLock};

    use super::*;

    contract_on_every_ensemble!(LockUnderTest {
        make: |session| {
            let members = [Member::write("/contract/b"), Member::mutex("/contract/a")];
            Box::new(MultiLock::new(session, members).unwrap())
        },
        directories: &["/contract/a", "/contract/b"],
    });
}

/// A multi-lock of locks.
mod in_turn {
    use lock_recipes::{InterProcessMutex, InterProcessReadWriteLock, MultiLock};

    use super::*;

    contract_on_every_ensemble!(LockUnderTest {
        make: |session| {
            let first = InterProcessMutex::new(session, "/contract/b").unwrap();
            let second = InterProcessReadWriteLock::new(session, "/contract/a").unwrap();
            let locks: Vec<Box<dyn DistributedLock>> =
                vec![Box::new(first), Box::new(second.write_lock())];
            Box::new(MultiLock::from_locks(locks).unwrap())
        },
        directories: &["/contract/b", "/contract/a"],
    });
}

/// The mutex of one permit, which no owner enters twice.
mod one_permit {
    use lock_recipes::InterProcessSemaphoreMutex;

    use super::*;

    contract_on_every_ensemble!(
        not_reentrant,
        LockUnderTest {
            make: |session| Box::new(
                InterProcessSemaphoreMutex::new(session, "/contract/lock").unwrap()
            ),
            // A holder has no node in the other one, `locks`.
            directories: &["/contract/lock/leases"],
        }
    );
}
