//! The write half of a read/write lock fulfils the contract of all locks.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use recipes_rwlock::InterProcessReadWriteLock;
use recipes_testing::contract::LockUnderTest;
use recipes_testing::lock_contract;

lock_contract!(LockUnderTest {
    make: |session| {
        let lock = InterProcessReadWriteLock::new(session, "/contract/lock").unwrap();
        Box::new(lock.write_lock())
    },
    directories: &["/contract/lock"],
});
