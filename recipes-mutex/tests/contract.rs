//! The mutex fulfils the contract of all locks.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use recipes_mutex::InterProcessMutex;
use recipes_testing::contract::LockUnderTest;
use recipes_testing::lock_contract;

lock_contract!(LockUnderTest {
    make: |session| Box::new(InterProcessMutex::new(session, "/contract/lock").unwrap()),
    directories: &["/contract/lock"],
});
