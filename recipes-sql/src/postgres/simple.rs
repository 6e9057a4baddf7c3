//! The acquire, the look and the release of one lock: calls that have functions of their own.

use recipes_core::{Created, NewNode, NodeEvent, NodeMode, NodeOp, NodeOpDone};
use recipes_keeper::{Answers, Asked, CallError, Said, Watched, duration, stat};
use tokio_postgres::error::SqlState;

use crate::path::{split, split_new};

use super::answers::{Failed, failed};
use super::line::Parameter;
use super::wire::Lines;
use super::words::{PATH_BYTES_MAX, Session, signed};

/// A call that is nothing but this.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Simple<'a> {
    /// An ephemeral, sequential node is created, and its directory is listed for it.
    Enter {
        path: &'a str,
        data: &'a [u8],
        /// The first of three numbers for watches.
        first: i64,
    },
    /// A directory is listed again for a node.
    Look {
        directory: &'a str,
        own: &'a str,
        first: i64,
    },
    /// A node is deleted, whatever its version.
    Leave { path: &'a str },
}

impl<'a> Simple<'a> {
    /// `None` if the call is not one of these.
    pub(super) fn of(all: &'a [Asked]) -> Option<Self> {
        match all {
            [
                Asked::Multi(operations),
                Asked::Look {
                    directory,
                    own: None,
                    first,
                },
            ] => {
                let [NodeOp::Create(NewNode { path, data, mode })] = &**operations else {
                    return None;
                };
                let is_simple = *mode == NodeMode::EphemeralSequential
                    && path.len() <= PATH_BYTES_MAX
                    && directory == split_new(path).0;
                let first = signed(*first);
                is_simple.then_some(Self::Enter { path, data, first })
            }
            [
                Asked::Look {
                    directory,
                    own: Some(own),
                    first,
                },
            ] => Some(Self::Look {
                directory,
                own,
                first: signed(*first),
            }),
            [Asked::Multi(operations)] => match &**operations {
                [
                    NodeOp::Delete {
                        path,
                        version: None,
                    },
                ] => Some(Self::Leave { path }),
                _ => None,
            },
            _ => None,
        }
    }
}

impl Lines {
    /// Carries it out. `None` if that is not possible, and nothing was done: then `requests` finds out why.
    pub(super) async fn simply(
        &self,
        session: &Session,
        simple: &Simple<'_>,
    ) -> Result<Option<Answers>, CallError> {
        match self.simple_answer(session, simple).await {
            Ok(done) => Ok(done),
            // The server has undone it because of others.
            Err(Failed::Again(_)) => Ok(None),
            Err(Failed::Otherwise(error)) => Err(error),
        }
    }

