//! What is said to the functions.

use recipes_core::NodeOp;
use recipes_keeper::{Asked, Caller, Rewatch, letter, micros, version_word};

use crate::path::{split, split_new};

/// The longest path of a node, in bytes. A row of an index has at most a third of a page.
pub(super) const PATH_BYTES_MAX: usize = 2_000;

/// Watches, in columns.
#[derive(Debug, Default)]
pub(super) struct Watched {
    pub(super) numbers: Vec<i64>,
    pub(super) dirs: Vec<String>,
    pub(super) names: Vec<String>,
    /// The transactions that created the nodes, and last changed them.
    pub(super) created: Vec<i64>,
    pub(super) changed: Vec<i64>,
}

impl Watched {
    pub(super) fn of(watches: &[Rewatch]) -> Self {
        let mut watched = Self::default();
        for Rewatch { number, path, seen } in watches {
            let (dir, name) = split(path);
            watched.numbers.push(signed(*number));
            watched.dirs.push(dir.to_owned());
            watched.names.push(name.to_owned());
            watched.created.push(seen.czxid);
            watched.changed.push(seen.mzxid);
        }
        watched
    }
}

/// Numbers of watches and connections count from one.
pub(super) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A session, as the functions are told of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Session {
    /// Its name with the number of the connection.
    pub(super) name: String,
    pub(super) id: i64,
    pub(super) connection: u64,
    pub(super) timeout: i64,
    /// How long a container may be empty.
    pub(super) rest: i64,
}

impl Session {
    pub(super) fn of(caller: &Caller) -> Self {
        Self {
            name: caller.name(),
            id: caller.id,
            connection: caller.connection,
            timeout: micros(caller.timeout),
            rest: micros(caller.container_rest),
        }
    }
}

/// A call of `requests`, in its words: see `requests.sql`.
#[derive(Debug)]
pub(super) struct Said {
    /// Whether it changes anything.
    pub(super) changes: bool,
    /// Whether it deletes or changes nodes that somebody may watch.
    pub(super) tells: bool,
    /// Whether it sets watches.
    pub(super) watches: bool,
    /// The directories to lock first, each as that of its parent and its name.
    pub(super) up_dirs: Vec<String>,
    pub(super) up_names: Vec<String>,
    pub(super) words: Vec<String>,
    pub(super) data: Vec<Vec<u8>>,
}

impl Said {
    pub(super) fn of(all: &[Asked]) -> Self {
        let mut speaker = Speaker::default();
        for asked in all {
            speaker.request(asked);
        }
        let (up_dirs, up_names) = speaker.directories();
        Self {
            changes: speaker.changes,
            tells: all.iter().any(Asked::tells),
            watches: all.iter().any(Asked::watches),
            up_dirs,
            up_names,
            words: speaker.words,
            data: speaker.data,
        }
    }
}

/// Finds the words of a call.
#[derive(Default)]
struct Speaker {
    words: Vec<String>,
    data: Vec<Vec<u8>>,
    changes: bool,
    /// The directories in which the call creates.
    directories: Vec<String>,
    /// Whether a create is not of the kind that finds out its number by itself.
    is_numbered: bool,
}

impl Speaker {
    fn say(&mut self, words: &[&str]) {
        self.words.extend(words.iter().map(|it| (*it).to_owned()));
    }

    fn of_path(&mut self, word: &str, path: &str) {
        let (dir, name) = split(path);
        self.say(&[word, dir, name]);
    }

    fn request(&mut self, asked: &Asked) {
        match asked {
            Asked::Multi(operations) => self.multi(operations),
            Asked::List(path) => self.of_path("list", path),
            Asked::Read(path) => self.of_path("read", path),
            Asked::Stat(path) => self.of_path("stat", path),
            Asked::Unwatch(path) => self.of_path("unwatch", path),
            Asked::Watch(path, number) => {
                self.of_path("watch", path);
                self.words.push(number.to_string());
            }
            Asked::Look {
                directory,
                own,
                first,
            } => {
                self.of_path("look", directory);
                self.words.push(own.clone().unwrap_or_default());
                self.words
                    .extend((*first..first + 3).map(|it| it.to_string()));
            }
            Asked::Beat => self.say(&["beat"]),
        }
    }

