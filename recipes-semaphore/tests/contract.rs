//! The mutex of one permit fulfils the contract of all locks, except that no owner enters it twice.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use recipes_semaphore::InterProcessSemaphoreMutex;
use recipes_testing::contract::LockUnderTest;
use recipes_testing::lock_contract;

lock_contract!(
    not_reentrant,
    LockUnderTest {
        make: |session| Box::new(
            InterProcessSemaphoreMutex::new(session, "/contract/lock").unwrap()
        ),
        // A holder has no node in the other one, `locks`.
        directories: &["/contract/lock/leases"],
    }
);