    async fn simple_answer(
        &self,
        session: &Session,
        simple: &Simple<'_>,
    ) -> Result<Option<Answers>, Failed> {
        let Session {
            name, id, timeout, ..
        } = session;
        let answer = match simple {
            Simple::Enter { path, data, first } => {
                let (dir, base) = split_new(path);
                let (up_dir, up_name) = split(dir);
                let seen = self.seen();
                let said: [Parameter<'_>; 10] = [
                    name, id, timeout, &seen, &up_dir, &up_name, &dir, &base, data, first,
                ];
                self.requests.one(&self.calls.enter, &said).await
            }
            Simple::Look {
                directory,
                own,
                first,
            } => {
                let said: [Parameter<'_>; 6] = [name, id, timeout, directory, own, first];
                self.requests.one(&self.calls.look, &said).await
            }
            Simple::Leave { path } => return self.leave(session, path).await,
        };
        let row = match answer {
            Err(error) if error.code() == Some(&SqlState::UNIQUE_VIOLATION) => return Ok(None),
            row => row.map_err(failed)?,
        };
        let Some(answer) = row.try_get::<_, Option<&str>>(0).map_err(failed)? else {
            return Ok(None);
        };
        let looked = Looked::read(simple, answer);
        let looked = looked.ok_or_else(|| {
            let what = format!("to an acquire: {answer}");
            Failed::Otherwise(CallError::unexpected(what))
        })?;
        // Before anybody reads the answer.
        self.bell.signal(|it| {
            it.has_watched |= looked.watches;
            it.created.extend(looked.created);
        });
        Ok(Some(looked.answers))
    }

    async fn leave(&self, session: &Session, path: &str) -> Result<Option<Answers>, Failed> {
        let (dir, node) = split(path);
        let (up_dir, up_name) = split(dir);
        let said: [Parameter<'_>; 7] = [
            &session.name,
            &session.id,
            &session.timeout,
            &up_dir,
            &up_name,
            &dir,
            &node,
        ];
        // Nobody rings its own session. Who acquired without a wait does not watch its node.
        let watch = self.shared.watches.last_on(path);
        if watch.is_some() {
            self.bell.changes();
        }
        let row = self.requests.one(&self.calls.leave, &said).await;
        let step = row.and_then(|row| row.try_get::<_, Option<i64>>(0));
        let step = step.map_err(failed);
        if let Some(watch) = watch {
            self.told(session, path, watch, &step);
        }
        let step = step?;
        Ok(step.map(|step| Answers {
            outcomes: vec![Ok(Said::Multi(vec![NodeOpDone::Deleted]))],
            step: Some(duration(step)),
        }))
    }

    /// A node is deleted on which the session has a watch, up to this number, or nothing was done.
    fn told(&self, session: &Session, path: &str, watch: u64, done: &Result<Option<i64>, Failed>) {
        let is_known = match done {
            Ok(Some(_)) => {
                let watches = &self.shared.watches;
                watches.fire(session.connection, path, watch, NodeEvent::Deleted);
                true
            }
            Ok(None) | Err(Failed::Again(_)) => true,
            Err(Failed::Otherwise(error)) => matches!(error, CallError::NotNow(_)),
        };
        match is_known {
            true => self.bell.told(),
            false => self.bell.changed(false),
        }
    }
}

/// An answer of `enter` or `look`.
struct Looked {
    answers: Answers,
    /// Whether nodes are watched.
    watches: bool,
    /// The watch on the node that was created.
    created: Option<u64>,
}

impl Looked {
    /// Reads it: see `enter.sql`.
    fn read(simple: &Simple<'_>, answer: &str) -> Option<Self> {
        let mut words = answer.split('/');
        let step = Some(duration(words.next()?.parse().ok()?));
        let mut outcomes = Vec::new();
        let mut own = None;
        if let Simple::Enter { path, .. } = simple {
            let czxid = Some(words.next()?.parse().ok()?);
            let place: i64 = words.next()?.parse().ok()?;
            let path = format!("{path}{place:010}");
            own = Some(split(&path).1.to_owned());
            let created = NodeOpDone::Created(Created { path, czxid });
            outcomes.push(Ok(Said::Multi(vec![created])));
        }
        let count: usize = words.next()?.parse().ok()?;
        let names = words.by_ref().take(count).map(str::to_owned);
        let names: Vec<_> = names.collect();
        // Who takes the rest for all may be granted a lock that another holds.
        (names.len() == count).then_some(())?;
        let mut watched = Vec::new();
        while let Some(number) = words.next() {
            watched.push(self::watched(number, &mut words)?);
        }
        let watches = !watched.is_empty();
        let created = watched.iter().find(|it| Some(&it.name) == own.as_ref());
        let created = created.map(|it| it.number);
        outcomes.push(Ok(Said::Names(names, watched)));
        let answers = Answers { outcomes, step };
        Some(Self {
            answers,
            watches,
            created,
        })
    }
}

/// A node of `watch_ahead`.
fn watched<'a>(number: &str, words: &mut impl Iterator<Item = &'a str>) -> Option<Watched> {
    let (name, data) = (words.next()?.to_owned(), data(words.next()?)?);
    let mut parts = [0; 7];
    for part in &mut parts {
        *part = words.next()?.parse().ok()?;
    }
    Some(Watched {
        number: number.parse().ok()?,
        name,
        data,
        stat: stat(parts).ok()?,
    })
}

