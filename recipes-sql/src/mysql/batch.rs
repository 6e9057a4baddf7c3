//! What is asked, as the procedures want it.
//!
//! The words of `requests` are listed in `requests.sql`. An acquire or a release alone, as most calls
//! are, has a procedure of its own.

use std::collections::BTreeSet;

use recipes_core::{NewNode, NodeMode, NodeOp};
use recipes_keeper::{Asked, letter, version_word};

use crate::path::{split, split_new};

/// Paths of at most so many bytes fit into an index.
pub(super) const PATH_BYTES_MAX: usize = 1_500;

/// Digits of a place, with a sign.
const PLACE_BYTES_MAX: usize = 11;

/// A procedure for one acquire or one release.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Call<'a> {
    Enter {
        up_dir: &'a str,
        up_name: &'a str,
        dir: &'a str,
        name: &'a str,
        data: &'a [u8],
    },
    Leave {
        path: &'a str,
        dir: &'a str,
        name: &'a str,
    },
}

impl<'a> Call<'a> {
    /// The cheapest call that may do.
    pub(super) fn simple(all: &'a [Asked]) -> Option<Self> {
        let mut asked = all.iter().filter(|it| !is_nothing(it));
        let (first, second, third) = (asked.next()?, asked.next(), asked.next());
        let Asked::Multi(operations) = first else {
            return None;
        };
        if unfit(first).is_some() {
            return None;
        }
        match (&**operations, second, third) {
            (
                [
                    NodeOp::Create(NewNode {
                        path,
                        data,
                        mode: NodeMode::EphemeralSequential,
                    }),
                ],
                Some(Asked::Look {
                    directory,
                    own: None,
                    ..
                }),
                None,
            ) => {
                let (dir, name) = split_new(path);
                let (up_dir, up_name) = split(dir);
                (directory == dir).then_some(Self::Enter {
                    up_dir,
                    up_name,
                    dir,
                    name,
                    data,
                })
            }
            (
                [
                    NodeOp::Delete {
                        path,
                        version: None,
                    },
                ],
                None,
                None,
            ) => {
                let (dir, name) = split(path);
                Some(Self::Leave { path, dir, name })
            }
            _ => None,
        }
    }
}

/// The words of `requests`, which does all.
pub(super) fn general(all: &[Asked]) -> Vec<u8> {
    let asked = || all.iter().filter(|it| unfit(it).is_none());
    let mut directories = BTreeSet::new();
    for asked in asked() {
        if let Asked::Multi(operations) = asked {
            let created = operations.iter().filter_map(|it| match it {
                NodeOp::Create(node) => Some(split_new(&node.path).0),
                _ => None,
            });
            directories.extend(created);
        }
    }
    let mut words = Words::default();
    words.number(directories.len());
    for directory in directories {
        words.text(directory);
    }
    for asked in asked() {
        words.request(asked);
    }
    words.0
}

/// Whether there is nothing to do here.
pub(super) fn is_nothing(asked: &Asked) -> bool {
    matches!(asked, Asked::Unwatch(_) | Asked::Beat)
}

/// Where a path is too long for an index, and the server is not asked: the operation, or 0.
pub(super) fn unfit(asked: &Asked) -> Option<usize> {
    let is_long = |path: &str| path.len() > PATH_BYTES_MAX;
    match asked {
        Asked::Multi(operations) => operations.iter().position(|it| match it {
            NodeOp::Create(NewNode {
                path,
                mode: NodeMode::EphemeralSequential,
                ..
            }) => path.len() + PLACE_BYTES_MAX > PATH_BYTES_MAX,
            it => is_long(it.path()),
        }),
        Asked::List(path) | Asked::Read(path) | Asked::Watch(path, _) | Asked::Stat(path) => {
            is_long(path).then_some(0)
        }
        Asked::Look { directory, own, .. } => {
            let is_long = is_long(directory) || own.as_deref().is_some_and(is_long);
            is_long.then_some(0)
        }
        Asked::Unwatch(_) | Asked::Beat => None,
    }
}

#[derive(Default)]
struct Words(Vec<u8>);

impl Words {
    fn letter(&mut self, letter: &str) -> &mut Self {
        self.0.extend_from_slice(letter.as_bytes());
        self
    }

    fn word(&mut self, word: &[u8]) -> &mut Self {
        self.0
            .extend_from_slice(format!("{:08}", word.len()).as_bytes());
        self.0.extend_from_slice(word);
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.word(text.as_bytes())
    }

    fn number(&mut self, number: usize) -> &mut Self {
        self.text(&number.to_string())
    }

    fn path(&mut self, (dir, name): (&str, &str)) -> &mut Self {
        self.text(dir).text(name)
    }

