//! The parts of an answer, one after the other. What they mean is the same on all servers.

use recipes_core::{Created, NewNode, NodeOp, NodeOpDone, NodeStat};

use crate::answers::reason;
use crate::asked::Asked;
use crate::wire::{CallError, Outcome, Said, Watched};

/// Reads the answer to a request. A part that is not there, or is of another kind, costs the connection.
#[expect(
    clippy::missing_errors_doc,
    reason = "all fail alike, as the trait's documentation says"
)]
pub trait Parts {
    /// A number.
    fn number(&mut self) -> Result<i64, CallError>;

    /// Data.
    fn bytes(&mut self) -> Result<Vec<u8>, CallError>;

    /// The names of a listing, which must be as many as the server says.
    fn names(&mut self) -> Result<Vec<String>, CallError>;

    /// The nodes that are watched since a listing, under this number and those after it.
    fn watched(&mut self, first: u64) -> Result<Vec<Watched>, CallError>;

    /// A text.
    fn text(&mut self) -> Result<String, CallError> {
        let text = String::from_utf8(self.bytes()?);
        text.map_err(|error| CallError::unexpected(error.to_string()))
    }

    /// A stat: created by, changed by, version, owner, count of children, version of the children, children
    /// changed by.
    fn stat(&mut self) -> Result<NodeStat, CallError> {
        let mut parts = [0; 7];
        for part in &mut parts {
            *part = self.number()?;
        }
        stat(parts)
    }

    /// A node that was created.
    fn created(&mut self, _: &NewNode) -> Result<Created, CallError> {
        Ok(Created {
            path: self.text()?,
            czxid: Some(self.number()?),
        })
    }

    /// A node that is watched, under a number that is told before, or known.
    fn watched_as(&mut self, number: i64) -> Result<Watched, CallError> {
        let wrong = |_| CallError::unexpected(format!("watch {number}"));
        Ok(Watched {
            number: u64::try_from(number).map_err(wrong)?,
            name: self.text()?,
            data: self.bytes()?,
            stat: self.stat()?,
        })
    }

    /// The answer to a request that was carried out.
    fn said(&mut self, asked: &Asked) -> Result<Said, CallError> {
        Ok(match asked {
            Asked::Multi(operations) => {
                let mut all = Vec::with_capacity(operations.len());
                for operation in operations.iter() {
                    all.push(match operation {
                        NodeOp::Create(node) => NodeOpDone::Created(self.created(node)?),
                        NodeOp::Delete { .. } => NodeOpDone::Deleted,
                        NodeOp::Set { .. } => NodeOpDone::Set(self.stat()?),
                        NodeOp::Check { .. } => NodeOpDone::Checked,
                    });
                }
                Said::Multi(all)
            }
            Asked::List(_) => Said::Names(self.names()?, Vec::new()),
            Asked::Look { first, .. } => Said::Names(self.names()?, self.watched(*first)?),
            Asked::Read(_) | Asked::Watch(..) => Said::Node(self.bytes()?, self.stat()?),
            Asked::Stat(_) => Said::Stat(self.stat()?),
            Asked::Unwatch(_) | Asked::Beat => Said::Nothing,
        })
    }

    /// The answer to a request, behind the word with which it is refused, if it is. `has_index`: then the index
    /// of the operation comes next.
    fn outcome(
        &mut self,
        asked: &Asked,
        word: &str,
        has_index: bool,
    ) -> Result<Outcome, CallError> {
        if word.is_empty() {
            return Ok(Ok(self.said(asked)?));
        }
        let index = match has_index {
            true => usize::try_from(self.number()?).ok(),
            false => None,
        };
        reason(word, index).map(Err)
    }
}

/// Signed 32-bit numbers, as ZooKeeper counts.
pub fn signed(number: i64) -> i64 {
    (number + 0x8000_0000).rem_euclid(0x1_0000_0000) - 0x8000_0000
}

/// A stat of these parts: see [`Parts::stat`].
///
/// # Errors
/// A number that no server counts to costs the connection.
pub fn stat(parts: [i64; 7]) -> Result<NodeStat, CallError> {
    let [
        czxid,
        mzxid,
        version,
        owner,
        children,
        children_version,
        pzxid,
    ] = parts;
    let small = |it: i64| {
        let wide = |_| CallError::unexpected(format!("{it} in a stat"));
        i32::try_from(it).map_err(wide)
    };
    // Numbers follow the clock, in microseconds.
    let mut stat = NodeStat::new(czxid, mzxid, small(version)?, owner, czxid / 1000);
    stat.children = small(children)?;
    stat.cversion = small(children_version)?;
    stat.pzxid = pzxid;
    Ok(stat)
}

