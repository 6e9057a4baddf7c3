//! The halves of a read/write lock, for code that takes any lock.

use std::fmt;

use recipes_core::DistributedLock;
use recipes_core::internal::sealed::Sealed;
use recipes_core::internal::{LockInternals, Locks};

macro_rules! half {
    ($(#[$docs:meta])* $name:ident) => {
        $(#[$docs])*
        #[derive(Clone)]
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

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name))
                    .field("path", &self.lock.path())
                    .finish()
            }
        }

        impl Sealed for $name {
            fn locks(&self) -> Locks {
                Locks::One(self.lock.clone())
            }
        }

        impl DistributedLock for $name {
            fn path(&self) -> &str {
                self.lock.path()
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