    /// Transactions of one operation are said without a frame, and checks in one of their own.
    fn multi(&mut self, operations: &[NodeOp]) {
        let start = self.words.len();
        for operation in operations {
            self.operation(operation, operations.len() > 1);
        }
        let is_check = |it: &NodeOp| matches!(it, NodeOp::Check { .. });
        let frame = match operations {
            _ if operations.iter().all(is_check) => "checks",
            [_] => return,
            _ => "together",
        };
        let length = self.words.len() - start;
        let frame = [frame.to_owned(), length.to_string()];
        self.words.splice(start..start, frame);
    }

    fn operation(&mut self, operation: &NodeOp, is_part: bool) {
        self.changes |= !matches!(operation, NodeOp::Check { .. });
        match operation {
            NodeOp::Create(node) => {
                let (up, name) = split_new(&node.path);
                if node.path.len() > PATH_BYTES_MAX {
                    return self.say(&["refuse", "TooLong"]);
                }
                let kind = letter(node.mode);
                let (up_dir, up_name) = split(up);
                let place = self.place(&node.data);
                self.say(&["create", up_dir, up_name, up, name, kind, &place]);
                self.is_numbered |= is_part || kind != "S";
                self.directories.push(up.to_owned());
            }
            NodeOp::Delete { path, version } => {
                let (dir, name) = split(path);
                let (up_dir, up_name) = split(dir);
                self.say(&["delete", up_dir, up_name, dir, name]);
                self.words.push(version_word(*version));
            }
            NodeOp::Set {
                path,
                data,
                version,
            } => {
                let place = self.place(data);
                self.of_path("set", path);
                self.words.extend([version_word(*version), place]);
            }
            NodeOp::Check { path, version } => {
                self.of_path("check", path);
                self.words.push(version_word(*version));
            }
        }
    }

    fn place(&mut self, data: &[u8]) -> String {
        self.data.push(data.to_vec());
        self.data.len().to_string()
    }

