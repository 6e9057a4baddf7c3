//! What is said to the functions.

use recipes_keeper::{CallError, Words};
use thiserror::Error;

use crate::path::{split, split_new};

use super::answers::lost;

/// The longest path of a node, in bytes. A row of an index has at most a third of a page.
pub(super) const PATH_BYTES_MAX: usize = 2_000;

/// A call that nobody should have made.
#[derive(Debug, Error)]
#[error("a call of unknown words")]
struct Unclear;

fn unclear() -> CallError {
    lost(Unclear)
}

/// The words of a call, one after the other.
pub(super) struct Reader<'a>(Box<dyn Iterator<Item = &'a [u8]> + Send + 'a>);

impl<'a> Reader<'a> {
    pub(super) fn of(words: &'a Words) -> Self {
        Self(Box::new(words.iter()))
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], CallError> {
        self.0.next().ok_or_else(unclear)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, CallError> {
        std::str::from_utf8(self.bytes()?).map_err(lost)
    }

    pub(super) fn number(&mut self) -> Result<i64, CallError> {
        self.text()?.parse().map_err(lost)
    }

    /// Whether there are no more words.
    pub(super) fn ends(mut self) -> bool {
        self.0.next().is_none()
    }

    fn next_text(&mut self) -> Result<Option<&'a str>, CallError> {
        self.0
            .next()
            .map(std::str::from_utf8)
            .transpose()
            .map_err(lost)
    }
}

impl Reader<'_> {
    /// Watches up to the end: their numbers, paths, and what the nodes were like.
    pub(super) fn watched(&mut self) -> Result<Watched, CallError> {
        let mut watched = Watched::default();
        while let Some(number) = self.next_text()? {
            let number = number.parse().map_err(lost)?;
            watched.push(number, self.text()?, self.number()?, self.number()?);
        }
        Ok(watched)
    }
}

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
    pub(super) fn push(&mut self, number: i64, path: &str, created: i64, changed: i64) {
        let (dir, name) = split(path);
        self.numbers.push(number);
        self.dirs.push(dir.to_owned());
        self.names.push(name.to_owned());
        self.created.push(created);
        self.changed.push(changed);
    }
}

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Caller {
    /// Its name with the number of the connection.
    pub(super) name: String,
    pub(super) id: i64,
    pub(super) timeout: i64,
    /// How long a container may be empty.
    pub(super) rest: i64,
}

impl Caller {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, CallError> {
        Ok(Self {
            name: reader.text()?.to_owned(),
            id: reader.number()?,
            timeout: reader.number()?,
            rest: reader.number()?,
        })
    }
}

/// A call of `requests`, in its words: see `requests.sql`.
#[derive(Debug)]
pub(super) struct Said {
    pub(super) caller: Caller,
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
    pub(super) fn of(words: &Words) -> Result<Self, CallError> {
        let mut reader = Reader::of(words);
        let caller = Caller::read(&mut reader)?;
        let mut speaker = Speaker::default();
        while let Some(word) = reader.next_text()? {
            speaker.request(word, &mut reader)?;
        }
        let (up_dirs, up_names) = speaker.directories();
        Ok(Self {
            caller,
            changes: speaker.changes,
            tells: speaker.tells,
            watches: speaker.watches,
            up_dirs,
            up_names,
            words: speaker.words,
            data: speaker.data,
        })
    }
}

/// Says a call in other words.
#[derive(Default)]
struct Speaker {
    words: Vec<String>,
    data: Vec<Vec<u8>>,
    changes: bool,
    tells: bool,
    watches: bool,
    /// The directories in which the call creates.
    directories: Vec<String>,
    /// Whether a create is not of the kind that finds out its number by itself.
    is_numbered: bool,
}

impl Speaker {
    fn say(&mut self, words: &[&str]) {
        self.words.extend(words.iter().map(|it| (*it).to_owned()));
    }

    fn request(&mut self, word: &str, reader: &mut Reader<'_>) -> Result<(), CallError> {
        match word {
            "multi" => self.multi(reader)?,
            "beat" => self.say(&["beat"]),
            "list" | "read" | "stat" | "unwatch" => {
                let (dir, name) = split(reader.text()?);
                self.say(&[word, dir, name]);
            }
            "watch" => {
                let (dir, name) = split(reader.text()?);
                self.say(&[word, dir, name, reader.text()?]);
                self.watches = true;
            }
            "look" => {
                let (dir, name) = split(reader.text()?);
                self.say(&[word, dir, name, reader.text()?]);
                for _ in 0..3 {
                    self.say(&[reader.text()?]);
                }
                self.watches = true;
            }
            _ => return Err(unclear()),
        }
        Ok(())
    }

