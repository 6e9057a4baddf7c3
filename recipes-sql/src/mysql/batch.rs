//! What is asked, as the procedures want it.
//!
//! The words of `requests` are listed in `requests.sql`. An acquire or a release alone, as most calls
//! are, has a procedure of its own.

use std::collections::BTreeSet;

use crate::path::{split, split_new};

use super::request::{Operation, PATH_BYTES_MAX, Request};

/// Digits of a place, with a sign.
const PLACE_BYTES_MAX: usize = 11;

/// The procedure that is called.
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
    /// The words of `requests`.
    Requests(Vec<u8>),
}

impl<'a> Call<'a> {
    /// The cheapest call that may do.
    pub(super) fn simple(requests: &[Request<'a>]) -> Option<Self> {
        let mut asked = requests.iter().filter(|it| **it != Request::Nothing);
        let (first, second, third) = (asked.next()?, asked.next(), asked.next());
        let Request::Multi(operations) = first else {
            return None;
        };
        if unfit(first).is_some() {
            return None;
        }
        match (operations.as_slice(), second, third) {
            (
                [
                    Operation::Create {
                        path,
                        data,
                        kind: b'S',
                    },
                ],
                Some(Request::Look { directory, own, .. }),
                None,
            ) => {
                let (dir, name) = split_new(path);
                let is_there = own.is_empty() && *directory == dir;
                let (up_dir, up_name) = split(dir);
                is_there.then_some(Self::Enter {
                    up_dir,
                    up_name,
                    dir,
                    name,
                    data,
                })
            }
            ([Operation::Delete { path, version: "" }], None, None) => {
                let (dir, name) = split(path);
                Some(Self::Leave { path, dir, name })
            }
            _ => None,
        }
    }

    /// The call that does all.
    pub(super) fn general(requests: &[Request<'a>]) -> Self {
        let asked = || requests.iter().filter(|it| unfit(it).is_none());
        let mut directories = BTreeSet::new();
        for request in asked() {
            if let Request::Multi(operations) = request {
                let created = operations.iter().filter_map(|it| match it {
                    Operation::Create { path, .. } => Some(split_new(path).0),
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
        for request in asked() {
            words.request(request);
        }
        Self::Requests(words.0)
    }
}

/// Where a path is too long for an index, and the server is not asked: the operation, or 0.
pub(super) fn unfit(request: &Request<'_>) -> Option<usize> {
    let is_long = |path: &str| path.len() > PATH_BYTES_MAX;
    match request {
        Request::Multi(operations) => operations.iter().position(|it| match it {
            Operation::Create {
                path, kind: b'S', ..
            } => path.len() + PLACE_BYTES_MAX > PATH_BYTES_MAX,
            it => is_long(it.path()),
        }),
        Request::List(path) | Request::Read(path) | Request::Watch(path) | Request::Stat(path) => {
            is_long(path).then_some(0)
        }
        Request::Look { directory, own, .. } => (is_long(directory) || is_long(own)).then_some(0),
        Request::Nothing => None,
    }
}

#[derive(Default)]
struct Words(Vec<u8>);

impl Words {
    fn letter(&mut self, letter: u8) -> &mut Self {
        self.0.push(letter);
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

    fn request(&mut self, request: &Request<'_>) {
        match request {
            Request::Multi(operations) => {
                self.letter(b'm').number(operations.len());
                for operation in operations {
                    self.operation(operation);
                }
            }
            Request::Look { directory, own, .. } => {
                self.letter(b'k').text(directory).text(own);
            }
            Request::List(path) => {
                self.letter(b'l').text(path);
            }
            Request::Read(path) | Request::Watch(path) => {
                self.letter(b'r').path(split(path));
            }
            Request::Stat(path) => {
                self.letter(b's').path(split(path));
            }
            Request::Nothing => {}
        }
    }

    fn operation(&mut self, operation: &Operation<'_>) {
        let path = split(operation.path());
        match operation {
            Operation::Create { path, data, kind } => {
                self.letter(*kind).path(split_new(path)).word(data)
            }
            Operation::Delete { version, .. } => self.letter(b'D').path(path).text(version),
            Operation::Set { data, version, .. } => {
                self.letter(b'W').path(path).word(data).text(version)
            }
            Operation::Check { version, .. } => self.letter(b'X').path(path).text(version),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn create(path: &str) -> Request<'_> {
        Request::Multi(vec![Operation::Create {
            path,
            data: b"d",
            kind: b'S',
        }])
    }

    fn look<'a>(directory: &'a str, own: &'a str) -> Request<'a> {
        Request::Look {
            directory,
            own,
            numbers: ["1", "2", "3"],
        }
    }

    #[test]
    fn acquire_and_release_alone_have_procedures_of_their_own() {
        let enter = Some(Call::Enter {
            up_dir: "/",
            up_name: "a",
            dir: "/a",
            name: "n-",
            data: b"d",
        });
        let delete = || {
            Request::Multi(vec![Operation::Delete {
                path: "/a/n",
                version: "",
            }])
        };
        let simple = |requests: &[Request<'static>]| Call::simple(requests).is_some();
        assert_eq!(Call::simple(&[create("/a/n-"), look("/a", "")]), enter);
        let released = [Request::Nothing, create("/a/n-"), look("/a", "")];
        assert_eq!(Call::simple(&released), enter);
        assert!(simple(&[delete()]));
        assert!(!simple(&[delete(), delete()]));
        assert!(!simple(&[create("/a/n-")]));
        assert!(!simple(&[create("/a/n-"), look("/b", "")]));
        assert!(!simple(&[create("/a/n-"), look("/a", "n-0")]));
        assert!(!simple(&[Request::Nothing]));
    }

    #[test]
    fn directories_come_first_and_sorted() {
        let requests = [create("/b/n"), create("/a/n"), create("/b/m")];
        let Call::Requests(words) = Call::general(&requests) else {
            panic!("not general")
        };
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
    fn path_that_fits_into_no_index_is_not_sent() {
        let long = "x".repeat(PATH_BYTES_MAX + 1);
        let short = long.get(1..).unwrap();
        let list = Request::List(&long);
        assert_eq!(unfit(&list), Some(0));
        let Call::Requests(words) = Call::general(&[list]) else {
            panic!("not general")
        };
        assert_eq!(words, b"000000010");
        assert_eq!(unfit(&Request::List(short)), None);
        let place_does_not_fit = create(short);
        assert_eq!(unfit(&place_does_not_fit), Some(0));
        assert_eq!(Call::simple(&[place_does_not_fit, look("/a", "")]), None);
    }
}
