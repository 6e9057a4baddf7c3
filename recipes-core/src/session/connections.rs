//! Numbers for the connections of a session.

use std::fmt;

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use tokio::task::unconstrained;

use crate::store::nodes::{Connection, Nodes};
use crate::sync::{Mutex, lock};

/// Numbers the connections of one session.
///
/// Watches and answers vouch for what they reported only on the connection on which they came. The
/// client reports that a connection is lost before it hands out anything of the next. So a caller
/// that looks here after an event or an answer sees the change.
pub(crate) struct Connections(Mutex<Seen>);

struct Seen {
    changes: BoxStream<'static, Connection>,
    number: u64,
    is_up: bool,
}

impl Connections {
    pub(crate) fn of(nodes: &dyn Nodes) -> Self {
        Self(Mutex::new(Seen {
            changes: nodes.connection().fuse().boxed(),
            number: 1,
            is_up: true,
        }))
    }

    /// The number of the connection, `None` while there is none.
    pub(crate) fn current(&self) -> Option<u64> {
        let mut seen = lock(&self.0);
        // Unconstrained: what has arrived must be seen, even when the task's budget is used up. The
        // loop ends with what has happened until now.
        while let Some(Some(change)) = unconstrained(seen.changes.next()).now_or_never() {
            // A connection that was lost and came back may be reported as a single change.
            seen.number += 1;
            seen.is_up = change == Connection::Connected;
        }
        seen.is_up.then_some(seen.number)
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connections").field(&self.current()).finish()
    }
}

#[cfg(test)]
pub(crate) mod tests;
