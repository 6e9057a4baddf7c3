//! The targets of the library's `tracing` events. Services filter by them, so they stay where they
//! are when code moves.

/// One lock: acquires, grants, releases, losses.
pub const LOCK: &str = "lock_recipes::lock";

/// A session: its connection, its heartbeats, its end.
pub(crate) const SESSION: &str = "lock_recipes::session";

/// The deletion of nodes in the background.
pub(crate) const CLEANUP: &str = "lock_recipes::cleanup";

/// The client of the store.
pub const STORE: &str = "lock_recipes::store";
