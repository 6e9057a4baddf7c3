//! Proof of holding a mutex.

recipes_core::lock_guard! {
    /// Proof that an [`InterProcessMutex`](crate::InterProcessMutex) is held.
    ///
    /// Everything that guards of all locks can do ([`state`](recipes_core::LockGuard::state),
    /// [`is_valid`](recipes_core::LockGuard::is_valid), [`lost`](recipes_core::LockGuard::lost),
    /// [`run`](recipes_core::LockGuard::run), [`verify`](recipes_core::LockGuard::verify),
    /// [`transaction`](recipes_core::LockGuard::transaction),
    /// [`hold_count`](recipes_core::LockGuard::hold_count)) comes by dereference to
    /// [`LockGuard`](recipes_core::LockGuard).
    ///
    /// Dropping the guard releases in the background, from any task or thread.
    pub struct MutexGuard single
}