/// As [`stat`], of parts as a store keeps them: with how many children were created, instead of their version.
///
/// # Errors
/// As [`stat`].
pub fn counted(parts: [i64; 7]) -> Result<NodeStat, CallError> {
    let [czxid, mzxid, version, owner, children, created, pzxid] = parts;
    // It counts the creations and the deletions of children.
    let of_children = signed(created * 2 - children);
    stat([czxid, mzxid, version, owner, children, of_children, pzxid])
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// An answer of these parts: numbers, and texts for all else.
    struct Told(VecDeque<&'static str>);

    impl Told {
        fn new(parts: &[&'static str]) -> Self {
            Self(parts.iter().copied().collect())
        }

        fn next(&mut self) -> Result<&'static str, CallError> {
            self.0
                .pop_front()
                .ok_or(CallError::unexpected("it is too short"))
        }
    }

    impl Parts for Told {
        fn number(&mut self) -> Result<i64, CallError> {
            let number = self.next()?.parse();
            number.map_err(|_| CallError::unexpected("no number"))
        }

        fn bytes(&mut self) -> Result<Vec<u8>, CallError> {
            Ok(self.next()?.into())
        }

        fn names(&mut self) -> Result<Vec<String>, CallError> {
            Ok(self.next()?.split(' ').map(ToOwned::to_owned).collect())
        }

        fn watched(&mut self, first: u64) -> Result<Vec<Watched>, CallError> {
            let number = i64::try_from(first).expect("it is small");
            Ok(vec![self.watched_as(number)?])
        }
    }

    const STAT: [&str; 7] = ["7000", "8000", "3", "5", "2", "4", "9000"];

    fn said(asked: &Asked, parts: &[&[&'static str]]) -> Said {
        let mut told = Told::new(&parts.concat());
        let said = told.outcome(asked, "", true).unwrap().unwrap();
        assert!(told.next().is_err(), "some of it was not read");
        said
    }

    #[test]
    fn each_request_takes_its_parts_in_their_order() {
        let path = || "/a".to_owned();
        let version = None;
        let expected = stat([7_000, 8_000, 3, 5, 2, 4, 9_000]).unwrap();
        let operations = [
            NodeOp::Create(NewNode {
                path: path(),
                data: Default::default(),
                mode: recipes_core::NodeMode::Ephemeral,
            }),
            NodeOp::Check {
                path: path(),
                version,
            },
            NodeOp::Set {
                path: path(),
                data: Vec::new(),
                version,
            },
            NodeOp::Delete {
                path: path(),
                version,
            },
        ];
        let done = vec![
            NodeOpDone::Created(Created {
                path: "/a1".to_owned(),
                czxid: Some(70),
            }),
            NodeOpDone::Checked,
            NodeOpDone::Set(expected),
            NodeOpDone::Deleted,
        ];
        let multi = Asked::Multi(operations.into());
        assert_eq!(said(&multi, &[&["/a1", "70"], &STAT]), Said::Multi(done));
        let names = vec!["x".to_owned(), "y".to_owned()];
        let list = said(&Asked::List(path()), &[&["x y"]]);
        assert_eq!(list, Said::Names(names.clone(), Vec::new()));
        let look = Asked::Look {
            directory: path(),
            own: None,
            first: 9,
        };
        let watched = Watched {
            number: 9,
            name: "y".to_owned(),
            data: b"data".to_vec(),
            stat: expected,
        };
        let looked = said(&look, &[&["x y", "y", "data"], &STAT]);
        assert_eq!(looked, Said::Names(names, vec![watched]));
        for asked in [Asked::Read(path()), Asked::Watch(path(), 1)] {
            let node = said(&asked, &[&["data"], &STAT]);
            assert_eq!(node, Said::Node(b"data".to_vec(), expected));
        }
        let told = said(&Asked::Stat(path()), &[&STAT]);
        assert_eq!(told, Said::Stat(expected));
        for asked in [Asked::Unwatch(path()), Asked::Beat] {
            assert_eq!(said(&asked, &[]), Said::Nothing);
        }
    }

    #[test]
    fn refusal_has_the_index_of_its_operation_if_the_server_tells_it() {
        let refused = |parts: &[&'static str], has_index| {
            let mut told = Told::new(parts);
            let outcome = told.outcome(&Asked::Beat, "NoNode", has_index).unwrap();
            assert!(told.next().is_err(), "some of it was not read");
            outcome.unwrap_err().index
        };
        assert_eq!(refused(&["3"], true), Some(3));
        assert_eq!(refused(&[], false), None);
        // An answer that is cut costs the connection.
        let cut = Told::new(&STAT[..6]).outcome(&Asked::Stat("/a".to_owned()), "", true);
        assert!(matches!(cut, Err(CallError::Lost(_))), "{cut:?}");
    }

    #[test]
    fn version_of_the_children_counts_creations_and_deletions() {
        let told = counted([7_000, 7_000, 0, 0, 1, 3, 9_000]).unwrap();
        assert_eq!((told.children, told.cversion), (1, 5));
    }

    #[test]
    fn numbers_wrap_as_signed_ones_of_32_bits() {
        let (max, min) = (0x7fff_ffff, -0x8000_0000);
        assert_eq!(
            [max, max + 1, min, min - 1].map(signed),
            [max, min, min, max]
        );
        assert_eq!([-1, 0, 0x1_0000_0007].map(signed), [-1, 0, 7]);
    }

    #[test]
    fn stat_has_its_parts_in_their_places_and_no_number_too_wide_for_one() {
        let parts = [7_000, 8_000, 3, 5, 2, 4, 9_000];
        let told = stat(parts).unwrap();
        assert_eq!((told.czxid, told.mzxid, told.pzxid), (7_000, 8_000, 9_000));
        assert_eq!((told.version, told.children, told.cversion), (3, 2, 4));
        assert_eq!((told.ephemeral_owner, told.ctime_ms), (5, 7));
        for place in [2, 4, 5] {
            let mut wide = parts;
            wide[place] = 1 << 31;
            assert!(matches!(stat(wide), Err(CallError::Lost(_))), "{place}");
        }
    }
}
