//! What is asked of the functions, in their words. They are listed at the top of the files in `library`.

use std::fmt::Display;
use std::io::Write;

use recipes_core::NodeOp;
use recipes_keeper::{Asked, Caller, Open, Resume, letter, micros, version_word};

/// The words of a call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    bytes: Vec<u8>,
    /// Where each word ends.
    ends: Vec<usize>,
}

impl Words {
    fn arg(&mut self, word: impl AsRef<[u8]>) -> &mut Self {
        self.bytes.extend_from_slice(word.as_ref());
        self.end()
    }

    /// Adds a number, in digits.
    fn number(&mut self, number: impl Display) -> &mut Self {
        // A vector takes all.
        drop(write!(self.bytes, "{number}"));
        self.end()
    }

    fn end(&mut self) -> &mut Self {
        self.ends.push(self.bytes.len());
        self
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// How long they are together.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The words, one after the other.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let places = starts.zip(&self.ends);
        places.map(|(start, end)| self.bytes.get(start..*end).unwrap_or_default())
    }

    pub(crate) fn of_open(open: &Open) -> Self {
        let mut words = Self::default();
        words.arg(&open.secret).number(micros(open.timeout));
        words.arg(&open.run).number(i32::from(open.is_known));
        words
    }

    pub(crate) fn of_resume(resume: &Resume) -> Self {
        let (mut words, caller) = (Self::default(), &resume.caller);
        words.arg(caller.lasting_name()).number(caller.id);
        words.number(micros(caller.timeout));
        words.number(caller.connection).arg(&resume.run);
        let known_by: Vec<_> = resume.known_by.iter().map(u64::to_string).collect();
        words.number(i32::from(resume.wants_nodes));
        words.arg(known_by.join(","));
        for watch in &resume.watches {
            words.number(watch.number).arg(&watch.path);
            words.number(watch.seen.czxid).number(watch.seen.mzxid);
        }
        words
    }

    pub(crate) fn of_close(caller: &Caller) -> Self {
        let mut words = Self::default();
        words.arg(caller.name());
        words
    }

    pub(crate) fn of_requests(caller: &Caller, all: &[Asked]) -> Self {
        let mut words = Self::default();
        words.arg(caller.name()).number(caller.id);
        words.number(micros(caller.timeout));
        words.number(micros(caller.container_rest));
        for asked in all {
            words.request(asked);
        }
        words
    }

    fn request(&mut self, asked: &Asked) {
        match asked {
            Asked::Multi(operations) => {
                self.arg("multi").number(operations.len());
                for operation in operations.iter() {
                    self.operation(operation);
                }
                self
            }
            Asked::List(path) => self.arg("list").arg(path),
            Asked::Look {
                directory,
                own,
                first,
            } => {
                let own = own.as_deref().unwrap_or_default();
                let look = self.arg("look").arg(directory).arg(own);
                look.number(first).number(first + 1).number(first + 2)
            }
            Asked::Read(path) => self.arg("read").arg(path),
            Asked::Stat(path) => self.arg("stat").arg(path),
            Asked::Watch(path, number) => self.arg("watch").arg(path).number(number),
            Asked::Unwatch(path) => self.arg("unwatch").arg(path),
            Asked::Beat => self.arg("beat"),
        };
    }

    fn operation(&mut self, operation: &NodeOp) {
        match operation {
            NodeOp::Create(node) => {
                let create = self.arg("create").arg(&node.path);
                create.arg(&*node.data).arg(letter(node.mode))
            }
            NodeOp::Delete { path, version } => {
                self.arg("delete").arg(path).arg(version_word(*version))
            }
            NodeOp::Set {
                path,
                data,
                version,
            } => self
                .arg("set")
                .arg(path)
                .arg(data)
                .arg(version_word(*version)),
            NodeOp::Check { path, version } => {
                self.arg("check").arg(path).arg(version_word(*version))
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use recipes_core::{NewNode, NodeMode};
    use recipes_keeper::{Rewatch, Seen};

    use super::*;

    fn caller() -> Caller {
        Caller {
            id: 7,
            secret: "secret".to_owned(),
            connection: 3,
            timeout: Duration::from_micros(100),
            container_rest: Duration::from_micros(60),
        }
    }

    fn said(words: &Words) -> Vec<String> {
        let words = words.iter().map(String::from_utf8_lossy);
        words.map(|it| it.into_owned()).collect()
    }

    #[test]
    fn requests_follow_the_session() {
        let path = || "/a/x-1".to_owned();
        let create = NodeOp::Create(NewNode {
            path: "/a/x-".to_owned(),
            data: Arc::from(*b"me"),
            mode: NodeMode::EphemeralSequential,
        });
        let (version, data) = (Some(4), b"d".to_vec());
        let set = NodeOp::Set {
            path: path(),
            data,
            version,
        };
        let delete = NodeOp::Delete {
            path: path(),
            version: None,
        };
        let look = |own: Option<&str>| Asked::Look {
            directory: "/a".to_owned(),
            own: own.map(str::to_owned),
            first: 9,
        };
        let all = [
            Asked::Multi([create, set, delete].into()),
            look(None),
            look(Some("x-1")),
            Asked::Watch(path(), 12),
            Asked::Beat,
        ];
        let words = Words::of_requests(&caller(), &all);
        let expected = "7:100:secret:3 7 100 60 multi 3 create /a/x- me S set /a/x-1 d 4 delete /a/x-1  \
                        look /a  9 10 11 look /a x-1 9 10 11 watch /a/x-1 12 beat";
        assert_eq!(said(&words).join(" "), expected);
        assert_eq!(words.len(), expected.split(' ').count());
        assert_eq!(words.bytes(), expected.len() + 1 - words.len());
    }

    #[test]
    fn resumed_session_says_what_it_watched() {
        let seen = Seen {
            czxid: 5,
            mzxid: 6,
            owner: 0,
        };
        let resume = Resume {
            caller: Arc::new(caller()),
            known_by: vec![1, 3],
            run: "run".to_owned(),
            wants_nodes: true,
            watches: vec![Rewatch {
                number: 8,
                path: "/a".to_owned(),
                seen,
            }],
        };
        let words = said(&Words::of_resume(&resume)).join(" ");
        assert_eq!(words, "7:100:secret 7 100 3 run 1 1,3 8 /a 5 6");
    }
}
