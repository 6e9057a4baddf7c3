//! Who only reads: there is no session that a server would know of, so the right to read is enough.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{self, BoxFuture, FutureExt, try_join_all};
use recipes_core::{NodeStat, NodesError};

use crate::answers::{Trouble, whole};
use crate::asked::Asked;
use crate::silence::Silence;
use crate::wire::{
    Answers, CallError, Called, Caller, Facts, Loss, Open, Opened, Outcome, Resume, Resumed, Said,
    Wire,
};

/// No server gives this number to a session.
const NOBODY: i64 = -1;

/// Data and stat of a node.
pub type ReadNode = (Vec<u8>, NodeStat);

/// One connection of somebody who only reads. Dropping it closes it.
pub trait Reads: Send + Sync + Debug {
    /// What the server has said about itself.
    fn facts(&self) -> &Facts;

    /// The names in a directory, if it is there.
    fn names<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<Vec<String>>, CallError>>;

    /// Data and stat of a node, if it is there.
    fn node<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<ReadNode>, CallError>>;

    /// Those of these sessions that have been silent for [long](crate::is_long), as far as the server tells this user.
    fn silent<'a>(&'a self, sessions: &'a [i64]) -> BoxFuture<'a, Result<Vec<Silence>, CallError>>;

    /// Asks for an answer, and for nothing else.
    fn ping(&self) -> BoxFuture<'_, Result<(), CallError>>;

    /// Completes when the connection is of no more use.
    fn lost(&self) -> BoxFuture<'_, Loss>;
}

/// Such a connection, as that of a session.
#[derive(Debug)]
pub(crate) struct Reading {
    number: u64,
    reads: Arc<dyn Reads>,
}

impl Reading {
    /// Whether it may read is found out at once.
    pub(crate) async fn open(number: u64, reads: Arc<dyn Reads>) -> Result<Self, NodesError> {
        drop(reads.node("/").await?);
        Ok(Self { number, reads })
    }
}

/// Carries out a request, or refuses it.
async fn outcome(reads: &dyn Reads, asked: &Asked) -> Result<Outcome, CallError> {
    let said = match asked {
        Asked::List(path) => {
            let names = reads.names(path).await?;
            names.map(|names| Said::Names(names, Vec::new()))
        }
        Asked::Read(path) => {
            let node = reads.node(path).await?;
            node.map(|(data, stat)| Said::Node(data, stat))
        }
        Asked::Stat(path) => reads.node(path).await?.map(|(_, stat)| Said::Stat(stat)),
        Asked::Beat => {
            reads.ping().await?;
            Some(Said::Nothing)
        }
        Asked::Multi(_) | Asked::Look { .. } | Asked::Watch(..) | Asked::Unwatch(_) => {
            return Ok(Err(whole(Trouble::OnlyReads)));
        }
    };
    Ok(said.ok_or_else(|| whole(NodesError::NoNode)))
}

impl Wire for Reading {
    fn number(&self) -> u64 {
        self.number
    }

    fn facts(&self) -> &Facts {
        self.reads.facts()
    }

    fn in_flight_max(&self) -> usize {
        1
    }

    fn open(&self, _: Open) -> Called<Opened> {
        let opened = Opened {
            id: NOBODY,
            quarantine: Duration::ZERO,
            doubt: Duration::ZERO,
        };
        future::ready(Ok(opened)).boxed()
    }

    fn resume(&self, _: Resume) -> Called<Option<Resumed>> {
        // Nothing is watched.
        future::ready(Ok(Some(Resumed::default()))).boxed()
    }

    fn requests(&self, _: &Arc<Caller>, asked: &Arc<[Asked]>) -> Called<Option<Answers>> {
        let (reads, asked) = (Arc::clone(&self.reads), Arc::clone(asked));
        async move {
            let outcomes = asked.iter().map(|asked| outcome(&*reads, asked));
            Ok(Some(Answers {
                outcomes: try_join_all(outcomes).await?,
                step: None,
            }))
        }
        .boxed()
    }

    fn close(&self, _: &Arc<Caller>) -> Called<bool> {
        future::ready(Ok(false)).boxed()
    }