    /// What must be locked before anything else, so that calls that cross do not wait for each other: the
    /// directories in which it creates, in order. None if the only create finds out its number itself.
    fn directories(&mut self) -> (Vec<String>, Vec<String>) {
        if self.directories.len() == 1 && !self.is_numbered {
            return (Vec::new(), Vec::new());
        }
        let all = self.directories.iter().map(|path| {
            let (dir, name) = split(path);
            (dir.to_owned(), name.to_owned())
        });
        let mut all: Vec<_> = all.collect();
        all.sort_unstable();
        all.dedup();
        all.into_iter().unzip()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use recipes_core::{NewNode, NodeMode};

    use super::*;

    fn create_as(path: &str, data: &str, mode: NodeMode) -> NodeOp {
        NodeOp::Create(NewNode {
            path: path.to_owned(),
            data: data.as_bytes().into(),
            mode,
        })
    }

    /// Ephemeral and sequential.
    fn create(path: &str) -> NodeOp {
        create_as(path, "d", NodeMode::EphemeralSequential)
    }

    fn check(path: &str, version: Option<i32>) -> NodeOp {
        let path = path.to_owned();
        NodeOp::Check { path, version }
    }

    fn multi<const N: usize>(operations: [NodeOp; N]) -> Asked {
        Asked::Multi(operations.into())
    }

    fn words(said: &Said) -> String {
        let words = said
            .words
            .iter()
            .map(|it| if it.is_empty() { "-" } else { it });
        words.collect::<Vec<_>>().join(" ")
    }

    fn locked(said: &Said) -> Vec<(&str, &str)> {
        let dirs = said.up_dirs.iter().map(String::as_str);
        dirs.zip(said.up_names.iter().map(String::as_str)).collect()
    }

    #[test]
    fn session_has_its_name_on_its_connection() {
        let caller = Caller {
            id: 7,
            secret: "s".to_owned(),
            connection: 1,
            timeout: Duration::from_micros(100),
            container_rest: Duration::from_micros(60),
        };
        let session = Session {
            name: "7:100:s:1".to_owned(),
            id: 7,
            connection: 1,
            timeout: 100,
            rest: 60,
        };
        assert_eq!(Session::of(&caller), session);
    }

    #[test]
    fn acquire_is_said_with_split_paths_and_locks_nothing_first() {
        let look = Asked::Look {
            directory: "/l/a".to_owned(),
            own: None,
            first: 1,
        };
        let said = Said::of(&[multi([create("/l/a/x-")]), look]);
        assert_eq!(words(&said), "create /l a /l/a x- S 1 look /l a - 1 2 3");
        assert_eq!(said.data, [b"d"]);
        assert!(said.changes && said.watches && !said.tells && locked(&said).is_empty());
    }

    #[test]
    fn release_changes_and_tells() {
        let path = || "/l/a/x-1".to_owned();
        let version = None;
        let delete = NodeOp::Delete {
            path: path(),
            version,
        };
        let said = Said::of(&[multi([delete]), Asked::Unwatch(path())]);
        assert_eq!(words(&said), "delete /l a /l/a x-1 - unwatch /l/a x-1");
        assert!(said.changes && said.tells && !said.watches);
    }

    #[test]
    fn checks_alone_change_nothing() {
        let both = multi([check("/a", None), check("/", Some(3))]);
        let said = Said::of(&[both, multi([check("/b", None)]), Asked::Beat]);
        assert_eq!(
            words(&said),
            "checks 8 check / a - check - - 3 checks 4 check / b - beat"
        );
        assert!(!said.changes);
    }

    #[test]
    fn several_operations_are_together_and_their_directories_are_locked_in_order() {
        let three = [create("/b/x-"), check("/a", None), create("/a/x-")];
        let container = create_as("/b", "3", NodeMode::Container);
        let all = [multi(three), multi([container]), multi([create("/b/y-")])];
        let said = Said::of(&all);
        assert_eq!(
            words(&said),
            "together 18 create / b /b x- S 1 check / a - create / a /a x- S 2 \
             create - - / b C 3 create / b /b y- S 4"
        );
        assert_eq!(locked(&said), [("", ""), ("/", "a"), ("/", "b")]);
        assert_eq!(said.data.len(), 4);
    }

    #[test]
    fn create_that_does_not_find_out_its_number_locks_its_directory() {
        let container = create_as("/a/b", "1", NodeMode::Container);
        assert_eq!(locked(&Said::of(&[multi([container])])), [("/", "a")]);
        let together = Said::of(&[multi([create("/a/x-"), check("/b", None)])]);
        assert_eq!(locked(&together), [("/", "a")]);
        let one = || multi([create("/a/x-")]);
        assert_eq!(locked(&Said::of(&[one(), one()])), [("/", "a")]);
    }

    #[test]
    fn set_read_watch_and_list_have_their_words() {
        let path = || "/a".to_owned();
        let set = NodeOp::Set {
            path: path(),
            data: b"d".to_vec(),
            version: Some(3),
        };
        let all = [
            multi([set]),
            Asked::Read(path()),
            Asked::Watch(path(), 4),
            Asked::List("/".to_owned()),
            Asked::Stat(path()),
        ];
        let said = Said::of(&all);
        assert_eq!(
            words(&said),
            "set / a 3 1 read / a watch / a 4 list - - stat / a"
        );
        assert!(said.tells && said.watches);
    }

    #[test]
    fn path_that_is_too_long_is_refused_by_itself() {
        let long = format!("/{}", "a".repeat(PATH_BYTES_MAX));
        let said = Said::of(&[multi([create(&long)]), multi([create("/b/x-")])]);
        assert_eq!(words(&said), "refuse TooLong create / b /b x- S 1");
    }
}
