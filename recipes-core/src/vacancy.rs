//! What a session knows about a lock directory that nobody else has used lately.
//!
//! A directory counts the nodes that are made in it, whoever makes them, and a sequential node is
//! named by that count. So where all that was made before our node `n` is gone, and `n` as well, a
//! node `n + 1` has nobody before it: nothing was made in between. It needs no listing to be granted.
//!
//! The count starts anew in a directory that is deleted and made again. A watch on the directory
//! that is older than `n` tells: a session hears of what it watches before it is answered anything
//! that was done behind it.

use std::fmt;

use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use tokio::task::unconstrained;

use crate::nodes::{Connection, NodeStat, NodeWatch};
use crate::watch_budget::WatchPermit;

/// So many of our nodes must have come one behind the other before the next one does without a
/// listing. Where that fails, because somebody came in between, it costs a round trip more.
const RUN_MIN: u8 = 8;

/// A node of ours that is gone, as is all that was made before it in its directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Sole {
    pub(crate) czxid: i64,
    pub(crate) sequence: i32,
}

/// Our last nodes in a directory, and what follows from them. Pure; `directory` is the `czxid` of
/// the directory that is watched, if one is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Known {
    last: Option<Sole>,
    /// How many came one behind the other.
    run: u8,
}

impl Known {
    /// Whether the next node will be alone, as it seems.
    fn is_expected(&self, directory: Option<i64>) -> bool {
        self.run >= RUN_MIN && self.in_directory(directory).is_some()
    }

    /// Whether the directory is worth a watch.
    fn wants_watch(&self, directory: Option<i64>) -> bool {
        self.run >= RUN_MIN && directory.is_none()
    }

    /// Whether all that was made before a node is gone, by its number. A guess that fails is not
    /// repeated soon.
    fn judge(&mut self, directory: Option<i64>, sequence: i32) -> bool {
        let last = self.in_directory(directory);
        let is_alone = last.is_some_and(|it| it.is_followed_by(sequence));
        if !is_alone {
            self.run = 0;
        }
        is_alone
    }

    /// The last node, if it was in that directory: one that is older was in one of the past.
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
        // Servers since 3.6 count no further than to the last number, and give it again and again.
        sequence < i32::MAX && self.sequence.checked_add(1) == Some(sequence)
    }
}

/// What is known of one lock directory.
#[derive(Default)]
pub(crate) struct Vacancy {
    known: Known,
    watched: Option<Watched>,
}

/// A directory that is the same for as long as nothing is heard.
pub(crate) struct Watched {
    czxid: i64,
    watch: NodeWatch,
    /// That the client sets its watches again on another connection is not relied upon.
    connection: BoxStream<'static, Connection>,
    _budget: WatchPermit,
}

impl Vacancy {
    /// Whether the next node will be alone, as it seems: then it needs no listing.
    pub(crate) fn is_expected(&mut self) -> bool {
        let directory = self.directory();
        self.known.is_expected(directory)
    }

    /// Whether the directory is worth a watch.
    pub(crate) fn wants_watch(&mut self) -> bool {
        let directory = self.directory();
        self.known.wants_watch(directory)
    }

    /// Notes the watch that was wanted, `None` where there is none to be had now.
    pub(crate) fn watch(&mut self, watched: Option<Watched>) {
        if watched.is_none() {
            self.known.run = 0;
        }
        self.watched = watched;
    }

    /// Whether all that was made before a node of ours is gone, by its number. To be asked behind
    /// the reply to its create.
    pub(crate) fn judge(&mut self, sequence: i32) -> bool {
        let directory = self.directory();
        self.known.judge(directory, sequence)
    }

    /// Notes a node that is gone.
    pub(crate) fn left(&mut self, sole: Sole) {
        self.known.left(sole);
    }

    /// The directory that is watched, if nothing was heard since.
    fn directory(&mut self) -> Option<i64> {
        let watched = self.watched.as_mut()?;
        // Also where the task has had its share of the runtime: what has arrived must be seen.
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
    /// `connection` is from before the request for the watch.
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
    use crate::nodes::NodeEvent;
    use crate::watch_budget::WatchBudget;

    /// When the directory was made.
    const MADE: i64 = 10;

    fn sole(sequence: i32) -> Sole {
        Sole {
            czxid: 100 + i64::from(sequence),
            sequence,
        }
    }

    fn watched(czxid: i64, watch: NodeWatch) -> Watched {
        let read = (Vec::new(), NodeStat::new(czxid, czxid, 0, 0, 0), watch);
        let budget = WatchBudget::of_directories().take(1).unwrap();
        Watched::new(read, stream::pending().boxed(), budget)
    }

    fn silent() -> Watched {
        watched(MADE, future::pending().boxed())
    }

    /// A watch, and what makes it fire.
    fn ready() -> (Watched, oneshot::Sender<NodeEvent>) {
        let (fire, fired) = oneshot::channel();
        (watched(MADE, async { fired.await.unwrap() }.boxed()), fire)
    }

    /// Known well enough, with `last` the last node.
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
        // The watch is on one that was made when the last node was gone.
        let anew = watched(sole(20).czxid + 1, future::pending().boxed());
        let mut vacancy = known(20, Some(anew));
        assert!(!vacancy.is_expected() && !vacancy.judge(21));
        // What is told late is about the one before.
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