    fn lost(&self) -> BoxFuture<'_, Loss> {
        self.reads.lost()
    }

    fn subscribe(&self, _: i64) -> BoxFuture<'_, Result<(), NodesError>> {
        future::ready(Ok(())).boxed()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use recipes_core::{Guarantee, NodeOp, SessionOptions};

    use super::*;
    use crate::kept::Terms;
    use crate::patience::Patience;
    use crate::shared::Shared;
    use crate::wire::{Server, Source};

    /// A server with one node, `/a/x`, which may be read or not.
    #[derive(Debug)]
    pub(crate) struct Readable(pub(crate) bool);

    #[derive(Debug)]
    struct Tree(bool, Facts);

    fn refused() -> CallError {
        CallError::Refused(Arc::new(std::io::Error::other("no right")))
    }

    impl Server for Readable {
        fn open<'a>(
            &'a self,
            _: &'a Arc<Shared>,
            _: u64,
        ) -> BoxFuture<'a, Result<Box<dyn Wire>, NodesError>> {
            future::ready(Err(refused().into())).boxed()
        }

        fn read(&self) -> BoxFuture<'_, Result<Arc<dyn Reads>, NodesError>> {
            let facts = Facts {
                run: "run".to_owned(),
                guarantee: Guarantee::OneCopy,
            };
            let tree: Arc<dyn Reads> = Arc::new(Tree(self.0, facts));
            future::ready(Ok(tree)).boxed()
        }

        fn may_pass(&self, _: &Source) -> bool {
            false
        }
    }

    impl Reads for Tree {
        fn facts(&self) -> &Facts {
            &self.1
        }

        fn names<'a>(
            &'a self,
            path: &'a str,
        ) -> BoxFuture<'a, Result<Option<Vec<String>>, CallError>> {
            let names = (path == "/a").then(|| vec!["x".to_owned()]);
            future::ready(Ok(names)).boxed()
        }

        fn node<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<Option<ReadNode>, CallError>> {
            let node = (path == "/a/x").then(|| (b"data".to_vec(), stat()));
            let answer = self.0.then_some(node).ok_or_else(refused);
            future::ready(answer).boxed()
        }

        fn silent<'a>(
            &'a self,
            sessions: &'a [i64],
        ) -> BoxFuture<'a, Result<Vec<Silence>, CallError>> {
            let silent = sessions.iter().map(|id| (*id, Duration::from_secs(9)));
            future::ready(Ok(silent.collect())).boxed()
        }

        fn ping(&self) -> BoxFuture<'_, Result<(), CallError>> {
            future::ready(Ok(())).boxed()
        }

        fn lost(&self) -> BoxFuture<'_, Loss> {
            future::pending().boxed()
        }
    }

    fn stat() -> NodeStat {
        NodeStat::new(1, 2, 3, 4, 5)
    }

    fn terms(may_read: bool) -> Terms {
        let options = SessionOptions::new().read_only(true);
        Terms::new(Arc::new(Readable(may_read)), &options)
    }

    #[tokio::test]
    async fn who_only_reads_and_may_not_is_told_when_it_connects() {
        let patience = Patience::new(Duration::from_secs(3));
        let opened = terms(false).open(&Arc::default(), 1, &patience).await;
        assert!(matches!(opened, Err(NodesError::Refused(_))));
    }

    #[tokio::test]
    async fn who_only_reads_has_no_session_and_asks_for_nothing_else() {
        let patience = Patience::new(Duration::from_secs(3));
        let opened = terms(true).open(&Arc::default(), 7, &patience).await;
        let wire = opened.unwrap();
        assert_eq!(wire.number(), 7);
        let open = Open {
            secret: String::new(),
            timeout: Duration::ZERO,
            run: String::new(),
            is_known: false,
        };
        assert_eq!(wire.open(open).await.unwrap().id, -1);
        let path = |path: &str| path.to_owned();
        let (version, missing) = (None, path("/b"));
        let look = Asked::Look {
            directory: path("/a"),
            own: None,
            first: 1,
        };
        let check = NodeOp::Check {
            path: path("/a/x"),
            version,
        };
        let asked = [
            Asked::List(path("/a")),
            Asked::Read(path("/a/x")),
            Asked::Stat(path("/a/x")),
            Asked::Beat,
            Asked::List(missing.clone()),
            Asked::Read(missing.clone()),
            Asked::Stat(missing),
            Asked::Watch(path("/a/x"), 1),
            Asked::Unwatch(path("/a/x")),
            Asked::Multi([check].into()),
            look,
        ];
        let caller = Caller {
            id: -1,
            secret: String::new(),
            connection: 7,
            timeout: Duration::ZERO,
            container_rest: Duration::ZERO,
        };
        let answers = wire.requests(&Arc::new(caller), &asked.into()).await;
        let outcomes = answers.unwrap().unwrap().outcomes;
        let said: Vec<_> = outcomes.iter().map_while(|it| it.as_ref().ok()).collect();
        let expected = [
            Said::Names(vec![path("x")], Vec::new()),
            Said::Node(b"data".to_vec(), stat()),
            Said::Stat(stat()),
            Said::Nothing,
        ];
        assert_eq!(said, expected.iter().collect::<Vec<_>>());
        let refusals = outcomes.iter().skip(4);
        let are_missing: Vec<_> = refusals
            .map(|it| matches!(&it.as_ref().unwrap_err().source, NodesError::NoNode))
            .collect();
        assert_eq!(are_missing, [true, true, true, false, false, false, false]);
    }
}
