//! The guard of a term.

use recipes_core::{Error, ReleaseOutcome};

recipes_core::lock_guard! {
    /// A term: proof that a candidate of a [`LeaderElection`](crate::LeaderElection) leads.
    ///
    /// [`fencing_token`](Self::fencing_token) is the number of the term. It rises from each leader
    /// to the next, so a resource that refuses lower numbers takes no order of an earlier leader.
    ///
    /// The guard dereferences to [`LockGuard`](recipes_core::LockGuard), which has the methods of
    /// all guards. Those that leaders need: [`is_valid`](recipes_core::LockGuard::is_valid),
    /// [`lost`](recipes_core::LockGuard::lost), and [`run`](recipes_core::LockGuard::run), which
    /// stops the work of the leader when the term is lost.
    ///
    /// Dropping the guard resigns in the background.
    pub struct Leadership single
}

impl Leadership {
    /// Ends the term, and the next candidate leads. The same as [`release`](Self::release).
    ///
    /// # Errors
    /// As [`LockGuard::release`](recipes_core::LockGuard::release).
    ///
    /// # Cancel safety
    /// The resignation goes on in the background when the future is dropped.
    pub async fn resign(self) -> Result<ReleaseOutcome, Error> {
        self.release().await
    }
}