/// Reads hexadecimal digits.
fn data(digits: &str) -> Option<Vec<u8>> {
    let digit = |it: u8| char::from(it).to_digit(16);
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(digit(*high)? * 16 + digit(*low)?).ok(),
        _ => None,
    };
    pairs.map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(path: &str, mode: NodeMode) -> NodeOp {
        NodeOp::Create(NewNode {
            path: path.to_owned(),
            data: (*b"me").into(),
            mode,
        })
    }

    fn enter() -> NodeOp {
        create("/l/a/x-", NodeMode::EphemeralSequential)
    }

    fn delete(version: Option<i32>) -> NodeOp {
        let path = "/l/a/x-1".to_owned();
        NodeOp::Delete { path, version }
    }

    fn multi<const N: usize>(operations: [NodeOp; N]) -> Asked {
        Asked::Multi(operations.into())
    }

    fn look(directory: &str, own: Option<&str>) -> Asked {
        Asked::Look {
            directory: directory.to_owned(),
            own: own.map(str::to_owned),
            first: 4,
        }
    }

    #[test]
    fn acquire_look_and_release_of_one_lock_are_simple() {
        let acquire = [multi([enter()]), look("/l/a", None)];
        let enter = Simple::Enter {
            path: "/l/a/x-",
            data: b"me",
            first: 4,
        };
        assert_eq!(Simple::of(&acquire), Some(enter));
        let release = [multi([delete(None)])];
        let leave = Simple::Leave { path: "/l/a/x-1" };
        assert_eq!(Simple::of(&release), Some(leave));
        let again = [look("/l/a", Some("x-1"))];
        let look = Simple::Look {
            directory: "/l/a",
            own: "x-1",
            first: 4,
        };
        assert_eq!(Simple::of(&again), Some(look));
    }

    #[test]
    fn all_else_is_not() {
        let ephemeral = create("/l/a/x-", NodeMode::Ephemeral);
        let (path, version) = ("/l/a/x-1".to_owned(), None);
        let check = NodeOp::Check { path, version };
        let long = format!("/{}", "a".repeat(PATH_BYTES_MAX));
        let too_long = create(&format!("{long}/x-"), NodeMode::EphemeralSequential);
        for asked in [
            vec![multi([ephemeral]), look("/l/a", None)],
            vec![multi([enter()]), look("/l", None)],
            vec![multi([enter()]), look("/l/a", Some("x"))],
            vec![multi([enter()]), look("/l/a", None), Asked::Beat],
            vec![multi([enter()])],
            vec![multi([enter(), enter()]), look("/l/a", None)],
            vec![multi([delete(Some(3))])],
            vec![multi([delete(None)]), Asked::Beat],
            vec![multi([check])],
            vec![look("/l/a", None)],
            vec![look("/l/a", Some("x-1")), Asked::Beat],
            vec![multi([too_long]), look(&long, None)],
        ] {
            assert_eq!(Simple::of(&asked), None, "{asked:?}");
        }
    }

    const ENTER: Simple<'_> = Simple::Enter {
        path: "/a/x-",
        data: b"",
        first: 4,
    };

    /// The step, what was said, whether nodes are watched, and with which watch one was created.
    fn read(simple: &Simple<'_>, answer: &str) -> (i64, Vec<Said>, (bool, Option<u64>)) {
        let looked = Looked::read(simple, answer).unwrap();
        let said = looked.answers.outcomes.into_iter().map(Result::unwrap);
        let step = recipes_keeper::micros(looked.answers.step.unwrap());
        (step, said.collect(), (looked.watches, looked.created))
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn answer_without_others_has_no_watches() {
        let (step, said, watches) = read(&ENTER, "30/5/7/1/x-0000000007");
        let (path, czxid) = ("/a/x-0000000007".to_owned(), Some(5));
        let created = vec![NodeOpDone::Created(Created { path, czxid })];
        let looked = Said::Names(names(&["x-0000000007"]), Vec::new());
        assert_eq!((step, said), (30, vec![Said::Multi(created), looked]));
        assert_eq!(watches, (false, None));
    }

    #[test]
    fn watched_nodes_come_with_data_and_stat() {
        let own = "4/x-0000000007/00ff/1/2/3/4/5/6/7";
        let ahead = "5/y-0000000006//1/1/0/9/0/0/1";
        let answer = format!("30/5/7/2/y-0000000006/x-0000000007/{own}/{ahead}");
        let (_, said, watches) = read(&ENTER, &answer);
        let watched = |number, name: &str, data: &[u8], parts| Watched {
            number,
            name: name.to_owned(),
            data: data.to_vec(),
            stat: stat(parts).unwrap(),
        };
        let both = vec![
            watched(4, "x-0000000007", &[0, 255], [1, 2, 3, 4, 5, 6, 7]),
            watched(5, "y-0000000006", b"", [1, 1, 0, 9, 0, 0, 1]),
        ];
        let names = names(&["y-0000000006", "x-0000000007"]);
        assert_eq!(said.last(), Some(&Said::Names(names, both)));
        assert_eq!(watches, (true, Some(4)));
    }

    #[test]
    fn answer_to_a_look_has_no_node() {
        let look = Simple::Look {
            directory: "/a",
            own: "x",
            first: 1,
        };
        let (step, said, watches) = read(&look, "30/1/x/1/x//1/2/3/4/5/6/7");
        assert_eq!((step, said.len()), (30, 1));
        assert_eq!(watches, (true, None), "it was there before");
    }

    #[test]
    fn answer_that_is_cut_off_is_none() {
        for answer in [
            "",
            "30/5/7",
            "30/5/7/x",
            "30/5/7/2/x-7",
            "30/5/7/1/x-7/4/x-7/0",
            "30/5/7/1/x-7/4/x-7/0g/1/2/3/4/5/6/7",
        ] {
            assert!(Looked::read(&ENTER, answer).is_none(), "{answer}");
        }
    }
}
