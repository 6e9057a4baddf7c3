//! What a session knows about a lock directory that no other session has used lately.
//!
//! A directory counts the creates in it, of all clients, and the count is the number in a
//! sequential node's name. Suppose that our node `n` and everything created before it are gone.
//! Then nothing is ahead of a node `n + 1` of ours, because nothing was created in between. It
//! needs no listing to be granted.
//!
//! A directory that is deleted and re-created counts from 0. A watch on the directory that is older
//! than `n` reports this: a session is notified of what it watches before it is answered anything
//! that was done later.

use std::fmt;

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use tokio::task::unconstrained;

use crate::session::watch_budget::WatchPermit;
use crate::store::nodes::{Connection, NodeStat, NodeWatch};

/// This many of our nodes must have followed each other directly before the next one does without a
/// listing. A wrong guess, because another client came in between, costs one more round trip.
const RUN_MIN: u8 = 8;

/// A node of ours that is gone, as is everything created before it in its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sole {
    pub(crate) czxid: i64,
    pub(crate) sequence: i32,
}

/// Our last nodes in a directory, and what follows from them. Pure; `directory` is the `czxid` of
/// the watched directory, if there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Known {
    last: Option<Sole>,
    /// How many nodes in a row followed each other directly.
    run: u8,
}

impl Known {
    /// Whether the next node is expected to be alone.
    fn is_expected(&self, directory: Option<i64>) -> bool {
        self.run >= RUN_MIN && self.in_directory(directory).is_some()
    }

    /// Whether the directory is worth a watch.
    fn wants_watch(&self, directory: Option<i64>) -> bool {
        self.run >= RUN_MIN && directory.is_none()
    }

    /// Whether everything created before a node is gone, judged by its number. After a wrong guess
    /// the next one has to wait for a new run.
    fn judge(&mut self, directory: Option<i64>, sequence: i32) -> bool {
        let last = self.in_directory(directory);
        let is_alone = last.is_some_and(|it| it.is_followed_by(sequence));
        if !is_alone {
            self.run = 0;
        }
        is_alone
    }

    /// The last node, if it was in that directory. An older node was in an earlier one.
    fn in_directory(&self, directory: Option<i64>) -> Option<Sole> {
        self.last
            .filter(|it| directory.is_some_and(|directory| directory < it.czxid))
    }

    fn left(&mut self, sole: Sole) {
        let goes_on = self.last.is_some_and(|it| it.is_followed_by(sole.sequence));
        self.run = if goes_on {
            self.run.saturating_add(1)
        } else {
            1
        };
        self.last = Some(sole);
    }
}

impl Sole {
    fn is_followed_by(self, sequence: i32) -> bool {
        // Servers since 3.6 stop counting at the last number, and return it again and again.
        sequence < i32::MAX && self.sequence.checked_add(1) == Some(sequence)
    }
}

/// What a session knows of one lock directory.
#[derive(Default)]
pub(crate) struct Vacancy {
    known: Known,
    watched: Option<Watched>,
}

/// A directory that is the same one as long as nothing is reported.
pub(crate) struct Watched {
    czxid: i64,
    watch: NodeWatch,
    /// Any change ends the watch: we do not rely on the client to set it again after a reconnect.
    connection: BoxStream<'static, Connection>,
    _budget: WatchPermit,
}

impl Vacancy {
    /// Whether the next node is expected to be alone: then it needs no listing.
    pub(crate) fn is_expected(&mut self) -> bool {
        let directory = self.directory();
        self.known.is_expected(directory)
    }

    /// Whether the directory is worth a watch.
    pub(crate) fn wants_watch(&mut self) -> bool {
        let directory = self.directory();
        self.known.wants_watch(directory)
    }

    /// Notes the watch that was wanted, `None` if it cannot be had now. That starts a new run.
    pub(crate) fn watch(&mut self, watched: Option<Watched>) {
        if watched.is_none() {
            self.known.run = 0;
        }
        self.watched = watched;
    }

    /// Whether everything created before our new node is gone, judged by its number. Call only
    /// after its create was answered.
    pub(crate) fn judge(&mut self, sequence: i32) -> bool {
        let directory = self.directory();
        self.known.judge(directory, sequence)
    }

    /// Notes a node of ours that is gone.
    pub(crate) fn left(&mut self, sole: Sole) {
        self.known.left(sole);
    }

    /// The watched directory, if nothing was reported since.
    fn directory(&mut self) -> Option<i64> {
        let watched = self.watched.as_mut()?;
        // Unconstrained: what has arrived must be seen, even when the task's budget is used up.
        let change = unconstrained(watched.connection.next()).now_or_never();
        let event = unconstrained(&mut watched.watch).now_or_never();
        if change.is_some() || event.is_some() {
            self.watch(None);
        }
        self.watched.as_ref().map(|it| it.czxid)
    }
}

impl fmt::Debug for Vacancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vacancy")
            .field("known", &self.known)
            .finish_non_exhaustive()
    }
}

