//! A lock directory that this session watches, and what that proves of the next node.

use std::fmt;

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use tokio::task::unconstrained;

use crate::rules::vacancy::{Known, Sole};
use crate::store::nodes::{Connection, NodeStat, NodeWatch};

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
    pub(crate) fn note_watch(&mut self, watched: Option<Watched>) {
        if watched.is_none() {
            self.known.forget_run();
        }
        self.watched = watched;
    }

    /// Whether everything created before our new node is gone, judged by its number. Call only
    /// after its create was answered.
    pub(crate) fn claim_as_first(&mut self, sequence: i32) -> bool {
        let directory = self.directory();
        self.known.claim_as_first(directory, sequence)
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
            self.note_watch(None);
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
    ) -> Self {
        Self {
            czxid: stat.czxid,
            watch,
            connection,
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
    use crate::rules::vacancy::RUN_MIN;
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
        Watched::new(read, stream::pending().boxed())
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
        vacancy.note_watch(watched);
        vacancy.left(sole(last));
        vacancy
    }

    #[test]
    fn only_the_next_number_is_alone() {
        for (sequence, is_alone) in [(20, false), (21, true), (22, false), (i32::MIN, false)] {
            let mut vacancy = known(20, Some(silent()));
            assert!(vacancy.is_expected());
            assert_eq!(vacancy.claim_as_first(sequence), is_alone, "{sequence}");
            let again = vacancy.is_expected();
            assert_eq!(again, is_alone, "a guess that failed is not repeated");
        }
    }

    #[test]
    fn last_number_is_given_to_many() {
        let mut vacancy = known(i32::MAX - 1, Some(silent()));
        assert!(!vacancy.claim_as_first(i32::MAX));
        assert!(!known(i32::MAX, Some(silent())).claim_as_first(i32::MIN));
    }

    #[test]
    fn nothing_follows_without_a_watch() {
        let mut vacancy = known(20, None);
        assert!(!vacancy.is_expected() && !vacancy.claim_as_first(21));
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
        assert!(!vacancy.is_expected() && !vacancy.claim_as_first(21));
        // A node that is reported late was in the previous directory.
        let mut vacancy = known(20, Some(silent()));
        vacancy.left(Sole {
            czxid: MADE - 1,
            ..sole(90)
        });
        assert!(!vacancy.claim_as_first(91));
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
            assert!(!vacancy.claim_as_first(21), "{event:?}");
            assert!(!vacancy.is_expected() && !vacancy.wants_watch());
        }
    }

    #[test]
    fn another_connection_ends_what_is_known() {
        for connection in [Connection::Connected, Connection::Disconnected] {
            let mut watched = silent();
            watched.connection = stream::iter([connection]).boxed();
            assert!(
                !known(20, Some(watched)).claim_as_first(21),
                "{connection:?}"
            );
        }
    }

    #[tokio::test]
    async fn event_is_heard_by_a_task_that_has_had_its_share() {
        let (watched, fire) = ready();
        let mut vacancy = known(20, Some(watched));
        fire.send(NodeEvent::Deleted).unwrap();
        while tokio::task::consume_budget().now_or_never().is_some() {}
        assert!(!vacancy.claim_as_first(21));
    }
}
