//! Proof of holding a mutex.

recipes_core::lock_guard! {
    /// Proof that an [`InterProcessMutex`](crate::InterProcessMutex) is held.
    ///
    /// The guard dereferences to [`LockGuard`](recipes_core::LockGuard), which has the methods of
    /// all guards: [`state`](recipes_core::LockGuard::state),
    /// [`is_valid`](recipes_core::LockGuard::is_valid), [`lost`](recipes_core::LockGuard::lost),
    /// [`run`](recipes_core::LockGuard::run), [`verify`](recipes_core::LockGuard::verify),
    /// [`transaction`](recipes_core::LockGuard::transaction),
    /// [`hold_count`](recipes_core::LockGuard::hold_count) and more.
    ///
    /// Dropping the guard releases in the background. It may be dropped in any task or thread.
    pub struct MutexGuard single
}
