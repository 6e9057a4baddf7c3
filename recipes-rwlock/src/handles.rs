//! The halves of a read/write lock, for code that takes any lock.

use futures::FutureExt;
use futures::future::BoxFuture;
use recipes_core::{AcquireError, DistributedLock, LockGuard, LockInternals, Owner, Wait};

macro_rules! half {
    ($(#[$docs:meta])* $name:ident) => {
        $(#[$docs])*
        #[derive(Clone, Debug)]
        pub struct $name {
            pub(crate) lock: LockInternals,
        }

        impl $name {
            /// Whether an owner of this process holds this half through this session.
            #[doc(alias = "isAcquiredInThisProcess")]
            #[must_use]
            pub fn is_acquired_in_this_process(&self) -> bool {
                self.lock.is_acquired_in_this_process()
            }
        }

        impl DistributedLock for $name {
            fn path(&self) -> &str {
                self.lock.path()
            }

            fn acquire_with(
                &self,
                owner: Option<Owner>,
                wait: Wait,
            ) -> BoxFuture<'_, Result<Option<LockGuard>, AcquireError>> {
                async move { self.lock.acquire(owner.as_ref(), wait).await }.boxed()
            }

            fn internals(&self) -> Vec<LockInternals> {
                vec![self.lock.clone()]
            }
        }
    };
}

half! {
    /// The half of an [`InterProcessReadWriteLock`](crate::InterProcessReadWriteLock) that several
    /// readers may hold.
    ReadLock
}

half! {
    /// The half of an [`InterProcessReadWriteLock`](crate::InterProcessReadWriteLock) that one
    /// writer holds alone.
    WriteLock
}
