//! What an epoch can lose.

use std::fmt;
use std::sync::Arc;

use crate::error::{LostError, LostReason};
use crate::session::own_watch::Care;
use crate::store::nodes::NodeStat;

/// A node of ours that somebody counts on: a lease, seen from its session.
pub(crate) trait Tenant: fmt::Debug + Send + Sync {
    /// Its number in the epoch. A lease that takes over the node takes over the number.
    fn id(&self) -> u64;

    fn node_path(&self) -> &str;

    fn lock_path(&self) -> &Arc<str>;

    /// What vouches for its node.
    fn care(&self) -> &Care;

    /// Loses it, unless it is lost already: the first reason stays, and is returned.
    fn lose(&self, reason: LostReason) -> LostError;

    /// Loses it if its deadline has passed or its session has ended, and returns why.
    ///
    /// # Errors
    /// [`LostError`] if it is lost.
    fn lose_if_over(&self) -> Result<(), LostError>;

    /// Records what a read of the node over `connection` returned; `None` if there is no node.
    fn observe(&self, found: Option<&(Vec<u8>, NodeStat)>, connection: Option<u64>);
}