impl Watched {
    /// `connection` must be subscribed to before the watch is requested.
    pub(crate) fn new(
        (_, stat, watch): (Vec<u8>, NodeStat, NodeWatch),
        connection: BoxStream<'static, Connection>,
        budget: WatchPermit,
    ) -> Self {
        Self {
            czxid: stat.czxid,
            watch,
            connection,
            _budget: budget,
        }
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests {
    use futures::future;
    use futures::stream;
    use tokio::sync::oneshot;

    use super::*;
    use crate::session::watch_budget::WatchBudget;
    use crate::store::Traits;
    use crate::store::nodes::NodeEvent;

    /// The transaction that created the directory.
    const MADE: i64 = 10;

    fn sole(sequence: i32) -> Sole {
        Sole {
            czxid: 100 + i64::from(sequence),
            sequence,
        }
    }

    fn watched(czxid: i64, watch: NodeWatch) -> Watched {
        let read = (Vec::new(), NodeStat::new(czxid, czxid, 0, 0, 0), watch);
        let budget = WatchBudget::of_directories(&Traits::default())
            .take("/")
            .unwrap();
        Watched::new(read, stream::pending().boxed(), budget)
    }

    fn silent() -> Watched {
        watched(MADE, future::pending().boxed())
    }

    /// A watch, and the sender that makes it fire.
    fn ready() -> (Watched, oneshot::Sender<NodeEvent>) {
        let (fire, fired) = oneshot::channel();
        (watched(MADE, async { fired.await.unwrap() }.boxed()), fire)
    }

    /// A vacancy that expects the next node to be alone, if watched; `last` is its last node.
    fn known(last: i32, watched: Option<Watched>) -> Vacancy {
        let mut vacancy = Vacancy::default();
        let first = last - i32::from(RUN_MIN);
        for sequence in first..last {
            assert!(!vacancy.wants_watch());
            vacancy.left(sole(sequence));
        }
        assert!(vacancy.wants_watch());
        vacancy.watch(watched);
        vacancy.left(sole(last));
        vacancy
    }

    #[test]
    fn only_the_next_number_is_alone() {
        for (sequence, is_alone) in [(20, false), (21, true), (22, false), (i32::MIN, false)] {
            let mut vacancy = known(20, Some(silent()));
            assert!(vacancy.is_expected());
            assert_eq!(vacancy.judge(sequence), is_alone, "{sequence}");
            let again = vacancy.is_expected();
            assert_eq!(again, is_alone, "a guess that failed is not repeated");
        }
    }

    #[test]
    fn last_number_is_given_to_many() {
        let mut vacancy = known(i32::MAX - 1, Some(silent()));
        assert!(!vacancy.judge(i32::MAX));
        assert!(!known(i32::MAX, Some(silent())).judge(i32::MIN));
    }

    #[test]
    fn nothing_follows_without_a_watch() {
        let mut vacancy = known(20, None);
        assert!(!vacancy.is_expected() && !vacancy.judge(21));
    }

    #[test]
    fn watch_that_is_not_to_be_had_is_wanted_again_later() {
        let mut vacancy = known(20, None);
        for sequence in 21..20 + i32::from(RUN_MIN) {
            assert!(!vacancy.wants_watch(), "{sequence}");
            vacancy.left(sole(sequence));
        }
        assert!(vacancy.wants_watch());
    }

    #[test]
    fn what_was_in_a_directory_of_the_past_says_nothing() {
        // The watch is on a directory that was created after the last node was gone.
        let anew = watched(sole(20).czxid + 1, future::pending().boxed());
        let mut vacancy = known(20, Some(anew));
        assert!(!vacancy.is_expected() && !vacancy.judge(21));
        // A node that is reported late was in the previous directory.
        let mut vacancy = known(20, Some(silent()));
        vacancy.left(Sole {
            czxid: MADE - 1,
            ..sole(90)
        });
        assert!(!vacancy.judge(91));
    }

    #[test]
    fn event_ends_what_is_known() {
        for event in [
            NodeEvent::Deleted,
            NodeEvent::Changed,
            NodeEvent::SessionEnded,
        ] {
            let (watched, fire) = ready();
            let mut vacancy = known(20, Some(watched));
            assert!(vacancy.is_expected());
            fire.send(event).unwrap();
            assert!(!vacancy.judge(21), "{event:?}");
            assert!(!vacancy.is_expected() && !vacancy.wants_watch());
        }
    }

    #[test]
    fn another_connection_ends_what_is_known() {
        for connection in [Connection::Connected, Connection::Disconnected] {
            let mut watched = silent();
            watched.connection = stream::iter([connection]).boxed();
            assert!(!known(20, Some(watched)).judge(21), "{connection:?}");
        }
    }

    #[tokio::test]
    async fn event_is_heard_by_a_task_that_has_had_its_share() {
        let (watched, fire) = ready();
        let mut vacancy = known(20, Some(watched));
        fire.send(NodeEvent::Deleted).unwrap();
        while tokio::task::consume_budget().now_or_never().is_some() {}
        assert!(!vacancy.judge(21));
    }
}