    /// Transactions of one operation are said without a frame, and checks in one of their own.
    fn multi(&mut self, reader: &mut Reader<'_>) -> Result<(), CallError> {
        let count = reader.number()?;
        let start = self.words.len();
        let mut checks = true;
        for _ in 0..count {
            let word = reader.text()?;
            checks &= word == "check";
            self.operation(word, reader, count > 1)?;
        }
        let frame = match (checks, count) {
            (true, _) => "checks",
            (false, 1) => return Ok(()),
            (false, _) => "together",
        };
        let length = self.words.len() - start;
        let frame = [frame.to_owned(), length.to_string()];
        self.words.splice(start..start, frame);
        Ok(())
    }

    fn operation(
        &mut self,
        word: &str,
        reader: &mut Reader<'_>,
        is_part: bool,
    ) -> Result<(), CallError> {
        let path = reader.text()?;
        self.changes |= word != "check";
        let (dir, name) = split(path);
        match word {
            "create" => {
                let data = reader.bytes()?;
                let kind = reader.text()?;
                let (up, name) = split_new(path);
                if path.len() > PATH_BYTES_MAX {
                    self.say(&["refuse", "TooLong"]);
                    return Ok(());
                }
                let (up_dir, up_name) = split(up);
                let place = self.place(data);
                self.say(&[word, up_dir, up_name, up, name, kind, &place]);
                self.is_numbered |= is_part || kind != "S";
                self.directories.push(up.to_owned());
            }
            "delete" => {
                let (up_dir, up_name) = split(dir);
                self.say(&[word, up_dir, up_name, dir, name, reader.text()?]);
                self.tells = true;
            }
            "set" => {
                let place = self.place(reader.bytes()?);
                self.say(&[word, dir, name, reader.text()?, &place]);
                self.tells = true;
            }
            "check" => self.say(&[word, dir, name, reader.text()?]),
            _ => return Err(unclear()),
        }
        Ok(())
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
    use super::*;

    fn said(words: &str) -> Said {
        let mut call = Words::default();
        call.arg("7:100:s:1").number(7).number(100).number(60);
        for word in words.split(' ') {
            call.arg(if word == "-" { "" } else { word });
        }
        Said::of(&call).unwrap()
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
    fn acquire_is_said_with_split_paths_and_locks_nothing_first() {
        let said = said("multi 1 create /l/a/x- me S look /l/a - 1 2 3");
        let caller = Caller {
            name: "7:100:s:1".to_owned(),
            id: 7,
            timeout: 100,
            rest: 60,
        };
        assert_eq!(said.caller, caller);
        assert_eq!(words(&said), "create /l a /l/a x- S 1 look /l a - 1 2 3");
        assert_eq!(said.data, [b"me"]);
        assert!(said.changes && said.watches && !said.tells && locked(&said).is_empty());
    }

    #[test]
    fn release_changes_and_tells() {
        let said = said("multi 1 delete /l/a/x-1 - unwatch /l/a/x-1");
        assert_eq!(words(&said), "delete /l a /l/a x-1 - unwatch /l/a x-1");
        assert!(said.changes && said.tells && !said.watches);
    }

    #[test]
    fn checks_alone_change_nothing() {
        let said = said("multi 2 check /a - check / 3 multi 1 check /b - beat");
        assert_eq!(
            words(&said),
            "checks 8 check / a - check - - 3 checks 4 check / b - beat"
        );
        assert!(!said.changes);
    }

    #[test]
    fn several_operations_are_together_and_their_directories_are_locked_in_order() {
        let said = said(
            "multi 3 create /b/x- 1 S check /a - create /a/x- 2 S multi 1 create /b 3 C \
             multi 1 create /b/y- 4 S",
        );
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
        assert_eq!(locked(&said("multi 1 create /a/b 1 C")), [("/", "a")]);
        let together = said("multi 2 create /a/x- 1 S check /b -");
        assert_eq!(locked(&together), [("/", "a")]);
        let two = said("multi 1 create /a/x- 1 S multi 1 create /a/x- 2 S");
        assert_eq!(locked(&two), [("/", "a")]);
    }

    #[test]
    fn set_read_watch_and_list_have_their_words() {
        let said = said("multi 1 set /a d 3 read /a watch /a 4 list / stat /a");
        assert_eq!(
            words(&said),
            "set / a 3 1 read / a watch / a 4 list - - stat / a"
        );
        assert!(said.tells && said.watches);
    }

    #[test]
    fn path_that_is_too_long_is_refused_by_itself() {
        let long = "a".repeat(PATH_BYTES_MAX);
        let said = said(&format!(
            "multi 1 create /{long} d S multi 1 create /b/x- d S"
        ));
        assert_eq!(words(&said), "refuse TooLong create / b /b x- S 1");
    }

    #[test]
    fn unknown_words_are_an_error() {
        let mut call = Words::default();
        call.arg("n").number(1).number(2).number(3).arg("sing");
        assert!(Said::of(&call).is_err());
        assert!(Said::of(&Words::default()).is_err());
    }
}
