//! Multi-locks fulfil the contract of all locks, whichever way they acquire their members.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use recipes_testing::contract::LockUnderTest;
use recipes_testing::lock_contract;

mod together {
    use recipes_multilock::{Member, MultiLock};

    use super::*;

    lock_contract!(LockUnderTest {
        make: |session| {
            let members = [Member::write("/contract/b"), Member::mutex("/contract/a")];
            Box::new(MultiLock::new(session, members).unwrap())
        },
        directories: &["/contract/a", "/contract/b"],
    });
}

mod in_turn {
    use recipes_core::DistributedLock;
    use recipes_multilock::MultiLock;
    use recipes_mutex::InterProcessMutex;
    use recipes_rwlock::InterProcessReadWriteLock;

    use super::*;

    lock_contract!(LockUnderTest {
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
