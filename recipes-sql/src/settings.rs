//! Limits that are the same for every database.

use std::time::Duration;

/// Containers that have been empty for so long are removed.
pub(crate) const CONTAINER_REST: Duration = Duration::from_secs(60);
/// Beats are a sixth of it, and a packet that was lost is sent again after 0.2 s.
pub(crate) const SESSION_TIMEOUT_MIN: Duration = Duration::from_millis(100);
/// Enough for a handshake over TLS across an ocean.
pub(crate) const CONNECT_TIMEOUT_MIN: Duration = Duration::from_secs(1);
