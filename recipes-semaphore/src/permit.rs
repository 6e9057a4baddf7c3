//! Proof of holding permits.

use recipes_core::LockGuard;
use recipes_core::internal::SemaphoreInternals;

recipes_core::lock_guard! {
    /// Proof that one permit or several of an
    /// [`InterProcessSemaphore`](crate::InterProcessSemaphore) are held.
    ///
    /// The guard dereferences to [`LockGuard`](recipes_core::LockGuard), which has the methods of
    /// all guards: [`state`](recipes_core::LockGuard::state),
    /// [`is_valid`](recipes_core::LockGuard::is_valid), [`lost`](recipes_core::LockGuard::lost),
    /// [`run`](recipes_core::LockGuard::run), [`verify`](recipes_core::LockGuard::verify),
    /// [`transaction`](recipes_core::LockGuard::transaction) and more. If one of several permits
    /// is lost, the guard is lost.
    ///
    /// A [fencing token](recipes_core::LockGuard::fencing_token) names one permit: no other grant
    /// of the semaphore has the same, except those of one
    /// [`acquire_many`](crate::InterProcessSemaphore::acquire_many). It rises with every grant of a
    /// semaphore that has one permit. With more, holders do not exclude each other, and a token may
    /// be lower than that of a permit granted before.
    ///
    /// Dropping the guard gives the permits back in the background. It may be dropped in any task
    /// or thread.
    pub struct SemaphorePermit
}

impl SemaphorePermit {
    /// Makes the guard of what an acquire has got. The semaphore's mutex goes back at once.
    pub(crate) fn of(acquired: LockGuard) -> Self {
        Self::new(SemaphoreInternals::permit(acquired))
    }

    /// How many permits are held.
    #[must_use]
    pub fn count(&self) -> usize {
        self.members().len()
    }
}
