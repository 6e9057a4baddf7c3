//! Asks the store about own nodes while the session has no connection.
//!
//! A server closes the connection of a client that has seen later transactions than itself. It does
//! so if it lags, and also if the store has lost its data. The client tries until the session is
//! over by its own clock, so a holder would learn of the loss at its deadline, long after such a
//! store has granted the lock to the next contender. Other sessions are let in, and see that the
//! nodes are gone.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use tokio::time::Instant;
use tracing::debug;

use crate::log::SESSION;
use crate::session::epoch::Epoch;
use crate::session::under_way::output;
use crate::store::nodes::{Nodes, NodesError};

/// The shortest pause before a question. A client that has lost one server is usually connected to
/// another before.
const PAUSE_MIN: Duration = Duration::from_millis(250);

/// Questions in the time of a session timeout, while the store does not answer. A store without data
/// grants a lock at once, so each pause may be time with two holders.
const UNANSWERED: u32 = 24;

/// Questions in the time of a session timeout, while others see a node: the client will be let in.
const ANSWERED: u32 = 4;

/// The ids of leases, and whether others see their nodes.
pub(crate) type Seen = Vec<(u64, bool)>;

/// When to ask, and the question under way.
#[derive(Default)]
pub(crate) struct Inquiry {
    /// `None` while there is a connection, or if sessions do not end by time.
    next: Option<Next>,
    under_way: Option<BoxFuture<'static, Answer>>,
}

/// The ids of leases, and whether others see their nodes; or why nobody knows.
type Answer = (Vec<u64>, Result<Vec<bool>, NodesError>);

struct Next {
    at: Instant,
    timeout: Duration,
}

fn pause(timeout: Duration, questions: u32) -> Duration {
    (timeout / questions).max(PAUSE_MIN)
}

impl Inquiry {
    /// The session has no connection.
    pub(crate) fn disconnected(&mut self, timeout: Duration) {
        if self.next.is_none() {
            let at = Instant::now() + pause(timeout, UNANSWERED);
            self.next = Some(Next { at, timeout });
        }
    }

    /// Asks about the nodes of all leases if that is due. Returns when it is due next, unless a
    /// question is under way.
    pub(crate) fn ask(
        &mut self,
        now: Instant,
        epoch: &Epoch,
        nodes: &dyn Nodes,
    ) -> Option<Instant> {
        let next = self.next.as_ref()?;
        if self.under_way.is_some() {
            return None;
        }
        if next.at > now {
            return Some(next.at);
        }
        let mut leases = epoch.leases();
        leases.retain(|lease| lease.lose_if_over().is_ok());
        if leases.is_empty() {
            return None;
        }
        let ids = leases.iter().map(|lease| lease.id()).collect();
        let paths = leases.iter().map(|lease| lease.node_path().to_owned());
        let asked = nodes.others_see(paths.collect());
        self.under_way = Some(asked.map(|seen| (ids, seen)).boxed());
        None
    }

    /// The answer to the question under way; empty if the store did not answer it.
    pub(crate) async fn answer(&mut self) -> Seen {
        let (ids, seen) = output(&mut self.under_way).await;
        let seen = seen.unwrap_or_else(|error| {
            debug!(target: SESSION, %error, "no other session sees whether own nodes exist");
            Vec::new()
        });
        let questions = match seen.contains(&true) {
            true => ANSWERED,
            false => UNANSWERED,
        };
        if let Some(next) = &mut self.next {
            next.at = Instant::now() + pause(next.timeout, questions);
        }
        ids.into_iter().zip(seen).collect()
    }
}