    fn version(&mut self, version: Option<i32>) -> &mut Self {
        self.text(&version_word(version))
    }

    fn request(&mut self, asked: &Asked) {
        match asked {
            Asked::Multi(operations) => {
                self.letter("m").number(operations.len());
                for operation in operations.iter() {
                    self.operation(operation);
                }
            }
            Asked::Look { directory, own, .. } => {
                let own = own.as_deref().unwrap_or_default();
                self.letter("k").text(directory).text(own);
            }
            Asked::List(path) => {
                self.letter("l").text(path);
            }
            // The number of a watch is for those who look for news.
            Asked::Read(path) | Asked::Watch(path, _) => {
                self.letter("r").path(split(path));
            }
            Asked::Stat(path) => {
                self.letter("s").path(split(path));
            }
            Asked::Unwatch(_) | Asked::Beat => {}
        }
    }

    fn operation(&mut self, operation: &NodeOp) {
        let path = split(operation.path());
        match operation {
            NodeOp::Create(node) => {
                let path = split_new(&node.path);
                self.letter(letter(node.mode)).path(path).word(&node.data)
            }
            NodeOp::Delete { version, .. } => self.letter("D").path(path).version(*version),
            NodeOp::Set { data, version, .. } => {
                self.letter("W").path(path).word(data).version(*version)
            }
            NodeOp::Check { version, .. } => self.letter("X").path(path).version(*version),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn multi(operation: NodeOp) -> Asked {
        Asked::Multi([operation].into())
    }

    fn create(path: &str) -> Asked {
        multi(NodeOp::Create(NewNode {
            path: path.to_owned(),
            data: (*b"d").into(),
            mode: NodeMode::EphemeralSequential,
        }))
    }

    fn look(directory: &str, own: Option<&str>) -> Asked {
        Asked::Look {
            directory: directory.to_owned(),
            own: own.map(str::to_owned),
            first: 1,
        }
    }

    #[test]
    fn acquire_and_release_alone_have_procedures_of_their_own() {
        let enter = Call::Enter {
            up_dir: "/",
            up_name: "a",
            dir: "/a",
            name: "n-",
            data: b"d",
        };
        let delete = || {
            let (path, version) = ("/a/n".to_owned(), None);
            multi(NodeOp::Delete { path, version })
        };
        let simple = |asked: &[Asked]| Call::simple(asked).is_some();
        let entered = [create("/a/n-"), look("/a", None)];
        assert_eq!(Call::simple(&entered), Some(enter));
        assert!(simple(&[Asked::Beat, create("/a/n-"), look("/a", None)]));
        assert!(simple(&[delete()]));
        assert!(!simple(&[delete(), delete()]));
        assert!(!simple(&[create("/a/n-")]));
        assert!(!simple(&[create("/a/n-"), look("/b", None)]));
        assert!(!simple(&[create("/a/n-"), look("/a", Some("n-0"))]));
        assert!(!simple(&[Asked::Unwatch("/a".to_owned())]));
    }

    #[test]
    fn directories_come_first_and_sorted() {
        let words = general(&[create("/b/n"), create("/a/n"), create("/b/m")]);
        let head = b"000000012\
                     00000002/a\
                     00000002/b\
                     m000000011S00000002/b00000001n00000001d";
        assert!(
            words.starts_with(head),
            "{}",
            String::from_utf8_lossy(&words)
        );
    }

    #[test]
    fn versions_are_words_that_may_be_empty() {
        let path = || "/a".to_owned();
        let set = NodeOp::Set {
            path: path(),
            data: b"d".to_vec(),
            version: Some(3),
        };
        let check = NodeOp::Check {
            path: path(),
            version: None,
        };
        let words = general(&[Asked::Multi([set, check].into()), Asked::Beat]);
        let expected =
            "000000010m000000012W00000001/00000001a00000001d000000013X00000001/00000001a00000000";
        assert_eq!(String::from_utf8_lossy(&words), expected);
    }

    #[test]
    fn path_that_fits_into_no_index_is_not_sent() {
        let long = "x".repeat(PATH_BYTES_MAX + 1);
        let short = long.get(1..).unwrap();
        let list = Asked::List(long.clone());
        assert_eq!(unfit(&list), Some(0));
        assert_eq!(general(&[list]), b"000000010");
        assert_eq!(unfit(&Asked::List(short.to_owned())), None);
        let place_does_not_fit = create(short);
        assert_eq!(unfit(&place_does_not_fit), Some(0));
        let entered = [place_does_not_fit, look("/a", None)];
        assert_eq!(Call::simple(&entered), None);
    }
}
