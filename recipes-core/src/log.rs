//! The targets of the library's `tracing` events. Services filter by them, so they stay where they
//! are when code moves.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

/// One lock: acquires, grants, releases, losses.
pub const LOCK: &str = "lock_recipes::lock";

/// A session: its connection, its heartbeats, its end.
pub(crate) const SESSION: &str = "lock_recipes::session";

/// The deletion of nodes in the background.
pub(crate) const CLEANUP: &str = "lock_recipes::cleanup";

/// The client of the store.
pub const STORE: &str = "lock_recipes::store";

/// How often an event is told that comes again and again.
const AGAIN: Duration = Duration::from_secs(60);

/// Lets an event through that comes again and again: the first, and then one a minute.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    told: Option<Instant>,
}

impl Seldom {
    /// Whether the event of this moment is to be told.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.told.is_none_or(|told| now >= told + AGAIN);
        if is_due {
            self.told = Some(now);
        }
        is_due
    }
}

/// An error with its sources, in one line.
#[derive(Debug)]
pub struct Causes<'a>(pub &'a dyn StdError);

impl fmt::Display for Causes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        let mut source = self.0.source();
        while let Some(error) = source {
            let more = error.to_string();
            // Some errors repeat the text of their source.
            if !text.ends_with(&more) {
                text = format!("{text}: {more}");
            }
            source = error.source();
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use super::*;
    use crate::store::nodes::NodesError;

    #[tokio::test(start_paused = true)]
    async fn event_that_comes_again_is_told_first_and_then_once_a_minute() {
        let (mut seldom, start) = (Seldom::default(), Instant::now());
        let told = (0..300).filter(|second| seldom.is_due(start + Duration::from_secs(*second)));
        assert_eq!(told.collect::<Vec<_>>(), [0, 60, 120, 180, 240]);
    }

    #[test]
    fn causes_are_told_once_and_in_order() {
        let refused = io::Error::new(io::ErrorKind::ConnectionRefused, "nobody listens");
        let error = NodesError::Refused(Arc::new(refused));
        let text = Causes(&error).to_string();
        assert_eq!(text, "refused by the server: nobody listens");
    }
}
